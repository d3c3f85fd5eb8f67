// The header of a ring's file, for ring channels and for the ring of notes under a frames channel.
#pragma once

#include "bind/ground/status.hpp"

#include "status/ring_status.hpp"

namespace penstock::bind {

inline nb::dict describe_ring(const OpenedRing &ring, const ChannelStatus &status) {
    const RingGeometry &g = ring.geometry;
    nb::dict about;
    describe_common(about, ring, g.capacity, g.slot_count, g.start_position, g.epoch, g.max_frame());
    about["initial_term_id"] = 0;
    about["stream_id"] = 1;
    about["start_sequence"] = g.start_sequence;
    about["limit"] = status.limit;
    describe_status(about, status);
    return about;
}

} // namespace penstock::bind
