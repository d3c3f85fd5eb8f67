// Who gets a place in a bounded table that strangers can ask for, and who gives one way. Every host has an equal share, and
// within a host every source. A free place is anybody's. When there is none, a source that has not proved that it receives at its
// address gives way to one that has, a host that has more to one that has less, and, where two have the same, one that brings
// nothing. A pure policy: it knows no table, no clock and no memory. docs/design/network_log.md.
#pragma once

#include "net/wire/address.hpp"

#include <cstddef>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

namespace penstock {

struct Shareholder {
    Address from;
    uint64_t size = 1;     // places, or bytes
    bool proved = true;    // it receives at its address
    int64_t active_ns = 0; // when it came, or brought something last
};

class Shares {
  public:
    static constexpr int64_t idle_ns = 500'000'000; // without anything new

    // The holders that give way, so that `newcomer` finds room, as indexes of `holders`. None: it is refused. `capacity`: of the
    // table, in the unit of the sizes. `free`: what is left of it.
    static std::optional<std::vector<size_t>> choose(int64_t now, const std::vector<Shareholder> &holders,
                                                     const Shareholder &newcomer, uint64_t capacity, uint64_t free,
                                                     int64_t idle = idle_ns) {
        std::vector<Shareholder> left = holders;
        std::vector<size_t> index(holders.size()), chosen;
        std::iota(index.begin(), index.end(), size_t{0});
        while (free < newcomer.size) {
            const std::optional<size_t> one = choose_one(now, left, newcomer, capacity, idle);
            if (!one) return std::nullopt;
            free += left[*one].size;
            chosen.push_back(index[*one]);
            left.erase(left.begin() + static_cast<ptrdiff_t>(*one));
            index.erase(index.begin() + static_cast<ptrdiff_t>(*one));
        }
        return chosen;
    }
    // The holder that gives its place to `newcomer` in a full table of `capacity` places.
    static std::optional<size_t> choose_one(int64_t now, const std::vector<Shareholder> &holders, const Shareholder &newcomer,
                                            uint64_t capacity, int64_t idle = idle_ns) {
        const auto source = [](const Address &from) { return std::tuple(from.host, from.scope, from.port); };
        const std::vector<uint64_t> hosts = totals(holders, newcomer, host_of), sources = totals(holders, newcomer, source);
        const SourceHost host = host_of(newcomer.from);
        using Rank = std::tuple<int, uint64_t, uint64_t, int64_t>; // the lowest gives way
        std::optional<size_t> found;
        Rank lowest{};
        for (size_t i = 0; i < holders.size(); ++i) {
            const Shareholder &one = holders[i];
            const std::vector<uint64_t> &share = host_of(one.from) == host ? sources : hosts;
            const uint64_t theirs = share[i], ours = share.back() + newcomer.size;
            const bool unproved = newcomer.proved && !one.proved, is_idle = now - one.active_ns >= idle;
            if (one.proved && !newcomer.proved) continue;
            if (!unproved && (theirs < ours || (theirs == ours && !is_idle))) continue;
            const int order = unproved ? 0 : theirs > ours && theirs > capacity / 2 ? 1 : is_idle ? 2 : 3;
            const Rank rank{order, UINT64_MAX - hosts[i], UINT64_MAX - sources[i], one.active_ns};
            if (found && lowest <= rank) continue;
            lowest = rank;
            found = i;
        }
        return found;
    }

  private:
    // What all holders with the same key have together: for each holder, and at the end for the newcomer.
    template <class KeyOf>
    static std::vector<uint64_t> totals(const std::vector<Shareholder> &holders, const Shareholder &newcomer, KeyOf &&key_of) {
        using Key = decltype(key_of(newcomer.from));
        std::vector<std::pair<Key, size_t>> keys;
        keys.reserve(holders.size() + 1);
        for (size_t i = 0; i < holders.size(); ++i) keys.emplace_back(key_of(holders[i].from), i);
        keys.emplace_back(key_of(newcomer.from), holders.size());
        std::sort(keys.begin(), keys.end());
        std::vector<uint64_t> sums(keys.size());
        for (size_t from = 0, to = 0; from < keys.size(); from = to) {
            uint64_t sum = 0;
            for (; to < keys.size() && keys[to].first == keys[from].first; ++to)
                sum += keys[to].second == holders.size() ? 0 : holders[keys[to].second].size;
            for (size_t i = from; i < to; ++i) sums[keys[i].second] = sum;
        }
        return sums;
    }
};

} // namespace penstock
