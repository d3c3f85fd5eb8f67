// Counts of those who are there and totals of those who are gone: a count moves into its total under the channel's lock, and who
// adds all of them up, without the lock, misses none. Orders: docs/design/term_log.md.
#pragma once

#include "atomics.hpp"

namespace penstock {

// Under the lock. Who finds the count gone finds it in the total.
inline void move_count(Atomic<uint64_t> &from, Atomic<uint64_t> &total) {
    const uint64_t value = from.relaxed();
    if (value == 0) return;
    total.bump(value);
    from.release(0); // SYNC 23: pairs with count_of
}
inline uint64_t count_of(const Atomic<uint64_t> &count) { return count.acquire(); } // SYNC 23

// What `totals` gives, with what `slots` adds to it: once more if a count moved meanwhile.
template <class Totals, class Slots> auto add_up(Totals totals, Slots slots) {
    for (int attempt = 0;; ++attempt) {
        const auto before = totals();
        auto sum = before;
        slots(sum);
        if (before == totals() || attempt == 100) return sum;
    }
}

} // namespace penstock
