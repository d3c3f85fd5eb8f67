// A subscription to a frames channel: reads notes and leases the buffers that they name. One thread at a time.
#pragma once

#include "frames/frame_pool.hpp"
#include "ring/ring_reader.hpp"

#include <vector>

namespace penstock {

// A frame whose buffer the reader leases until it gives it back.
struct Frame {
    FrameNote note;
    const uint8_t *data = nullptr;
    uint64_t sequence = 0;
    Message message;        // of the ring: position, time, session; its length is the frame's
    std::vector<char> rest; // behind the note

    uint64_t bytes() const { return message.length; }
    uint64_t size(uint32_t dimension) const { return word(1 + dimension); } // of a frame with a shape of its own
    std::string_view fields() const { return {rest.data() + note.shape_length(), rest.size() - note.shape_length()}; }
    uint64_t word(uint32_t number) const {
        uint64_t word = 0;
        std::memcpy(&word, rest.data() + number * sizeof word, sizeof word);
        return word;
    }
};

class FrameReader {
  public:
    // `waits`: whether publications wait until it has received a frame before they reuse its buffer, as waits_* say.
    FrameReader(std::shared_ptr<FramePool> pool, Start start, bool conflate, uint32_t waits = waits_never)
        : pool_(std::move(pool)), ring_(
                                      pool_->ring(), start, conflate,
                                      [this, waits] {
                                          // Below every start: a publication that waits for this subscription waits for all
                                          // frames until it has one.
                                          pool_->ring()->me().reader.position.relaxed(pool_->ring()->geometry().start_position);
                                          register_waiting(waits);
                                      },
                                      [this](RingReader &ring, uint64_t count) { go_back(ring, count); }),
          held_(pool_->geometry().buffers), waits_(waits), conflate_(conflate) {
        if (waits != waits_never) event_notify(pool_->room()); // a publication may sleep because there was no start yet
    }
    // In a forked child: its own slot; the leases stay its parent's.
    void rejoin() {
        ring_.rejoin([this] { register_waiting(waits_); });
        std::fill(held_.begin(), held_.end(), 0);
        leases_ = 0;
    }

    FramePool &pool() const { return *pool_; }
    RingReader &ring() { return ring_; }
    const RingReader &ring() const { return ring_; }
    uint32_t leases() const { return leases_; }

    // The next frame, leased. False: there is none yet. Frames that were recycled before they could be leased count as lost.
    bool consume(Frame &frame) {
        for (uint32_t attempt = 0; attempt < attempts_max; ++attempt) {
            if (!ring_.intact(ring_.position())) catch_up(); // the notes were lapped: frames behind them may still be there
            const Message *message = ring_.peek();
            if (message == nullptr) return false;
            const uint64_t sequence = ring_.peeked();
            if (!read(*message, sequence, frame)) continue; // overwritten meanwhile: the next look counts it
            ring_.pass();
            if (lease(frame.note.buffer, sequence)) {
                ring_.received(frame.message);
                return true;
            }
            // A frame of the past may be recycled by a publication that looked for subscriptions before this one joined.
            if (waits_ == waits_never || sequence >= future_) ring_.missed(frame.message);
            if (waits_ != waits_never) event_notify(pool_->room());
            catch_up();
        }
        return false;
    }

    // The newest frame there is, leased, whether or not it was taken before. False: there is none, or it is just being replaced.
    bool newest(Frame &frame) {
        uint64_t before = UINT64_MAX;
        for (;;) {
            Message message;
            uint64_t sequence = 0;
            if (!ring_.newest(message, sequence) || message.position == before) return false; // tried in vain already
            if (read(message, sequence, frame) && lease(frame.note.buffer, sequence)) return true;
            before = message.position;
        }
    }

    // ---- for the recorder: frames with their bytes, each in a cell of one size, so that a position says which frame it is ----

