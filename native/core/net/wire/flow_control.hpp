// The receivers that a sender hears of, and the limit that their status messages give: the fastest's, the slowest's, or
// the slowest's of those with a tag. After Aeron's flow control strategies.
#pragma once

#include "net/wire/path_limit.hpp"
#include "net/wire/shares.hpp"

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
        uint64_t position = 0; // up to there its subscriptions have read
        uint32_t window = 0;
    };
    // A receiver as others see it.
    struct Entry {
        Report report;
        int64_t last_status_ns;
        int64_t active_ns; // when it came, or its edge moved last
        uint32_t readers;
        int64_t round_trip_ns; // -1: not reported; each receiver of this library reports one
        bool unreachable;      // by the system's word, or since another one has its address
        uint64_t naks = 0;
        uint32_t probe_arrived = 0; // the longest probe that it has echoed since begin_probe()
        uint64_t naks_at_probe = 0;
        PathLimit path = {}; // longer datagrams do not arrive
    };
    const std::vector<Entry> &entries() const { return entries_; }
    static constexpr uint32_t readers_max = 1024; // at one receiver; more are not believed

    FlowLimit(FlowControl how, int64_t timeout_ns) : how_(how), timeout_ns_(timeout_ns) {}

    // False if the table is full and its host has its share: nothing is believed of this receiver.
    bool on_status(int64_t now, const Report &report) {
        const auto same = [&](const Entry &entry) {
            return entry.report.receiver == report.receiver && entry.report.from == report.from;
        };
        const auto found = std::find_if(entries_.begin(), entries_.end(), same);
        if (found == entries_.end()) {
            if (entries_.size() == receivers_max && !give_way(now, report.from)) return false;
            for (Entry &entry : entries_) {
                if (entry.report.from != report.from) continue;
                entry.unreachable = true; // another one has its address now
                replaced_ = true;
            }
            entries_.push_back({report, now, now, 1, -1, false, 0, 0, 0, {}});
            return true;
        }
        if (report.edge > found->report.edge) found->active_ns = now;
        found->report = report;
        found->last_status_ns = now;
        found->unreachable = false;
        return true;
    }
    // Nobody listens where the receivers were. They count no more, unless they are heard again; the limit stays as it is.
    void on_unreachable() {
        for (Entry &entry : entries_) entry.unreachable = true;
    }
    // A receiver reports its number of subscriptions; none, if the last one has left: nobody listens there.
    void on_readers(const Address &from, uint32_t readers) {
        for (Entry &entry : entries_) {
            if (entry.report.from != from) continue;
            entry.unreachable |= readers == 0;
            entry.readers = std::clamp(readers, 1u, readers_max);
        }
    }
    // A receiver reports its round-trip time.
    void on_round_trip(const Address &from, int64_t ns) {
        for (Entry &entry : entries_)
            if (entry.report.from == from) entry.round_trip_ns = ns;
    }
    void on_nak(const Address &from) {
        for (Entry &entry : entries_)
            if (entry.report.from == from) ++entry.naks;
    }
    // Some receiver echoes probes.
    bool echoes() const {
        return std::any_of(entries_.begin(), entries_.end(), [](const Entry &entry) { return entry.round_trip_ns >= 0; });
    }
    // Probes of several lengths are on their way.
    void begin_probe() {
        for (Entry &entry : entries_) {
            entry.probe_arrived = 0;
            entry.naks_at_probe = entry.naks;
        }
    }
    void on_probe_echo(const Address &from, uint32_t length) {
        for (Entry &entry : entries_)
            if (entry.report.from == from) entry.probe_arrived = std::max(entry.probe_arrived, length);
    }
    // The echoes that come are there. `mtu`: the longest probe. Returns the longest datagram that arrives everywhere where one
    // does.
    uint32_t end_probe(uint32_t mtu) {
        uint32_t least = mtu;
        for (Entry &entry : entries_) {
            const bool asks = entry.naks != entry.naks_at_probe;
            if (entry.probe_arrived >= mtu || (!asks && entry.path.arrives == 0)) entry.path = {};
            else if (asks && entry.probe_arrived == 0 && entry.round_trip_ns < 0) entry.path = {true, 0}; // it echoes nothing
            else if (entry.probe_arrived != 0) entry.path = {true, entry.probe_arrived};
            if (entry.path.arrives != 0) least = std::min(least, entry.path.arrives);
        }
        return least;
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
    uint64_t limit(uint64_t before) const { return std::max(before, slowest(&Report::edge)); }
    // What was read by the receivers that set the limit. Never less than before.
    uint64_t consumed(uint64_t before) const { return std::max(before, slowest(&Report::position)); }
    // Whether another receiver has taken the place of one that was heard: it began where the stream was, and lacks what that one
    // had not read.
    bool replaced() const { return replaced_; }
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
    bool give_way(int64_t now, const Address &from) {
        std::vector<Shareholder> holders;
        for (const Entry &entry : entries_) holders.push_back({entry.report.from, 1, true, entry.active_ns});
        const auto found = Shares::choose_one(now, holders, {from, 1, true, now}, receivers_max);
        if (found) entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(*found));
        return found.has_value();
    }
    uint64_t slowest(uint64_t Report::*what) const {
        uint64_t most = 0, least = UINT64_MAX;
        for (const Entry &entry : entries_) {
            most = std::max(most, entry.report.*what);
            if (entry.report.end_of_stream || (how_ == FlowControl::tagged && !entry.report.tagged)) continue;
            least = std::min(least, entry.report.*what);
        }
        return how_ == FlowControl::max || least == UINT64_MAX ? most : least;
    }
    const FlowControl how_;
    const int64_t timeout_ns_;
    std::vector<Entry> entries_;
    bool replaced_ = false;
};

} // namespace penstock
