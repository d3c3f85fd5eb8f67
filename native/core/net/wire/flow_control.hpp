// The receivers that a sender hears of, and the limit that their status messages give: the fastest's, the slowest's, or
// the slowest's of those with a tag. After Aeron's flow control strategies.
#pragma once

#include "net/wire/address.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

enum class FlowControl : uint8_t { max, min, tagged };

class FlowLimit {
  public:
    static constexpr size_t receivers_max = 256;
    struct Report {
        Address from;
        int64_t receiver = 0;
        uint64_t edge = 0; // its position + its window
        bool tagged = false;
        bool end_of_stream = false;
    };
    static constexpr uint32_t readers_max = 1024; // at one receiver; more are not believed

    FlowLimit(FlowControl how, int64_t timeout_ns) : how_(how), timeout_ns_(timeout_ns) {}

    // False if the table is full: nothing is believed of this receiver.
    bool on_status(int64_t now, const Report &report) {
        const auto same = [&](const Entry &entry) {
            return entry.report.receiver == report.receiver && entry.report.from == report.from;
        };
        const auto found = std::find_if(entries_.begin(), entries_.end(), same);
        if (found == entries_.end()) {
            if (entries_.size() == receivers_max) return false;
            for (Entry &entry : entries_)
                entry.unreachable |= entry.report.from == report.from; // another one has its address now
            entries_.push_back({report, now, 1, -1, false});
            return true;
        }
        found->report = report;
        found->last_status_ns = now;
        found->unreachable = false;
        return true;
    }
    // Nobody listens where the receivers were. They count no more, unless they are heard again; the limit stays as it is.
    void on_unreachable() {
        for (Entry &entry : entries_) entry.unreachable = true;
    }
    // A receiver reports its number of subscriptions.
    void on_readers(const Address &from, uint32_t readers) {
        for (Entry &entry : entries_)
            if (entry.report.from == from) entry.readers = std::clamp(readers, 1u, readers_max);
    }
    // A receiver reports its round-trip time.
    void on_round_trip(const Address &from, int64_t ns) {
        for (Entry &entry : entries_)
            if (entry.report.from == from) entry.round_trip_ns = ns;
    }
    // The longest; `otherwise` for a receiver that has not reported one.
    int64_t round_trip(int64_t otherwise) const {
        int64_t longest = entries_.empty() ? otherwise : 0;
        for (const Entry &entry : entries_)
            longest = std::max(longest, entry.round_trip_ns < 0 ? otherwise : entry.round_trip_ns);
        return longest;
    }
    // How many subscriptions there are; a receiver that says nothing counts as one.
    uint32_t readers() const {
        uint32_t found = 0;
        for (const Entry &entry : entries_) found += entry.report.end_of_stream || entry.unreachable ? 0 : entry.readers;
        return found;
    }
    void forget(int64_t now) {
        std::erase_if(entries_, [&](const Entry &entry) { return now - entry.last_status_ns >= timeout_ns_; });
    }
    // Never less than before.
    uint64_t limit(uint64_t before) const {
        uint64_t most = 0, least = UINT64_MAX;
        for (const Entry &entry : entries_) {
            most = std::max(most, entry.report.edge);
            if (entry.report.end_of_stream || (how_ == FlowControl::tagged && !entry.report.tagged)) continue;
            least = std::min(least, entry.report.edge);
        }
        return std::max(before, how_ == FlowControl::max || least == UINT64_MAX ? most : least);
    }
    // Whether this source has sent a status message lately.
    bool knows(const Address &from) const {
        return std::any_of(entries_.begin(), entries_.end(), [&](const Entry &entry) { return entry.report.from == from; });
    }
    size_t size() const { return entries_.size(); }
    bool all_at_end() const {
        return !entries_.empty() &&
               std::all_of(entries_.begin(), entries_.end(), [](const Entry &entry) { return entry.report.end_of_stream; });
    }

  private:
    struct Entry {
        Report report;
        int64_t last_status_ns;
        uint32_t readers;
        int64_t round_trip_ns; // -1: not reported
        bool unreachable;      // by the system's word, or since another one has its address
    };
    const FlowControl how_;
    const int64_t timeout_ns_;
    std::vector<Entry> entries_;
};

} // namespace penstock
