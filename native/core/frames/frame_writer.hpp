// The publication of a frames channel. One thread at a time. Hands out buffers that no reader leases, and publishes them.
#pragma once

#include "frames/frame_pool.hpp"
#include "ring/ring_writer.hpp"

#include <vector>

namespace penstock {

inline constexpr uint32_t no_buffer = UINT32_MAX;

class FrameWriter {
  public:
    // `waits`: for all subscriptions that read every frame, and not only for those that ask for it.
    FrameWriter(std::shared_ptr<FramePool> pool, std::shared_ptr<ManualClock> clock, bool waits = false)
        : pool_(std::move(pool)), ring_(pool_->ring(), std::move(clock)), waits_(waits) {
        arrange();
    }
    void join() {
        ring_.join();
        arrange();
    }

    FramePool &pool() const { return *pool_; }
    bool waits() const { return waits_; }
    RingWriter &ring() { return ring_; }
    const RingWriter &ring() const { return ring_; }
    size_t meta_max() const { return pool_->geometry().fields_max(); }

    // A buffer that no reader leases, or no_buffer while all are leased or open. The oldest frame goes first, the newest last.
    uint32_t take_buffer() {
        const uint32_t buffer = find();
        return buffer != no_buffer || !pool_->reap_leases() ? buffer : find();
    }

    // The stream position after its note. `rest`: what follows the note. `bytes`: of the frame.
    uint64_t publish(uint32_t buffer, FrameNote note, const void *rest, uint64_t bytes) {
        check_meta(note.rest_length);
        note.buffer = static_cast<uint16_t>(buffer);
        note_.resize(sizeof note + note.rest_length);
        std::memcpy(note_.data(), &note, sizeof note);
        if (note.rest_length != 0) std::memcpy(note_.data() + sizeof note, rest, note.rest_length);
        pool_->position(buffer).relaxed(ring_.position());
        pool_->stamp(buffer).relaxed(frame_stamp(ring_.sequence()));
        const uint64_t position =
            ring_.offer(note_.data(), note_.size(), bytes); // SYNC 9 releases the frame's bytes and its stamp
        order_.push_back(buffer);
        return position;
    }
    // The buffer goes back unpublished.
    void give_back(uint32_t buffer) { order_.insert(order_.begin(), buffer); }

    void check_meta(size_t length) const {
        if (length > meta_max())
            throw Error(Code::too_large, pool_->where() + ": a frame's fields take " + std::to_string(length) +
                                             " bytes, with its header and its sizes; here up to " + std::to_string(meta_max()) +
                                             " fit");
    }

  private:
    // The buffers in the order in which they are to be used: those that hold nothing, then by age. Numbers may wrap. A stamp
    // without a note was left by a publication that died between the two.
    void arrange() {
        for (uint32_t buffer = 0; buffer < pool_->geometry().buffers; ++buffer)
            if (pool_->position(buffer).relaxed() >= ring_.position()) pool_->stamp(buffer).relaxed(0);
        const uint64_t next = frame_stamp(ring_.sequence());
        order_.resize(pool_->geometry().buffers);
        for (uint32_t buffer = 0; buffer < order_.size(); ++buffer) order_[buffer] = buffer;
        std::vector<uint64_t> ages;
        for (const uint32_t buffer : order_) {
            const uint64_t stamp = pool_->stamp(buffer).relaxed();
            ages.push_back(stamp == 0 ? UINT64_MAX : next - stamp);
        }
        std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return ages[a] > ages[b]; });
    }

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

    // Takes the frame out of a buffer, unless a reader leases it. The stamp changes first and the leases are looked at
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
    std::vector<uint32_t> order_; // buffers that are not open, in the order of their use
    std::vector<uint8_t> note_;
    const bool waits_;
};

} // namespace penstock
