// A publication's receivers as other processes see them: rows behind the counts in the file beside its log. One writer.
#pragma once

#include "ground/atomics.hpp"
#include "net/io/udp_options.hpp"

#include <array>
#include <cstring>

namespace penstock {

//     0      UdpCounts, word for word
//     4096   ReceiverTable
// "Owner": the publication.
struct ReceiverRow {
    Atomic<uint64_t> host[2];          // 0
    Atomic<uint32_t> scope, port;      // 16
    Atomic<uint64_t> receiver;         // 24: its id
    Atomic<uint64_t> position;         // 32: its subscriptions have read up to here
    Atomic<uint64_t> round_trip;       // 40: ns, as it reports; 0: not reported
    Atomic<uint64_t> naks;             // 48: that it sent
    Atomic<uint64_t> heard;            // 56: of its last status message, by the monotonic clock
    Atomic<uint32_t> window, readers;  // 64
    Atomic<uint32_t> limited, arrives; // 72: datagrams of the MTU do not arrive; the longest that does, 0: unknown
    Atomic<uint64_t> unreachable;      // 80: the system says that nobody has its port
    uint64_t spare;                    // 88
};
static_assert(sizeof(ReceiverRow) == 96 && offsetof(ReceiverRow, receiver) == 24 && offsetof(ReceiverRow, window) == 64);
struct ReceiverTable {
    Atomic<uint64_t> version; // 0: odd while the rows change
    Atomic<uint32_t> count;   // 8
    uint32_t mtu;             // 12
    ReceiverRow rows[FlowLimit::receivers_max];
};
static_assert(sizeof(ReceiverTable) == 16 + FlowLimit::receivers_max * 96);
inline constexpr uint64_t receiver_table_offset = 4096;
inline constexpr uint64_t counts_file_size = receiver_table_offset + ((sizeof(ReceiverTable) + 4095) & ~uint64_t{4095});
static_assert(sizeof(UdpCounts) <= receiver_table_offset);

// For people: they look twice, until both looks are the same and the version is even.
inline void write_receivers(ReceiverTable &table, const std::vector<FlowLimit::Entry> &entries, uint32_t mtu) {
    const uint64_t version = table.version.relaxed();
    table.version.relaxed(version + 1);
    table.mtu = mtu;
    table.count.relaxed(static_cast<uint32_t>(entries.size()));
    for (size_t i = 0; i < entries.size(); ++i) {
        const FlowLimit::Entry &entry = entries[i];
        ReceiverRow &row = table.rows[i];
        uint64_t host[2];
        std::memcpy(host, entry.report.from.host.data(), sizeof host);
        row.host[0].relaxed(host[0]);
        row.host[1].relaxed(host[1]);
        row.scope.relaxed(entry.report.from.scope);
        row.port.relaxed(entry.report.from.port);
        row.receiver.relaxed(static_cast<uint64_t>(entry.report.receiver));
        row.position.relaxed(entry.report.position);
        row.round_trip.relaxed(static_cast<uint64_t>(std::max<int64_t>(entry.round_trip_ns, 0)));
        row.naks.relaxed(entry.naks);
        row.heard.relaxed(static_cast<uint64_t>(entry.last_status_ns));
        row.window.relaxed(entry.report.window);
        row.readers.relaxed(entry.report.end_of_stream ? 0 : entry.readers);
        row.limited.relaxed(entry.path.limited ? 1 : 0);
        row.arrives.relaxed(entry.path.arrives);
        row.unreachable.relaxed(entry.unreachable ? 1 : 0);
    }
    table.version.relaxed(version + 2);
}

} // namespace penstock