    uint64_t cell() const {
        const uint64_t bytes = pool_->geometry().frame_bytes;
        const uint64_t cell = pool_->geometry().cell();
        if (cell > INT32_MAX)
            throw Error(Code::invalid, pool_->where() + ": frames of " + std::to_string(bytes) +
                                           " bytes are too large to be recorded with their pixels: at most 2 GiB");
        return cell;
    }
    uint64_t cell_position() const { return cells_before(is_next_leased_ ? next_.sequence : ring_.sequence()); }
    // Bytes between here and the newest frame.
    uint64_t cell_lag() const {
        Message message;
        uint64_t number = 0;
        return ring_.newest(message, number) ? cells_before(number + 1) - cell_position() : 0;
    }
    bool cell_readable() const { return is_next_leased_ || pool_->ring()->readable(ring_.position()); }
    // The next frame's cell, copied to `buffer`. After a loss the run is empty and the position has moved: the frame comes next.
    FrameBlock cell_run(std::vector<uint8_t> &buffer) {
        FrameBlock run;
        const uint64_t expected = cell_position();
        if (!is_next_leased_ && !consume(next_)) return run;
        is_next_leased_ = cell_position_of(next_) != expected;
        if (is_next_leased_) return run;
        fill_cell(buffer, run);
        give_back(next_.note.buffer);
        return run;
    }

    // Publications continue without it: the handle was closed, though frames may still be leased.
    void stop_waiting() {
        if (waits_ == waits_never) return;
        pool_->ring()->me().identity.waits.relaxed(waits_never);
        event_notify(pool_->room());
    }
    void leave() {
        pool_->ring()->detach();
        if (waits_ != waits_never) event_notify(pool_->room());
    }

    void give_back(uint32_t buffer) {
        if (--held_[buffer] != 0) return;
        --leases_;
        drop(buffer);
    }

  private:
    uint64_t cells_before(uint64_t sequence) const { return (sequence - pool_->geometry().ring.start_sequence) * cell(); }
    uint64_t cell_position_of(const Frame &frame) const { return cells_before(frame.sequence); }
    void fill_cell(std::vector<uint8_t> &buffer, FrameBlock &run) {
        const uint64_t bytes = next_.bytes(), size = cell();
        if (next_.rest.size() > pool_->geometry().fields_max()) {
            give_back(next_.note.buffer);
            throw Error(Code::too_large, pool_->where() + ": frame " + std::to_string(next_.sequence) + " has " +
                                             std::to_string(next_.rest.size()) +
                                             " bytes of fields; recorded with its pixels it may have " +
                                             std::to_string(pool_->geometry().fields_max()));
        }
        Message message = next_.message;
        message.length = sizeof(FrameNote) + next_.rest.size() + bytes;
        buffer.assign(size, 0);
        uint8_t *to = buffer.data();
        write_frame_header(to, 0, 0, 0, &message);
        std::memcpy(to + header_length, &next_.note, sizeof(FrameNote));
        if (!next_.rest.empty()) std::memcpy(to + header_length + sizeof(FrameNote), next_.rest.data(), next_.rest.size());
        if (bytes != 0) std::memcpy(to + header_length + sizeof(FrameNote) + next_.rest.size(), next_.data, bytes);
        const uint64_t step = align_frame(message.length + header_length);
        if (step < size) write_frame_header(to + step, 0, 0, size - step, nullptr);
        run.data = buffer.data();
        run.length = size;
        run.begins = 1;
        run.payload = message.length;
        run.time_min = run.time_max = message.time_ns;
    }

    bool read(const Message &message, uint64_t sequence, Frame &frame) {
        uint8_t bytes[sizeof(FrameNote)];
        const bool whole = message.length >= sizeof bytes;
        if (whole) {
            copy_words_out(bytes, message.data, sizeof bytes);
            frame.rest.resize(message.length - sizeof bytes);
            copy_words_out(frame.rest.data(), message.data + sizeof bytes, frame.rest.size());
        }
        if (!ring_.intact(message.position)) return false;
        std::memcpy(&frame.note, bytes, sizeof bytes);
        const FrameNote &note = frame.note;
        if (!whole || note.buffer >= pool_->geometry().buffers || note.rest_length != frame.rest.size() ||
            note.shape_length() > note.rest_length)
            pool_->ring()->throw_corrupt(message.position);
        const uint64_t most = pool_->geometry().frame_bytes, length = note.dimensions == 0 ? most : frame.word(0);
        if (length > most) pool_->ring()->throw_corrupt(message.position);
        frame.message = message;
        frame.message.length = length;
        frame.sequence = sequence;
        frame.data = pool_->bytes(frame.note.buffer);
        return true;
    }

    // In a slot just taken, before the start is looked for.
    void register_waiting(uint32_t waits) {
        pool_->take_over(pool_->ring()->mine());
        if (waits == waits_never) return;
        pool_->ring()->me().identity.waits.relaxed(waits);
        // SYNC 32: pairs with FramePool::received; forbids looking for the newest frame and the end of the stream before this
        // subscription is visible: a publication could reuse the buffer of a frame that comes behind them
        full_fence();
    }

