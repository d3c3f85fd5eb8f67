// What a frames channel's file says: what its ring of notes says, and how many buffers readers hold.
#pragma once

#include "frames/frame_pool.hpp"
#include "status/ring_status.hpp"

namespace penstock {

inline ChannelStatus read_frame_status(int fd, const Mapping &map, const OpenedFrames &opened) {
    ChannelStatus status = read_ring_status(fd, map, opened);
    const PoolGeometry &g = opened.pool;
    const auto *slots = reinterpret_cast<const RingSlot *>(map.bytes() + slots_offset);
    const auto *leases = reinterpret_cast<const FrameLeases *>(map.bytes() + g.leases_offset());
    for (uint32_t buffer = 0; buffer < g.buffers; ++buffer) {
        bool taken = false;
        for (uint32_t slot = 0; slot < opened.geometry.slot_count && !taken; ++slot)
            if (slots[slot].identity.state.relaxed() != slot_writes)
                // SYNC -: for people; nothing is written to the buffer
                taken = (leases[slot].words[buffer / 64].acquire() & FramePool::bit(buffer)) != 0;
        status.buffers_leased += taken ? 1u : 0u;
    }
    return status;
}

} // namespace penstock
