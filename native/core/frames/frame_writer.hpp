// A publication of a frames channel. One thread at a time. Hands out buffers that nobody leases, and publishes them. Of several
// publications, one at a time has the turn to do so; a buffer that is being filled is leased by its publication.
#pragma once

#include "frames/frame_pool.hpp"
#include "ring/ring_writer.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace penstock {

inline constexpr uint32_t no_buffer = UINT32_MAX;

class FrameWriter {
  public:
    // `waits`: for all subscriptions that read every frame, and not only for those that ask for it.
    FrameWriter(std::shared_ptr<FramePool> pool, std::shared_ptr<ManualClock> clock, bool waits = false)
        : pool_(std::move(pool)), ring_(pool_->ring(), std::move(clock), [this] { pool_->take_over(pool_->ring()->mine()); }),
          waits_(waits) {
        begin();
    }
    void join() {
        ring_.join_others([this] { pool_->take_over(pool_->ring()->mine()); });
        begin();
    }
    void leave() { pool_->leave(); }

    FramePool &pool() const { return *pool_; }
    bool waits() const { return waits_; }
    RingWriter &ring() { return ring_; }
    const RingWriter &ring() const { return ring_; }
    size_t meta_max() const { return pool_->geometry().fields_max(); }

    // A buffer that nobody leases, or no_buffer while all are leased or open, or another publication keeps the turn. The oldest
    // frame goes first, the newest last.
    uint32_t take_buffer() {
        const uint32_t buffer = try_take();
        return buffer != no_buffer || !pool_->reap_leases() ? buffer : try_take();
    }

    // The stream position after its note. `rest`: what follows the note. `bytes`: of the frame.
    // `numbered`: the frame's number is its id. Throws `busy` if another publication keeps the turn; the buffer is free then.
    uint64_t publish(uint32_t buffer, FrameNote note, const void *rest, uint64_t bytes, bool numbered = false) {
        check_meta(note.rest_length);
        note.buffer = static_cast<uint16_t>(buffer);
        note_.resize(sizeof note + note.rest_length);
        if (note.rest_length != 0) std::memcpy(note_.data() + sizeof note, rest, note.rest_length);
        uint64_t position = 0;
        const bool sent = in_turn(Ring::patience_to_send_ns, [&] {
            if (numbered) note.id = ring_.sequence();
            std::memcpy(note_.data(), &note, sizeof note);
            pool_->position(buffer).relaxed(ring_.position());
            pool_->stamp(buffer).relaxed(frame_stamp(ring_.sequence()));
            position = ring_.offer(note_.data(), note_.size(), bytes); // SYNC 9 releases the frame's bytes and its stamp
            let_go(buffer);
            order_.push_back(buffer);
        });
        if (!sent) {
            give_back(buffer);
            throw Error(Code::busy, pool_->ring()->no_turn());
        }
        RingSlot::Reader &mine = pool_->ring()->me().reader;
        mine.sent_messages.increment(1);
        mine.sent_bytes.increment(bytes);
        if (std::exchange(others_, false)) event_notify(pool_->room()); // one may wait for the buffer
        return position;
    }
    // The buffer goes back unpublished.
    void give_back(uint32_t buffer) {
        let_go(buffer);
        order_.insert(order_.begin(), buffer);
    }

    void check_meta(size_t length) const {
        if (length > meta_max())
            throw Error(Code::too_large, pool_->where() + ": a frame's fields take " + std::to_string(length) +
                                             " bytes, with its header and its sizes; here up to " + std::to_string(meta_max()) +
                                             " fit");
    }

