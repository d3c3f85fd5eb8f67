// What a ring's file says, for ring channels and for the ring of notes under a frames channel.
#pragma once

#include "bind/ground/status.hpp"

#include "ring/ring.hpp"

namespace penstock::bind {

inline nb::dict describe_ring(int fd, const Mapping &map, const OpenedRing &ring) {
    const RingGeometry &g = ring.geometry;
    const auto *control = reinterpret_cast<const RingControl *>(map.bytes() + control_offset);
    const auto *frames = map.bytes() + ring_data_offset(g.slot_count);
    nb::dict about;
    describe_common(about, ring, g.capacity, g.slot_count, g.start_position, g.epoch, g.max_frame());
    about["capacity"] = g.capacity;
    about["initial_term_id"] = 0;
    about["stream_id"] = 1;
    about["start_sequence"] = g.start_sequence;
    // SYNC 11: pairs with RingWriter::advance; forbids reading the number of the next message before its position: it would be
    // that of an earlier lap
    const uint64_t end = control->writer.write.acquire();
    const uint64_t next = reinterpret_cast<const RingFrame *>(frames + (end & (g.capacity - 1) & ~uint64_t{frame_alignment - 1}))
                              ->sequence.relaxed();
    about["position"] = end;
    about["limit"] = control->claimed.value.relaxed();
    const auto session = static_cast<int32_t>(control->writer.session.relaxed());
    nb::list members, dead;
    // SYNC -: for people; the kernel says whether the publication lives
    const bool publishing = control->writer.state.acquire() == 1 && holds_member(fd, control_offset);
    about["publishing"] = publishing;
    if (publishing)
        add_member(members, g.slot_count, "publication", false, control->writer.pid.relaxed(), session,
                   control->writer.joined_ns.relaxed(), nb::none(), next - g.start_sequence, control->writer.bytes_sent.relaxed(),
                   0, 0, nb::int_(0), nb::none());
    const LatencyTable latencies(map, g.slot_count);
    about["latency"] = latencies.all();
    const RingControl::Writer &writer = control->writer;
    // SYNC -: for people; the kernel says whether the publication lives
    const auto publishes = [&] { return writer.state.acquire() == 1; };
    if (publishes() && !publishing) add_dead(dead, "publication", writer.pid.relaxed(), writer.joined_ns.relaxed());
    uint64_t reaped = deaths_of(writer.deaths, writer.joined_ns, publishes, [&] { return holds_member(fd, control_offset); });
    const SlotTable<RingSlot> slots(fd, map, g.slot_count);
    // SYNC 12: pairs with Ring::attach_reader; forbids reading the slot's words before they are its new owner's
    const auto is_here = [](const RingSlot &s) { return s.identity.state.acquire() == 1; };
    uint64_t received = 0, received_bytes = 0, lost = 0, lost_bytes = 0, restarts = 0, conflated = 0;
    for (uint32_t i = 0; i < g.slot_count; ++i) {
        const RingSlot &s = slots[i];
        const RingCounts &now = s.reader.counts, &before = s.identity.before;
        received += now.messages.relaxed();
        received_bytes += now.bytes.relaxed();
        lost += now.lost_messages.relaxed();
        lost_bytes += now.lost_bytes.relaxed();
        restarts += now.restarts.relaxed();
        conflated += now.conflated.relaxed();
        if (!is_here(s)) continue;
        if (!slots.held(i)) {
            add_dead(dead, "subscription", s.identity.pid.relaxed(), s.identity.joined_ns.relaxed());
            continue;
        }
        add_member(members, i, "subscription", false, s.identity.pid.relaxed(), 0, s.identity.joined_ns.relaxed(),
                   // SYNC 13: pairs with RingReader::show_position; forbids showing a position before the reader is done with the
                   // messages below it
                   nb::int_(s.reader.position.acquire()), now.messages.relaxed() - before.messages.relaxed(),
                   now.bytes.relaxed() - before.bytes.relaxed(), 0, now.lost_bytes.relaxed() - before.lost_bytes.relaxed(),
                   nb::int_(now.lost_messages.relaxed() - before.lost_messages.relaxed()),
                   latencies.of(i, s.identity.joined_ns.relaxed()));
    }
    reaped += slots.died([](const RingSlot &s) -> const Deaths & { return s.identity.deaths; }, is_here);
    nb::dict totals = totals_dict(next - g.start_sequence, control->writer.bytes_sent.relaxed(), received, received_bytes, 0,
                                  lost_bytes, nb::int_(lost), 0, 0, reaped);
    totals["restarts"] = restarts;
    totals["conflated"] = conflated;
    about["totals"] = totals;
    about["members"] = members;
    about["dead"] = dead;
    return about;
}

} // namespace penstock::bind
