// The two ends of a frames channel. A message here is a frame's note.
#pragma once

#include "ends/ring_ends.hpp"
#include "ground/members/process_name.hpp"

#include "frames/frame_reader.hpp"
#include "frames/frame_writer.hpp"

namespace penstock {

class FrameReaderEnd final : public RingReading {
  public:
    // `pixels`: for a recorder, that gets them with the notes; positions then count their bytes too.
    // `waits`: whether publications wait for it, as waits_* say.
    FrameReaderEnd(int fd, const std::string &path, Start start, bool conflate, uint32_t waits, bool pixels)
        : FrameReaderEnd(std::make_shared<FramePool>(fd, path), start, conflate, waits, pixels) {}
    ~FrameReaderEnd() override { reader_.leave(); }

    bool consume(Frame &frame) { return reader_.consume(frame); }
    using RingReading::consume;
    bool newest(Frame &frame) { return reader_.newest(frame); }
    size_t frame_bytes() const { return pool_->geometry().frame_bytes; }
    // A lease ended: the slot was kept for it if the handle was closed.
    void give_back(uint32_t buffer) {
        reader_.give_back(buffer);
        if (leaving_ && reader_.leases() == 0) reader_.leave();
    }
    using RingReading::give_back;
    uint32_t leases() const { return reader_.leases(); }

    std::shared_ptr<Mapping> mapping() const override { return pool_->mapping(); }
    void leave() override {
        leaving_ = true;
        if (reader_.leases() == 0 || file_->forked()) reader_.leave();
        else reader_.stop_waiting();
    }
    bool readable() const override { return pixels_ ? reader_.cell_readable() : file_->readable(notes_->position()); }
    FrameBlock run(uint64_t max) override { return pixels_ ? reader_.cell_run(buffer_) : notes_->run(max, buffer_); }
    uint64_t position() const override { return pixels_ ? reader_.cell_position() : notes_->position(); }
    uint64_t lag() const override { return pixels_ ? reader_.cell_lag() : notes_->lag(); }
    uint64_t lost() const override { return notes_->lost_messages() * frame_bytes(); }

  private:
    void take_slot() override { reader_.rejoin(); }
    FrameReaderEnd(std::shared_ptr<FramePool> pool, Start start, bool conflate, uint32_t waits, bool pixels)
        : RingReading(pool->ring()), pool_(pool), reader_(std::move(pool), start, conflate, waits), pixels_(pixels) {
        notes_ = &reader_.ring();
        pool_->make_read_only();
        if (pixels) reader_.cell(); // throws if they are too large
    }

    std::shared_ptr<FramePool> pool_;
    FrameReader reader_;
    const bool pixels_;
    bool leaving_ = false;
};

class FrameWriterEnd final : public RingWriting {
  public:
    FrameWriterEnd(int fd, const std::string &path, std::shared_ptr<ManualClock> clock, bool waits)
        : FrameWriterEnd(std::make_shared<FramePool>(fd, path), std::move(clock), waits) {}

    ~FrameWriterEnd() override { writer_.leave(); }
    std::shared_ptr<Mapping> mapping() const override { return pool_->mapping(); }
    void interrupt() override {
        RingWriting::interrupt();
        event_interrupt(pool_->room());
    }
    Atomic<uint32_t> &room() override { return pool_->room(); }

    int64_t offer(const void *data, size_t length) override {
        ClaimedRange range;
        if (!claim(length, range)) return no_room;
        copy_bytes(range.payload, data, length);
        return commit(range);
    }
    size_t offer_many(const IoVec *pieces, size_t count) override {
        for (size_t i = 0; i < count; ++i)
            if (offer(pieces[i].data, pieces[i].length) == no_room) return i;
        return count;
    }
    bool claim(size_t length, ClaimedRange &range) override {
        if (length != payload_max())
            throw Error(Code::invalid, where() + ": a frame here has " + std::to_string(payload_max()) + " bytes, not " +
                                           std::to_string(length));
        const uint32_t buffer = writer_.take_buffer();
        if (buffer == no_buffer) return false;
        open_fields_[buffer] = {};
        open_fields_[buffer].bytes = length;
        range = {pool_->bytes(buffer), position(), 0, buffer, flags_whole};
        return true;
    }
    void describe(const ClaimedRange &range, FrameFields given) override {
        if (given.sizes.empty()) given.bytes = payload_max();
        if (given.bytes > payload_max() || given.sizes.size() > dimensions_max)
            throw Error(Code::invalid, where() + ": a frame here has at most " + std::to_string(payload_max()) + " bytes and " +
                                           std::to_string(dimensions_max) + " dimensions");
        const size_t words = given.sizes.empty() ? 0 : given.sizes.size() + 1;
        writer_.check_meta(words * sizeof(uint64_t) + given.fields.size());
        open_fields_[range.index] = std::move(given);
    }
    int64_t commit(const ClaimedRange &range) override {
        const FrameFields &given = open_fields_[range.index];
        FrameNote note;
        note.id = given.id.value_or(0);
        note.start_ns = given.start_ns;
        note.end_ns = given.end_ns;
        note.dtype = given.dtype;
        note.dimensions = static_cast<uint8_t>(given.sizes.size());
        rest_.clear();
        if (note.dimensions != 0) {
            append_word(given.bytes);
            for (const uint64_t size : given.sizes) append_word(size);
        }
        rest_ += given.fields;
        note.rest_length = static_cast<uint32_t>(rest_.size());
        return static_cast<int64_t>(writer_.publish(range.index, note, rest_.data(), given.bytes, !given.id));
    }
    void abort(const ClaimedRange &range) override {
        writer_.give_back(range.index);
        event_notify(pool_->room()); // another thread of this publication may wait for it
    }

    std::string why_full() const override {
        FramePool::SlowReader one;
        if (!pool_->slowest(one, writer_.waits())) return "every buffer is being filled";
        std::string text = named_process(one.pid, locks().descriptor());
        if (one.fills)
            return text + " is filling " + std::to_string(one.leased) + " of the " + std::to_string(pool_->geometry().buffers) +
                   " buffers";
        if (one.unread != 0) text += " has " + std::to_string(one.unread) + " frames yet to receive";
        if (one.unread != 0 && one.leased != 0) text += " and";
        if (one.leased != 0) text += " holds a lease on " + std::to_string(one.leased);
        return text + " of the " + std::to_string(pool_->geometry().buffers) + " buffers";
    }
    size_t payload_max() const override { return pool_->geometry().frame_bytes; }
    uint64_t position() const override { return pool_->ring()->write_position(); }
    int32_t session() const override { return static_cast<int32_t>(writer_.ring().session()); }
    Atomic<uint64_t> *wait_word() override { return &file_->me().reader.wait; }
    void leave() override { writer_.leave(); }

  private:
    FrameWriterEnd(std::shared_ptr<FramePool> pool, std::shared_ptr<ManualClock> clock, bool waits)
        : RingWriting(pool->ring()), pool_(std::move(pool)), writer_(pool_, std::move(clock), waits),
          open_fields_(pool_->geometry().buffers) {}
    void take_slot() override { writer_.join(); }

    void append_word(uint64_t word) { rest_.append(reinterpret_cast<const char *>(&word), sizeof word); }

    std::shared_ptr<FramePool> pool_;
    FrameWriter writer_;
    std::vector<FrameFields> open_fields_; // of the buffers that are open
    std::string rest_;                     // of the note that is sent
};

} // namespace penstock
