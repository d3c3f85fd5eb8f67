// The log's two ends.
#pragma once

#include "ends/ends.hpp"
#include "ground/members/process_name.hpp"

#include "log/log_reader.hpp"
#include "log/log_writer.hpp"

namespace penstock {

inline void disturb_log(TermLog &log) {
    event_interrupt(log.control().data.value);
    event_interrupt(log.control().space.value);
}

class LogWatched final : public Waitable {
  public:
    LogWatched(std::shared_ptr<TermLog> log, bool until_end) : log_(std::move(log)), until_end_(until_end) {}
    Atomic<uint32_t> &event() override { return log_->control().data.value; }
    bool readable(uint64_t position) const override {
        // SYNC -: only wakes the reader, which acquires the frame when it takes it
        return frame_length(log_->frame(position)->word0.acquire()) > 0 || (until_end_ && log_->may_have_ended(position, false));
    }
    bool stalled(uint64_t position) const override {
        return log_->tail() > position || (until_end_ && rate_limit_.allows() && log_->may_have_ended(position, true));
    }
    bool settled(uint64_t position) const override { return !until_end_ && log_->tail() <= position; }

  private:
    std::shared_ptr<TermLog> log_;
    const bool until_end_;
    mutable RateLimit rate_limit_; // the bridge's thread
};

class LogReaderEnd : public SlotEnd<InPlaceReader, TermLog>, public RunSource {
  public:
    // `drop_after`: seconds; below 0: writers fail instead of waiting. `name`: of a member of a sync queue, whose kind this is.
    LogReaderEnd(int fd, std::string path, Start start, double drop_after, Kind kind = Kind::log, MemberName name = {})
        : SlotEnd(std::make_shared<TermLog>(fd, std::move(path), nullptr, kind)), drop_after_ns_(patience_ns(drop_after)),
          name_(std::move(name)), reader_(std::make_unique<LogReader>(file_, start, drop_after_ns_, name_)) {
        file_->make_read_only();
    }
    // `log` has its slot already.
    LogReaderEnd(std::shared_ptr<TermLog> log, LogReader::Early early, double drop_after, MemberName name)
        : SlotEnd(std::move(log)), drop_after_ns_(patience_ns(drop_after)), name_(std::move(name)),
          reader_(std::make_unique<LogReader>(file_, early, drop_after_ns_, name_)) {
        file_->make_read_only();
    }
    static uint64_t patience_ns(double drop_after) {
        return drop_after < 0 ? refuses_to_wait : static_cast<uint64_t>(seconds_to_ns(drop_after));
    }

    const std::shared_ptr<TermLog> &log() const { return file_; }

    void interrupt() override { disturb_log(*file_); }
    Atomic<uint32_t> &event() override { return file_->control().data.value; }
    std::shared_ptr<Waitable> watched(bool until_end) override { return std::make_shared<LogWatched>(file_, until_end); }
    bool ended() override { return reader_->ended(); }
    void add_watches(WatchSet &at) override { at.add(file_->frame(reader_->position())->word0, 0); }

    const Message *peek() override { return reader_->peek(); }
    void consume() override { reader_->consume(); }
    void give_back(const Message &message) override { reader_->end_hold(message.position); }

    bool repair() override { return reader_->unblock(); }
    bool settled() const override { return !reader_->stalled(); }
    LatencySlot *latency() override {
        const Mapping &map = *file_->mapping();
        return latency_of(map.bytes(), map.size(), file_->geometry().slot_count, file_->mine());
    }
    Atomic<uint64_t> *wait_word() override { return &file_->me().counters.wait; }
    bool readable() const override { return reader_->readable(); }

    RunSource *runs() final { return this; }
    bool skips() const final { return false; }
    FrameBlock run(uint64_t max) override {
        const FrameBlock found = reader_->run(max);
        if (found.length == 0) reader_->skip_lost(); // of an image: what was lost is a gap
        return found;
    }
    void check_run() override {
        if (reader_->droppable()) reader_->check_not_dropped();
    }
    void take_run(const FrameBlock &run) override { reader_->take_run(run); }
    void show_position() override { reader_->show_position(); }
    // It decides about claims that stay open: one that is committed at this moment may still be taken for one of them.
    std::optional<FrameBlock> open_claim() override {
        const uint64_t begun = reader_->position(), end = file_->tail();
        uint64_t first = 0;
        if (end > begun && end - begun > file_->buffer().size()) return std::nullopt;
        for (uint64_t at = begun; at < end;) {
            // SYNC -: only asks what is there; run(), which copies it, acquires it
            const uint64_t word0 = file_->frame(at)->word0.acquire();
            if (frame_length(word0) > 0) {
                if (first == 0) break; // it was committed meanwhile
                if (frame_type(word0) == static_cast<uint16_t>(FrameType::data)) return padding(begun, first);
                at += align_frame(static_cast<uint32_t>(frame_length(word0)));
                continue;
            }
            const uint64_t claimed = claimed_at(at, end);
            if (claimed == 0) return std::nullopt;
            if (first == 0) first = claimed;
            at += claimed;
        }
        return FrameBlock{};
    }

    uint64_t position() const override { return reader_->position(); }
    uint64_t lag() const override { return reader_->lag(); }
    uint64_t lost() const override { return reader_->lost(); }
    uint64_t incomplete() const override { return reader_->incomplete(); }

