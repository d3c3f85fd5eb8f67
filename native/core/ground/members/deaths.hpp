// How many owners of a slot died without closing. Each is counted once: by the process that clears the slot, or by a look at a
// slot that nobody has cleared yet. One word has the count and whether the last owner is in it, so a process that dies between
// counting and clearing counts nobody twice. Argument: docs/design/channel_file.md.
#pragma once

#include "ground/atomics.hpp"

namespace penstock {

using Deaths = Atomic<uint64_t>; // twice the count, and 1 more if the last owner is in it

// The slot's byte is held exclusively in both, so no other process writes the word.
inline void count_death(Deaths &deaths) {
    const uint64_t now = deaths.relaxed();
    if (now % 2 == 0) deaths.relaxed(now + 3);
    // SYNC 35: pairs with deaths_of; forbids a look that finds the slot free before the death is counted
    release_fence();
}
inline void begin_owner(Deaths &deaths) {
    deaths.relaxed(deaths.relaxed() & ~uint64_t{1});
} // before `state` says that it is there

// Owners that died, including those whose slots are not cleared yet. `is_there()`: whether the slot says that it has an owner;
// `lives()`: the kernel's word; `joined`: the owner's time of joining. Never falls: if the slot changes hands, it is looked at
// again.
template <class IsThere, class Lives>
uint64_t deaths_of(const Deaths &deaths, const Atomic<uint64_t> &joined, IsThere &&is_there, Lives &&lives) {
    uint64_t before = deaths.relaxed();
    for (int attempt = 0; attempt < 100; ++attempt) {
        const uint64_t owner = joined.relaxed();
        const bool died = is_there() && !lives() && is_there();
        acquire_fence(); // SYNC 35: pairs with count_death; forbids reading the count before the slot is seen to be free
        const uint64_t now = deaths.relaxed();
        if (now == before && joined.relaxed() == owner) return now / 2 + (died && now % 2 == 0 ? 1 : 0);
        before = now;
    }
    return before / 2; // damaged memory
}

} // namespace penstock