  private:
    // In a slot just taken: goes on where others have stopped.
    void begin() {
        try {
            if (!in_turn(Ring::patience_to_send_ns, [] {})) throw Error(Code::busy, pool_->ring()->no_turn());
        } catch (...) {
            leave();
            throw;
        }
    }
    // Does `work` as the only publication that does. If another one did since the last time, it first goes on from there. False:
    // another one keeps the turn.
    template <class Work> bool in_turn(int64_t patience_ns, Work &&work) {
        Ring &ring = *pool_->ring();
        if (!ring.take_turn(patience_ns)) return false;
        const RobustLockGuard held(ring.control().turn.lock);
        if (!ring.had_last_turn()) {
            go_on();
            ring.note_turn(); // it may die at any instruction: whoever is next goes on again
        }
        work();
        return true;
    }
    // A stamp without a note was left by a publication that died between the two.
    void go_on() {
        ring_.go_on();
        for (uint32_t buffer = 0; buffer < pool_->geometry().buffers; ++buffer)
            if (pool_->position(buffer).relaxed() >= ring_.position()) pool_->stamp(buffer).relaxed(0);
        arranged_ = false;
        others_ = true;
    }
    // The buffers that this publication has not open, in the order in which they are to be used: those that hold nothing, then by
    // age. Numbers may wrap.
    void arrange() {
        const uint64_t next = frame_stamp(ring_.sequence());
        order_.clear();
        for (uint32_t buffer = 0; buffer < pool_->geometry().buffers; ++buffer)
            if ((mine(buffer).relaxed() & FramePool::bit(buffer)) == 0) order_.push_back(buffer);
        ages_.resize(pool_->geometry().buffers);
        for (const uint32_t buffer : order_) {
            const uint64_t stamp = pool_->stamp(buffer).relaxed();
            ages_[buffer] = stamp == 0 ? UINT64_MAX : next - stamp;
        }
        std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return ages_[a] > ages_[b]; });
        arranged_ = true;
    }

    uint32_t try_take() {
        uint32_t buffer = no_buffer;
        in_turn(patience_to_take_ns, [&] {
            if (!arranged_) arrange();
            buffer = find();
            // Only a publication that has the turn looks for this bit, to reuse the buffer; so the turn's lock orders it.
            if (buffer != no_buffer) mine(buffer).relaxed(mine(buffer).relaxed() | FramePool::bit(buffer));
        });
        return buffer;
    }
    void let_go(uint32_t buffer) {
        // SYNC 16: pairs with FramePool::leased; forbids the bit being clear before the last writes to the buffer
        mine(buffer).release(mine(buffer).relaxed() & ~FramePool::bit(buffer));
    }
    Atomic<uint64_t> &mine(uint32_t buffer) const { return pool_->leases(pool_->ring()->mine(), buffer); }

    uint32_t find() {
        const uint64_t received = pool_->received(waits_);
        for (size_t i = 0; i < order_.size(); ++i) {
            const uint32_t buffer = order_[i];
            const bool full = pool_->stamp(buffer).relaxed() != 0;
            if (full && pool_->position(buffer).relaxed() >= received) break; // awaited; those behind it are younger
            if (!recycle(buffer)) continue;
            order_.erase(order_.begin() + static_cast<ptrdiff_t>(i));
            return buffer;
        }
        return no_buffer;
    }

    // Takes the frame out of a buffer, unless somebody leases it. The stamp changes first and the leases are looked at
    // afterwards, as on the other side of a hazard pointer: a reader sets its bit first and looks at the stamp afterwards.
    bool recycle(uint32_t buffer) {
        if (pool_->leased(buffer)) return false;
        Atomic<uint64_t> &stamp = pool_->stamp(buffer);
        const uint64_t held = stamp.relaxed();
        stamp.relaxed(0);
        // SYNC 15: pairs with FrameReader::lease; forbids looking at the leases before the stamp's 0 is visible: the lease and
        // the recycling could both succeed
        full_fence();
        if (!pool_->leased(buffer)) return true;
        stamp.relaxed(held);
        return false;
    }

    std::shared_ptr<FramePool> pool_;
    RingWriter ring_;
    std::vector<uint32_t> order_; // buffers that it has not open, in the order of their use
    std::vector<uint64_t> ages_;
    std::vector<uint8_t> note_;
    bool arranged_ = false; // whether `order_` is still true
    bool others_ = false;   // another publication had the turn since this one woke others last
    const bool waits_;

    static constexpr int64_t patience_to_take_ns = 1'000'000; // whoever waits for room tries again
};

} // namespace penstock
