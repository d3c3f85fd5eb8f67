// Counts of present participants, and totals of those that have left. A count moves into its total under the channel's lock.
// A reader that adds them all up without the lock misses no count. Orders: docs/design/channel_file.md.
#pragma once

#include "ground/atomics.hpp"

namespace penstock {

// Under the lock.
inline void move_count(Atomic<uint64_t> &from, Atomic<uint64_t> &total) {
    const uint64_t value = from.relaxed();
    if (value == 0) return;
    total.increment(value);
    from.release(0); // SYNC 23: pairs with count_of; forbids the 0 being visible before the total has the count
}
inline uint64_t count_of(const Atomic<uint64_t> &count) {
    return count.acquire(); // SYNC 23: pairs with move_count; forbids reading the total, afterwards, as it was before the 0
}

// The totals, with all that `slots` adds to them. Begins again if a count moved meanwhile: the totals have then changed.
template <class Totals, class Slots> auto add_up(Totals totals, Slots slots) {
    for (int attempt = 0;; ++attempt) {
        const auto before = totals();
        auto sum = before;
        slots(sum);
        if (before == totals() || attempt == 100) return sum;
    }
}

} // namespace penstock
