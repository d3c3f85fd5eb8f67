// What a log's file says, or that of a sync queue.
#pragma once

#include "log/files/log_file.hpp"
#include "status/channel_status.hpp"

namespace penstock {

// `fd`, `map`: the file, and its bytes to be read. `log`: its header. Changes nothing.
inline ChannelStatus read_log_status(int fd, const Mapping &map, const OpenedLog &log, bool sync) {
    const LogGeometry &g = log.geometry;
    const auto *control = reinterpret_cast<const Control *>(map.bytes() + control_offset);
    ChannelStatus status;
    status.size = map.size();
    status.created_ns = log.created_ns;
    status.capacity = g.window;
    status.max_members = sync ? g.slot_count / 2 : g.slot_count;
    status.position = control->tail.value.acquire(); // SYNC -: for people; no frame is read at it
    status.limit = control->limit.value.acquire();   // SYNC -: for people; nothing is claimed up to it
    const auto &t = control->totals;
    const SlotTable<Slot> slots(fd, map, g.slot_count);
    const auto taken = [](const Slot &s) {
        // SYNC -: for people; add_up looks again if a member left
        const uint32_t state = s.identity.state.acquire(), role = s.identity.role.acquire();
        return state != 0 && state <= 2 && role != 0 && role <= 3;
    };
    const auto reading = [](const Slot &s) { return s.identity.role.relaxed() == static_cast<uint32_t>(Role::subscription); };
    const auto [sent, sent_bytes, received, received_bytes, refused, lost] = add_up(
        [&] {
            return std::array{t.messages_sent.relaxed(),  t.bytes_sent.relaxed(),    t.messages_received.relaxed(),
                              t.bytes_received.relaxed(), t.back_pressure.relaxed(), t.bytes_lost.relaxed()};
        },
        [&](auto &sum) {
            for (uint32_t i = 0; i < g.slot_count; ++i) {
                const Slot &s = slots[i];
                if (!taken(s)) continue;
                const size_t first = reading(s) ? 2 : 0;
                sum[first] += count_of(s.counters.messages);
                sum[first + 1] += count_of(s.counters.bytes);
                sum[4] += count_of(s.counters.back_pressure);
                sum[5] += count_of(s.counters.bytes_lost);
            }
        });
    const LatencyTable latencies(map, g.slot_count);
    status.latency = latencies.all();
    for (uint32_t i = 0; i < g.slot_count; ++i) {
        const Slot &s = slots[i];
        if (!taken(s)) continue;
        ++status.slots_taken;
        const bool alone = s.identity.role.relaxed() == static_cast<uint32_t>(Role::exclusive);
        MemberStatus member{i, reading(s) ? "subscription" : alone ? "exclusive" : "publication"};
        member.pid = s.identity.pid.relaxed();
        member.joined_ns = s.identity.joined_ns.relaxed();
        if (!slots.held(i)) {
            status.dead.push_back({member.role, member.pid, member.joined_ns});
            continue;
        }
        member.dropped = s.identity.state.relaxed() == static_cast<uint32_t>(State::dropped);
        member.session = static_cast<int32_t>(s.identity.session.relaxed());
        member.messages = s.counters.messages.relaxed();
        member.bytes = s.counters.bytes.relaxed();
        member.back_pressure = s.counters.back_pressure.relaxed();
        member.bytes_lost = s.counters.bytes_lost.relaxed();
        if (reading(s)) {
            member.position = s.reader.position.acquire(); // SYNC -: for people; nothing is cleaned by it
            member.latency = latencies.of(i, member.joined_ns);
        }
        if (sync) member.name = read_name(s.identity);
        status.members.push_back(std::move(member));
    }
    const uint64_t reaped = slots.died([](const Slot &s) -> const Deaths & { return s.counters.deaths; }, taken);
    status.totals = {sent,  sent_bytes, received, received_bytes, refused, lost, {}, t.repaired.relaxed(), t.dropped.relaxed(),
                     reaped};
    return status;
}

} // namespace penstock
