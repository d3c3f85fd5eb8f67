// What a pipe channel's file says of its peers and pipes.
#pragma once

#include "pipe/files/pipe_file.hpp"
#include "status/channel_status.hpp"

namespace penstock {

// `fd`, `map`: the file, and its bytes to be read. `pipe`: its header. Changes nothing.
inline ChannelStatus read_pipe_status(int fd, const Mapping &map, const OpenedPipe &pipe) {
    const PipeGeometry &g = pipe.geometry;
    ChannelStatus status;
    status.size = map.size();
    status.created_ns = pipe.created_ns;
    status.capacity = g.capacity;
    status.max_members = g.max_members;
    const auto *control = reinterpret_cast<const PipeControl *>(map.bytes() + control_offset);
    const auto &t = control->totals;
    const SlotTable<PeerSlot> slots(fd, map, g.max_members);
    const auto [sent, sent_bytes, received, received_bytes, refused, dropped, dropped_bytes, written, redelivered] = add_up(
        [&] {
            return std::array{t.messages_sent.relaxed(),  t.bytes_sent.relaxed(),    t.messages_received.relaxed(),
                              t.bytes_received.relaxed(), t.back_pressure.relaxed(), t.messages_dropped.relaxed(),
                              t.bytes_dropped.relaxed(),  t.written.relaxed(),       t.redelivered.relaxed()};
        },
        [&](auto &sum) {
            for (uint32_t i = 0; i < g.max_members; ++i) {
                if (slots[i].identity.state.acquire() != 1) continue; // SYNC -: add_up looks again if a peer left
                const PeerSlot::Counters &counts = slots[i].counters;
                sum[0] += count_of(counts.messages_sent);
                sum[1] += count_of(counts.bytes_sent);
                sum[2] += count_of(counts.messages_received);
                sum[3] += count_of(counts.bytes_received);
                sum[4] += count_of(counts.back_pressure);
                sum[5] += count_of(counts.messages_dropped);
                sum[6] += count_of(counts.bytes_dropped);
                sum[7] += count_of(counts.written);
                sum[8] += count_of(counts.redelivered);
            }
        });
    const auto link = [&](uint32_t i) -> const PipeLink & {
        return *reinterpret_cast<const PipeLink *>(map.bytes() + g.links_offset() + size_t{i} * sizeof(PipeLink));
    };
    const LatencyTable latencies(map, g.max_members);
    status.latency = latencies.all();
    for (uint32_t i = 0; i < g.max_members; ++i) {
        const PeerSlot &s = slots[i];
        // SYNC -: for people; nothing is decided by it
        if (s.identity.state.acquire() != 1) continue;
        const PeerSlot::Counters &counts = s.counters;
        const auto role = static_cast<PeerRole>(s.identity.role.relaxed());
        MemberStatus member{i, role_name(role)};
        member.pid = s.identity.pid.relaxed();
        member.joined_ns = s.identity.joined_ns.relaxed();
        if (!slots.held(i)) {
            status.dead.push_back({member.role, member.pid, member.joined_ns});
            continue;
        }
        const bool receives = role == PeerRole::pull || role == PeerRole::tap;
        const uint64_t id = participant_id(s.identity.generation.relaxed(), i);
        member.session = session_of(id);
        member.messages = (receives ? counts.messages_received : counts.messages_sent).relaxed();
        member.bytes = (receives ? counts.bytes_received : counts.bytes_sent).relaxed();
        member.back_pressure = counts.back_pressure.relaxed();
        member.bytes_lost = counts.bytes_dropped.relaxed();
        member.messages_lost = counts.messages_dropped.relaxed();
        member.name = read_name(s.identity);
        if (role != PeerRole::push) {
            member.position = counts.read.relaxed();
            member.latency = latencies.of(i, member.joined_ns);
            member.lag = 0;
            for (uint32_t k = 0; k < g.max_pipes; ++k) *member.lag += unread_in(link(k), id);
        }
        status.members.push_back(std::move(member));
    }
    for (uint32_t i = 0; i < g.max_pipes; ++i) {
        const PipeLink &l = link(i);
        if (l.ends.state.acquire() != 1) continue; // SYNC -: for people; nothing is decided by it
        ++status.pipes;
        status.messages_unread += unread_messages_in(l);
    }
    status.position = written;
    status.messages_redelivered = redelivered;
    status.pipes_taken_over = t.returned.relaxed();
    const uint64_t reaped = slots.died([](const PeerSlot &s) -> const Deaths & { return s.counters.deaths; },
                                       // SYNC -: for people; nothing is decided by it
                                       [](const PeerSlot &s) { return s.identity.state.acquire() == 1; });
    status.totals = {sent,
                     sent_bytes,
                     received,
                     received_bytes,
                     refused,
                     t.bytes_lost.relaxed() + dropped_bytes,
                     t.messages_lost.relaxed() + dropped,
                     0,
                     0,
                     reaped};
    return status;
}

} // namespace penstock
