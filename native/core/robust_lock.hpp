// A lock word in shared memory for rare work. Whoever finds its holder dead takes it over; what that one did half is begun
// again by whoever comes next, so all work under it is such that it may be begun again.
#pragma once

#include "clock.hpp"
#include "waiting.hpp"

namespace penstock {

// `id`: not 0, and nobody else's. `lives`: whether the holder that is given does. False when a living holder kept it for longer
// than `patience_ns`.
template <class Lives> bool acquire_robust_lock(Atomic<uint64_t> &lock, uint64_t id, int64_t patience_ns, Lives &&lives) {
    int64_t deadline = 0;
    for (uint32_t turn = 0;; ++turn) {
        uint64_t holder = 0;
        if (lock.cas(holder, id)) return true; // SYNC 6: pairs with release_robust_lock
        if (turn < platform::lock_spins) {
            spin_pause();
            continue;
        }
        if (!lives(holder) && lock.cas(holder, id)) return true;
        const int64_t now = monotonic_ns();
        if (deadline == 0) deadline = now + patience_ns;
        if (now >= deadline) return false;
        platform::yield();
    }
}
inline void release_robust_lock(Atomic<uint64_t> &lock) { lock.release(0); } // SYNC 6: pairs with acquire_robust_lock

} // namespace penstock
