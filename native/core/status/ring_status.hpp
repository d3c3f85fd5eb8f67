// What a ring's file says: of a ring channel, or of the ring of notes in a frames channel.
#pragma once

#include "ring/ring.hpp"
#include "status/channel_status.hpp"

namespace penstock {

// `fd`, `map`: the file, and its bytes to be read. `ring`: its header. Changes nothing.
inline ChannelStatus read_ring_status(int fd, const Mapping &map, const OpenedRing &ring) {
    const RingGeometry &g = ring.geometry;
    const auto *control = reinterpret_cast<const RingControl *>(map.bytes() + control_offset);
    const auto *frames = map.bytes() + ring_data_offset(g.slot_count);
    ChannelStatus status;
    status.size = map.size();
    status.created_ns = ring.created_ns;
    status.capacity = g.capacity;
    status.max_members = g.slot_count;
    // SYNC 11: pairs with RingWriter::advance; forbids reading the number of the next message before its position: it would be
    // that of an earlier lap
    status.position = control->writer.write.acquire();
    const uint64_t offset = status.position & (g.capacity - 1) & ~uint64_t{frame_alignment - 1};
    const uint64_t sent = reinterpret_cast<const RingFrame *>(frames + offset)->sequence.relaxed() - g.start_sequence;
    status.limit = control->claimed.value.relaxed();
    const RingControl::Writer &writer = control->writer;
    // SYNC -: for people; the kernel says whether the publication lives
    const auto publishes = [&] { return writer.state.acquire() == 1; };
    const auto publisher_lives = [&] { return holds_member(fd, control_offset); };
    if (publishes() && publisher_lives()) {
        MemberStatus member{g.slot_count, "publication"};
        member.pid = writer.pid.relaxed();
        member.session = static_cast<int32_t>(writer.session.relaxed());
        member.joined_ns = writer.joined_ns.relaxed();
        member.messages = sent;
        member.bytes = writer.bytes_sent.relaxed();
        member.messages_lost = 0;
        status.members.push_back(std::move(member));
    } else if (publishes()) status.dead.push_back({"publication", writer.pid.relaxed(), writer.joined_ns.relaxed()});
    const LatencyTable latencies(map, g.slot_count);
    status.latency = latencies.all();
    const SlotTable<RingSlot> slots(fd, map, g.slot_count);
    // SYNC 12: pairs with Ring::attach; forbids reading the slot's words before they are its new owner's
    const auto is_here = [](const RingSlot &s) { return s.identity.state.acquire() != 0; };
    ChannelTotals &totals = status.totals;
    totals.messages_sent = sent;
    totals.bytes_sent = writer.bytes_sent.relaxed();
    totals.messages_lost = 0;
    for (uint32_t i = 0; i < g.slot_count; ++i) {
        const RingSlot &s = slots[i];
        const RingCounts &now = s.reader.counts, &before = s.identity.before;
        totals.messages_received += now.messages.relaxed();
        totals.bytes_received += now.bytes.relaxed();
        *totals.messages_lost += now.lost_messages.relaxed();
        totals.bytes_lost += now.lost_bytes.relaxed();
        totals.restarts += now.restarts.relaxed();
        totals.conflated += now.conflated.relaxed();
        if (!is_here(s)) continue;
        const bool writes = s.identity.state.relaxed() == slot_writes;
        MemberStatus member{i, writes ? "publication" : "subscription"};
        member.pid = s.identity.pid.relaxed();
        member.joined_ns = s.identity.joined_ns.relaxed();
        if (!slots.held(i)) {
            status.dead.push_back({member.role, member.pid, member.joined_ns});
            continue;
        }
        if (writes) {
            member.session = static_cast<int32_t>(s.reader.session.relaxed());
            member.messages = s.reader.sent_messages.relaxed();
            member.bytes = s.reader.sent_bytes.relaxed();
            member.messages_lost = 0;
            status.members.push_back(std::move(member));
            continue;
        }
        // SYNC 13: pairs with RingReader::show_position; forbids showing a position before the reader is done with the messages
        // below it
        member.position = s.reader.position.acquire();
        member.messages = now.messages.relaxed() - before.messages.relaxed();
        member.bytes = now.bytes.relaxed() - before.bytes.relaxed();
        member.bytes_lost = now.lost_bytes.relaxed() - before.lost_bytes.relaxed();
        member.messages_lost = now.lost_messages.relaxed() - before.lost_messages.relaxed();
        member.latency = latencies.of(i, member.joined_ns);
        status.members.push_back(std::move(member));
    }
    totals.reaped = deaths_of(writer.deaths, writer.joined_ns, publishes, publisher_lives) +
                    slots.died([](const RingSlot &s) -> const Deaths & { return s.identity.deaths; }, is_here);
    return status;
}

} // namespace penstock