    // To the newest `count` frames, or to those whose buffers were not recycled, without one that is missing between.
    void go_back(RingReader &ring, uint64_t count) {
        std::vector<uint64_t> positions(std::min<uint64_t>(count, pool_->geometry().buffers));
        for (uint32_t attempt = 0; attempt < attempts_max; ++attempt) {
            Message newest;
            uint64_t number = 0;
            if (!ring.newest(newest, number)) break; // there is none yet, or a lap happened in between
            const uint64_t found = find_retained(number, positions);
            if (found == 0 || !ring.go_to(positions[found - 1], number - (found - 1))) continue;
            future_ = number + 1;
            return;
        }
        ring.go_to_end();
    }
    // On to the oldest frame from here on that is still in its buffer, in one step; those before it count as lost.
    void catch_up() {
        Message newest;
        uint64_t number = 0;
        if (conflate_ || !ring_.newest(newest, number) || number < ring_.sequence()) return;
        uint64_t furthest = 0, at = newest.position;
        for (uint32_t buffer = 0; buffer < pool_->geometry().buffers; ++buffer) {
            const uint64_t stamp = pool_->stamp(buffer).relaxed(), back = (frame_stamp(number) - stamp) >> 1;
            const uint64_t position = pool_->position(buffer).relaxed();
            if (stamp == 0 || back > number - ring_.sequence() || back < furthest || !ring_.intact(position)) continue;
            furthest = back;
            at = position;
        }
        const uint64_t oldest = number - furthest, first = waits_ == waits_never ? 0 : future_;
        const uint64_t from = std::max(ring_.sequence(), first);
        ring_.skip_to(at, oldest, oldest > from ? oldest - from : 0);
    }
    // Where the notes of frame `number` and those before it are, newest first, as far as all of them are kept; how many.
    uint64_t find_retained(uint64_t number, std::vector<uint64_t> &positions) const {
        constexpr uint64_t none = UINT64_MAX;
        std::fill(positions.begin(), positions.end(), none);
        for (uint32_t buffer = 0; buffer < pool_->geometry().buffers; ++buffer) {
            const uint64_t stamp = pool_->stamp(buffer).relaxed(), back = (frame_stamp(number) - stamp) >> 1;
            if (stamp != 0 && back < positions.size()) positions[back] = pool_->position(buffer).relaxed();
        }
        return static_cast<uint64_t>(std::find(positions.begin(), positions.end(), none) - positions.begin());
    }

    bool lease(uint32_t buffer, uint64_t sequence) {
        if (held_[buffer] == 0) {
            Atomic<uint64_t> &word = mine(buffer);
            // The word holds the bits of 64 buffers. A publication that reads this store may not have read an earlier one, by
            // which another buffer was given back: so this store releases that one's reads, too.
            // SYNC 16: pairs with FramePool::leased; forbids this store being visible before the reads of frames dropped earlier
            word.release(word.relaxed() | FramePool::bit(buffer));
            // SYNC 15: pairs with FrameWriter::recycle; forbids looking at the stamp before the bit is visible: the lease and the
            // recycling could both succeed
            full_fence();
        }
        if (pool_->stamp(buffer).relaxed() != frame_stamp(sequence)) {
            if (held_[buffer] == 0) drop(buffer);
            return false;
        }
        if (held_[buffer]++ == 0) ++leases_;
        return true;
    }
    void drop(uint32_t buffer) {
        Atomic<uint64_t> &word = mine(buffer);
        // SYNC 16: pairs with FramePool::leased; forbids the bit being clear before the reads of the frame are over
        word.release(word.relaxed() & ~FramePool::bit(buffer));
        event_notify(pool_->room());
    }
    Atomic<uint64_t> &mine(uint32_t buffer) const { return pool_->leases(pool_->ring()->mine(), buffer); }

    static constexpr uint32_t attempts_max = 64;

    std::shared_ptr<FramePool> pool_;
    RingReader ring_;
    std::vector<uint32_t> held_; // leases of each buffer through this reader
    uint32_t leases_ = 0;        // buffers held
    uint64_t future_ = 0;        // the first frame after those that were there when it joined
    const uint32_t waits_;
    const bool conflate_;
    Frame next_; // for the recorder, leased while held_back_
    bool is_next_leased_ = false;
};

} // namespace penstock
