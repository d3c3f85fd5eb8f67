// The ring's two ends.
#pragma once

#include "ends/ends.hpp"

#include "ring/ring_reader.hpp"
#include "ring/ring_writer.hpp"

namespace penstock {

class RingWatched final : public Waitable {
  public:
    RingWatched(std::shared_ptr<Ring> ring, bool until_end) : ring_(std::move(ring)), until_end_(until_end) {}
    Atomic<uint32_t> &event() override { return ring_->control().data.value; }
    bool readable(uint64_t position) const override {
        return ring_->readable(position) || (until_end_ && ring_->has_lost_writer(gone_, false));
    }
    // No reader can see the half-written frames of a dead publication.
    bool stalled(uint64_t) const override { return until_end_ && rate_limit_.allows() && ring_->has_lost_writer(gone_, true); }
    bool settled(uint64_t) const override { return !until_end_; }

  private:
    std::shared_ptr<Ring> ring_;
    const bool until_end_;
    mutable RateLimit rate_limit_; // the bridge's thread
    mutable uint32_t gone_ = 0;
};

inline void disturb_ring(Ring &ring) {
    event_interrupt(ring.control().data.value);
    event_interrupt(ring.control().members.value);
}

// The reader of a ring: messages, or notes of frames.
class RingReading : public SlotEnd<ReaderEnd, Ring>, public Lender, public RunSource {
  public:
    void interrupt() final { disturb_ring(*file_); }
    Atomic<uint32_t> &event() final { return file_->control().data.value; }
    bool settled() const final { return true; }
    std::shared_ptr<Waitable> watched(bool until_end) final { return std::make_shared<RingWatched>(file_, until_end); }
    // Nothing can be unread that was sent before the last publication went: this looks for that first, and for messages then.
    bool ended() final { return file_->has_lost_writer(gone_, rate_limit_.allows()) && !readable(); }
    void add_watches(WatchSet &at) final { at.add(file_->frame(notes_->position())->word0, 0); }

    const Message *peek() final { return notes_->peek(); }
    bool copy(void *to, const Message &message) final { return notes_->copy(to, message); }
    void consume() final { notes_->consume(); }
    bool fill(BatchBuilder &batch, int64_t limit, size_t most, Message &last) final {
        return fill_batch(*notes_, batch, limit, most, last, [&](const BatchRow &row, const Message &message) {
            return batch.add_copied(row, message.length, [&](uint8_t *to) { return notes_->copy(to, message); });
        });
    }

    Lender &lender() final { return *this; }
    void fetch(void *to, const Message &message) const final { copy_words_out(to, message.data, message.length); }
    void lend(const Message &) final { notes_->pass(); }
    bool intact(const Message &message) final {
        const bool intact = notes_->intact(message.position);
        if (intact) notes_->received(message);
        else notes_->missed(message);
        return intact;
    }
    bool lends_stable_bytes() const final { return false; }

    LatencySlot *latency() final {
        const auto map = mapping();
        return latency_of(map->bytes(), map->size(), file_->geometry().slot_count, file_->mine());
    }

    Atomic<uint64_t> *wait_word() final { return &file_->me().reader.wait; }
    RunSource *runs() final { return this; }
    bool skips() const final { return true; }

    uint64_t lost() const override { return notes_->lost_bytes(); }
    int64_t lost_messages() const final { return static_cast<int64_t>(notes_->lost_messages()); }
    uint64_t conflated() const final { return notes_->conflated(); }
    uint64_t restarts() const final { return notes_->restarts(); }

  protected:
    using SlotEnd::SlotEnd;

    RingReader *notes_ = nullptr; // the derived object's own, once it is there
    std::vector<uint8_t> buffer_; // of a recorder's runs

  private:
    RateLimit rate_limit_;
    uint32_t gone_ = 0;
};

class RingReaderEnd final : public RingReading {
  public:
    RingReaderEnd(int fd, std::string path, Start start, bool conflate)
        : RingReading(std::make_shared<Ring>(fd, std::move(path))), reader_(file_, start, conflate) {
        notes_ = &reader_;
        file_->make_read_only();
    }
    // `ring` has its slot already.
    RingReaderEnd(std::shared_ptr<Ring> ring, bool conflate)
        : RingReading(std::move(ring)), reader_(file_, conflate, RingReader::Early{}) {
        notes_ = &reader_;
        file_->make_read_only();
    }

    bool readable() const override { return file_->readable(reader_.position()); }
    FrameBlock run(uint64_t max) override { return reader_.run(max, buffer_); }
    uint64_t position() const override { return reader_.position(); }
    uint64_t lag() const override { return reader_.lag(); }

  private:
    void take_slot() override { reader_.rejoin(); }

    RingReader reader_;
};

// The writer of a ring: of messages, or of frames' notes.
class RingWriting : public SlotEnd<WriterEnd, Ring> {
  public:
    using SlotEnd::SlotEnd;
    void interrupt() override { disturb_ring(*file_); }
    Atomic<uint64_t> *wait_word() override { return &file_->control().writer.wait; }
    Atomic<uint32_t> &members() final { return file_->control().members.value; }
    uint32_t readers() final { return file_->readers(); }
    uint64_t lag() final { return file_->lag(); }
};

class RingWriterEnd final : public RingWriting {
  public:
    RingWriterEnd(int fd, std::string path, std::shared_ptr<ManualClock> clock)
        : RingWriting(std::make_shared<Ring>(fd, std::move(path))), writer_(file_, std::move(clock)) {}

    Atomic<uint32_t> &room() override { return members(); }

    int64_t offer(const void *data, size_t length) override { return static_cast<int64_t>(writer_.offer(data, length)); }
    size_t offer_many(const IoVec *pieces, size_t count) override {
        writer_.offer_many(pieces, count);
        return count;
    }
    bool claim(size_t length, ClaimedRange &range) override {
        range = writer_.claim(length);
        return true;
    }
    int64_t commit(const ClaimedRange &range) override { return static_cast<int64_t>(writer_.commit(range)); }
    void abort(const ClaimedRange &range) override { writer_.abort(range); }

    size_t payload_max() const override { return writer_.payload_max(); }
    uint64_t position() const override { return writer_.position(); }
    int32_t session() const override { return static_cast<int32_t>(writer_.session()); }

  private:
    void take_slot() override { writer_.join(); }

    RingWriter writer_;
};

} // namespace penstock
