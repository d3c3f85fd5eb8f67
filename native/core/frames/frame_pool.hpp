// The frame pool: large buffers that are handed over by reference. A ring carries notes that say which buffer holds which
// frame. A reader leases the buffer of a frame, and a leased buffer is not written to. This file knows the shared words;
// frame_writer.hpp and frame_reader.hpp move frames.
// After VisionIPC, with leases in place of counts that a dead reader would leave behind, and hazard pointers (Michael, 2004) in
// place of shared counters. Layout, orders and crash table: docs/design/frame_pool.md.
#pragma once

#include "frames/frame_layout.hpp"
#include "ring/ring.hpp"

namespace penstock {

class FramePool {
  public:
    // Borrows `fd` for the call. `map`: a mapping to share with other handles of this process, instead of a separate one.
    FramePool(int fd, const std::string &path, std::shared_ptr<Mapping> map = nullptr)
        : map_(map ? std::move(map) : std::make_shared<Mapping>(fd, size_of_file(fd), true)),
          opened_(read_frames_header(map_->bytes(), map_->size(), path)), geometry_(opened_.pool),
          ring_(std::make_shared<Ring>(fd, path, map_, &opened_)),
          buffers_(reinterpret_cast<FrameBuffer *>(map_->bytes() + geometry_.words_offset())),
          leases_(reinterpret_cast<FrameLeases *>(map_->bytes() + geometry_.leases_offset())) {}

    // A subscription's: its mapping only reads the notes and the frames from now on.
    void make_read_only() {
        map_->protect(ring_data_offset(geometry_.ring.slot_count), geometry_.leases_offset());
        map_->protect(geometry_.buffers_page(), geometry_.buffers_end());
    }

    const PoolGeometry &geometry() const { return geometry_; }
    const OpenedFrames &opened() const { return opened_; }
    const std::shared_ptr<Ring> &ring() const { return ring_; }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    const std::string &path() const { return ring_->path(); }
    const std::string &where() const { return ring_->where(); } // for errors
    Atomic<uint32_t> &room() const { return ring_->control().room.value; }

    uint8_t *bytes(uint32_t buffer) const { return map_->bytes() + geometry_.buffers_offset() + buffer * geometry_.stride(); }
    Atomic<uint64_t> &stamp(uint32_t buffer) const { return buffers_[buffer].stamp; }
    Atomic<uint64_t> &position(uint32_t buffer) const { return buffers_[buffer].position; }
    Atomic<uint64_t> &leases(uint32_t slot, uint32_t buffer) const { return leases_[slot].words[buffer / 64]; }
    static uint64_t bit(uint32_t buffer) { return uint64_t{1} << (buffer % 64); }

    // Whether a subscription leases this buffer, or may be about to.
    bool leased(uint32_t buffer) const {
        for (uint32_t slot = 0, end = used(); slot < end; ++slot)
            // SYNC 16: pairs with FrameReader::drop, FrameReader::lease, FrameWriter::let_go, FramePool::clear_leases; forbids
            // writing to the buffer before the look: the last reads of its old frame would see new bytes
            if ((leases(slot, buffer).acquire() & bit(buffer)) != 0) return true;
        return false;
    }
    uint32_t leased_count() const {
        uint32_t count = 0;
        for (uint32_t buffer = 0; buffer < geometry_.buffers; ++buffer) count += leased(buffer) ? 1u : 0u;
        return count;
    }

    // The stream's position below which every frame was received or passed over by all subscriptions that publications wait for.
    // A subscription that is not seen here begins at the end of the stream, behind all of it, or with frames before that end: so
    // the publication looks again each time before it takes a buffer. `opened`: the publication was opened to wait for all that
    // read every frame.
    uint64_t received(bool opened) const {
        uint64_t least = ring_->write_position();
        // SYNC 32: pairs with FrameReader::register_waiting; forbids looking for subscriptions before the frames below `least`
        // are published: one that is not seen could begin before them
        full_fence();
        const bool waits = opened || has_waiting_readers();
        for (uint32_t slot = 0, end = used(); slot < end; ++slot) {
            const RingSlot &s = ring_->slot(slot);
            if (!waited_for(s, waits, opened)) continue;
            // A frame that was received is leased before the position says so, and the fences of SYNC 15 stand between the two
            // on both sides.
            least = std::min(least, s.reader.position.relaxed());
        }
        return least;
    }

