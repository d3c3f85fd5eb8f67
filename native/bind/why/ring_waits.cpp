// Waits in a ring, and in a frames channel.
#include "bind/why/wait_facts.hpp"

#include "frames/frame_layout.hpp"
#include "ring/ring_layout.hpp"

namespace penstock::bind {

namespace {

class RingWaits {
  public:
    RingWaits(int fd, const Mapping &map, uint32_t slots)
        : slots_(fd, map, slots), count_(slots), fd_(fd),
          control_(*reinterpret_cast<const RingControl *>(map.bytes() + control_offset)) {}

    // `room(slot)`: for whom the publication in that slot waits. `held(slot)`: the frames that the subscription in that slot
    // leases.
    template <class Room, class Held> nb::list all(Room &&room, Held &&held) const {
        WaitFacts facts;
        const RingControl::Writer &writer = control_.writer;
        const bool publishes = writer.state.relaxed() == 1, lives = holds_member(fd_, lock_byte::writer);
        if (publishes)
            facts.add({count_, "publication", writer.pid.relaxed(), writer.joined_ns.relaxed(), !lives, {}, {}}, writer.wait,
                      [](WaitsFor) { return WaitReasons{}; });
        for (uint32_t i = 0; i < count_; ++i) {
            const RingSlot &s = slots_[i];
            const uint32_t state = s.identity.state.relaxed();
            if (state == 0) continue;
            const bool writes = state == slot_writes;
            WaitMember member{i,
                              writes ? "publication" : "subscription",
                              s.identity.pid.relaxed(),
                              s.identity.joined_ns.relaxed(),
                              !slots_.held(i),
                              {},
                              {}};
            if (const uint64_t frames = writes ? 0 : held(i); frames != 0) member.holds.emplace_back("frames", frames);
            facts.add(member, s.reader.wait, [&](WaitsFor what) {
                WaitReasons reasons;
                if (writes) {
                    if (what == WaitsFor::room) reasons = room(i);
                    add_lock_holder(reasons, control_.turn.lock, count_, i);
                    return reasons;
                }
                if (publishes) reasons.on.push_back({count_, "writes", 0});
                for (uint32_t other = 0; other < used(); ++other)
                    if (slots_[other].identity.state.relaxed() == slot_writes) reasons.on.push_back({other, "writes", 0});
                return reasons;
            });
        }
        return facts.members();
    }
    const RingSlot &slot(uint32_t i) const { return slots_[i]; }
    uint32_t used() const { return std::min(control_.used.value.relaxed(), count_); }

  private:
    const SlotTable<RingSlot> slots_;
    const uint32_t count_;
    const int fd_;
    const RingControl &control_;
};

// The buffers of a frames channel, and who keeps them.
class FrameWaits {
  public:
    FrameWaits(const Mapping &map, const PoolGeometry &geometry, const RingWaits &ring)
        : geometry_(geometry), ring_(ring),
          buffers_(reinterpret_cast<const FrameBuffer *>(map.bytes() + geometry.words_offset())),
          leases_(reinterpret_cast<const FrameLeases *>(map.bytes() + geometry.leases_offset())) {}

    uint64_t leased(uint32_t slot) const {
        uint64_t count = 0;
        for (uint32_t buffer = 0; buffer < geometry_.buffers; ++buffer) count += leases(slot, buffer);
        return count;
    }
    // A subscription that keeps every buffer has to move. If none does, any of those that keep some.
    WaitReasons for_room(uint32_t waiting) const {
        WaitReasons all, some;
        all.any = false;
        for (uint32_t slot = 0; slot < ring_.used(); ++slot) {
            const RingSlot &s = ring_.slot(slot);
            const uint32_t state = s.identity.state.relaxed();
            if (state == 0 || slot == waiting) continue;
            const bool waits = s.identity.waits.relaxed() != waits_never;
            const uint64_t position = s.reader.position.relaxed();
            uint64_t kept = 0, unread = 0;
            for (uint32_t buffer = 0; buffer < geometry_.buffers; ++buffer) {
                const bool to_read =
                    waits && buffers_[buffer].stamp.relaxed() != 0 && buffers_[buffer].position.relaxed() >= position;
                unread += to_read;
                kept += to_read || leases(slot, buffer);
            }
            if (kept == 0) continue;
            const WaitsOn one{slot,
                              state == slot_writes ? "fills"
                              : unread != 0        ? "unread"
                                                   : "leases",
                              unread != 0 ? unread : kept};
            (kept == geometry_.buffers ? all : some).on.push_back(one);
        }
        return all.on.empty() ? some : all;
    }

  private:
    bool leases(uint32_t slot, uint32_t buffer) const {
        return (leases_[slot].words[buffer / 64].relaxed() >> (buffer % 64) & 1) != 0;
    }

    const PoolGeometry &geometry_;
    const RingWaits &ring_;
    const FrameBuffer *buffers_;
    const FrameLeases *leases_;
};

} // namespace

nb::list ring_waits(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedRing ring = read_ring_header(map.bytes(), map.size(), path);
    return RingWaits(fd, map, ring.geometry.slot_count).all([](uint32_t) { return WaitReasons{}; }, [](uint32_t) { return 0; });
}

nb::list frames_waits(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedFrames frames = read_frames_header(map.bytes(), map.size(), path);
    const RingWaits ring(fd, map, frames.geometry.slot_count);
    const FrameWaits waits(map, frames.pool, ring);
    return ring.all([&](uint32_t slot) { return waits.for_room(slot); }, [&](uint32_t slot) { return waits.leased(slot); });
}

} // namespace penstock::bind