  protected:
    void take_slot() override {
        reader_ = std::make_unique<LogReader>(file_, Start{Start::From::position, reader_->position()}, drop_after_ns_, name_);
    }
    bool droppable() const override { return drop_after_ns_ != 0; }
    void check_dropped() override { check_run(); }
    void hold(const Message &message) override { reader_->hold(message.position); }

    const uint64_t drop_after_ns_;
    const MemberName name_;
    std::unique_ptr<LogReader> reader_;

  private:
    // The bytes of the claim that a publication has noted there; 0 if none has. A slot's words are bytes from shared memory.
    uint64_t claimed_at(uint64_t position, uint64_t end) const {
        for (uint32_t i = 0; i < file_->geometry().slot_count; ++i)
            for (const ClaimRecord &claim : file_->slot(i).writer.claims) {
                if (claim.where.relaxed() != (position | claim_taken)) continue;
                const uint64_t length = claim.length.relaxed();
                acquire_fence(); // SYNC -: the record is looked at again: its owner may have noted another claim meanwhile
                const bool fits = length <= file_->left_in_term(position) && position + length <= end;
                if (claim.where.relaxed() == (position | claim_taken) && fits && length >= header_length &&
                    length % frame_alignment == 0)
                    return length;
            }
        return 0;
    }
    FrameBlock padding(uint64_t position, uint64_t length) {
        padding_.assign(length, 0);
        auto *frame = reinterpret_cast<FrameHeader *>(padding_.data());
        file_->write_header(frame, position, 0, 0);
        frame->word0.relaxed(pack_word0(static_cast<uint32_t>(length), flags_whole, FrameType::pad));
        FrameBlock block;
        block.data = padding_.data();
        block.length = length;
        return block;
    }

    std::vector<uint8_t> padding_; // in place of an open claim
};

class LogWriterEnd : public SlotEnd<WriterEnd, TermLog> {
  public:
    LogWriterEnd(int fd, std::string path, bool exclusive, std::shared_ptr<ManualClock> clock, Kind kind = Kind::log,
                 MemberName name = {})
        : SlotEnd(std::make_shared<TermLog>(fd, std::move(path), nullptr, kind)),
          writer_(file_, exclusive, std::move(clock), std::move(name)) {}
    LogWriterEnd(std::shared_ptr<TermLog> log, bool exclusive, std::shared_ptr<ManualClock> clock)
        : SlotEnd(std::move(log)), writer_(file_, exclusive, std::move(clock)) {}
    TermLog &log() { return *file_; }

    void interrupt() override { disturb_log(*file_); }
    Atomic<uint64_t> *wait_word() override { return &file_->me().counters.wait; }
    Atomic<uint32_t> &room() override { return file_->control().space.value; }
    void add_watches(WatchSet &at) override {
        file_->positions([&](const Atomic<uint64_t> &word) { at.add(word, word.relaxed()); });
    }
    Atomic<uint32_t> &members() override { return file_->control().space.value; }

    int64_t offer(const void *data, size_t length) override { return writer_.offer(data, length); }
    size_t offer_many(const IoVec *pieces, size_t count) override { return writer_.offer_many(pieces, count); }
    bool claim(size_t length, ClaimedRange &range) override {
        return !writer_.sending_fragments() && writer_.claim(static_cast<uint32_t>(length), writer_.open_index(), range);
    }
    int64_t commit(const ClaimedRange &range) override { return writer_.commit(range); }
    void abort(const ClaimedRange &range) override { writer_.abort(range); }

    // Copies large frames by copy_large(), each under its own claim word.
    bool advance(PendingSend &sending) override {
        while (sending.position == no_room) {
            const size_t left = sending.length - sending.done;
            if (left < large_copy) return writer_.send_some(sending);
            ClaimedRange range;
            if (!writer_.next_fragment(sending, range, writer_.open_index())) return false;
            copy_large(range.payload, sending.data + sending.done, range.length);
            writer_.finish_fragment(sending, range);
        }
        return true;
    }
    void give_up(PendingSend &sending) override { writer_.give_up(sending); }

    std::string why_full() const override {
        uint32_t pid = 0;
        uint64_t position = 0;
        if (!file_->slowest(pid, position) || position >= file_->tail()) return "another process keeps the lock of the log";
        return named_process(pid, locks().descriptor()) + " is " + std::to_string(file_->tail() - position) + " bytes behind";
    }
    size_t payload_max() const override { return writer_.payload_max(); }
    size_t message_max() const override { return size_t{1} << 30; }
    uint64_t position() const override { return writer_.position(); }
    int32_t session() const override { return writer_.session(); }
    uint32_t readers() override {
        uint32_t count = 0;
        file_->each_reader([&](const Slot &) { ++count; });
        return count;
    }
    uint64_t lag() override {
        const uint64_t tail = file_->tail();
        uint64_t most = 0;
        file_->each_reader([&](const Slot &s) {
            const uint64_t position = s.reader.position.relaxed(); // for people; nothing is cleaned by it
            if (position < tail) most = std::max(most, tail - position);
        });
        return most;
    }

  protected:
    void take_slot() override { writer_.join(); }
    virtual void copy_large(void *to, const void *from, size_t length) { copy_bytes(to, from, length); }

    LogWriter writer_;
};

} // namespace penstock