    // The participant for which publications wait: its process, the frames that it has yet to receive, the buffers that it
    // leases, or fills as a publication. False if there is none other than this one.
    struct SlowReader {
        uint32_t pid = 0, unread = 0, leased = 0;
        bool fills = false;
    };
    bool slowest(SlowReader &slowest, bool opened) const {
        const bool waiting = opened || has_waiting_readers();
        for (uint32_t slot = 0, end = used(); slot < end; ++slot) {
            const RingSlot &s = ring_->slot(slot);
            if (slot == ring_->mine()) continue;
            SlowReader one{s.identity.pid.relaxed()};
            one.fills = s.identity.state.relaxed() == slot_writes;
            const bool waits = waited_for(s, waiting, opened);
            for (uint32_t buffer = 0; buffer < geometry_.buffers; ++buffer) {
                const bool full = stamp(buffer).relaxed() != 0;
                one.unread += full && waits && position(buffer).relaxed() >= s.reader.position.relaxed() ? 1u : 0u;
                one.leased += (leases(slot, buffer).relaxed() & bit(buffer)) != 0 ? 1u : 0u;
            }
            if (one.unread + one.leased > slowest.unread + slowest.leased) slowest = one;
        }
        return slowest.pid != 0;
    }

    // Gives back what the dead leased, and ends the wait for them. True if there were any.
    bool reap_leases() {
        bool found = false;
        for (uint32_t slot = 0, end = used(); slot < end; ++slot) {
            if (!has_leases(slot) && ring_->slot(slot).identity.waits.relaxed() == 0) continue;
            found = ring_->reap(slot, [&] { clear_leases(slot); }) || found;
        }
        return found;
    }

    // For a participant that has just taken this slot: ends the leases of a dead owner before it.
    void take_over(uint32_t slot) {
        const bool leased = has_leases(slot);
        clear_leases(slot);
        if (leased) event_notify(room());
        Atomic<uint32_t> &word = ring_->control().used.value;
        // SYNC -: only its value counts; before a buffer of this slot is leased or recycled a full fence orders it (SYNC 15)
        for (uint32_t seen = word.relaxed(); seen < slot + 1 && !word.cas(seen, slot + 1);) {
        }
    }

    // A publication goes: the buffers that it has open are free.
    void leave() {
        if (!ring_->attached()) return;
        clear_leases(ring_->mine());
        ring_->detach();
        event_notify(room());
    }

  private:
    static bool waited_for(const RingSlot &slot, bool waits, bool opened) {
        const uint32_t how = slot.identity.waits.relaxed();
        return how == waits_always || (how == waits_with_others && waits) || (how == waits_where_opened && opened);
    }
    bool has_waiting_readers() const {
        for (uint32_t slot = 0, end = used(); slot < end; ++slot)
            if (ring_->slot(slot).identity.waits.relaxed() == waits_always) return true;
        return false;
    }
    uint32_t used() const { return ring_->used(); }
    uint32_t words() const { return (geometry_.buffers + 63) / 64; }
    bool has_leases(uint32_t slot) const {
        for (uint32_t word = 0; word < words(); ++word)
            if (leases_[slot].words[word].relaxed() != 0) return true;
        return false;
    }
    void clear_leases(uint32_t slot) {
        // SYNC 16: pairs with FramePool::leased; forbids the bits being clear before the last writes of a publication that
        // closes, or that died and was reaped here: a third one may take the buffer
        for (uint32_t word = 0; word < words(); ++word) leases_[slot].words[word].release(0);
    }

    std::shared_ptr<Mapping> map_;
    const OpenedFrames opened_;
    const PoolGeometry geometry_;
    std::shared_ptr<Ring> ring_;
    FrameBuffer *const buffers_;
    FrameLeases *const leases_;
};

} // namespace penstock
