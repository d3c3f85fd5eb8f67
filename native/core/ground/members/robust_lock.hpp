// A lock word in shared memory for rare work. A participant that finds the holder dead takes the lock over. The dead holder may
// have left its work half done, so all work under the lock can be begun again. Orders: docs/design/channel_file.md.
#pragma once

#include "ground/waiting.hpp"

#include <algorithm>

namespace penstock {

// `id`: not 0, and unique to this holder. `lives(holder)`: whether the process of that holder lives. `monotonic()`: the time in
// ns. A patience of less than a millisecond is for the whole call. A longer one is for one holder: it starts again whenever the
// lock has another holder. A lock that only changes hands a lot comes to this caller in the end. False: one living holder kept it
// for all of the patience. Only the caller's own sleep counts, not the time for which the machine kept it waiting: on a machine
// with too few cores, a holder that waits for a core would otherwise look stopped. Sleeping leaves those cores to the holder.
template <class Lives, class Clock>
bool acquire_robust_lock(Atomic<uint64_t> &lock, uint64_t id, int64_t patience_ns, Lives &&lives, Clock &&monotonic) {
    const bool for_one_holder = patience_ns >= 1'000'000;
    uint64_t blamed = 0;
    int64_t waited = 0, before = 0, nap = 0;
    for (uint32_t turn = 0;; ++turn) {
        uint64_t holder = 0;
        // SYNC 6: pairs with release_robust_lock; forbids an access under the lock before the lock is held
        if (lock.cas(holder, id)) return true;
        if (turn < platform::lock_spins) {
            spin_pause();
            continue;
        }
        // SYNC -: the holder's byte is free: the kernel's lock on it has ordered all that the dead process did before this
        if (!lives(holder) && lock.cas(holder, id)) return true;
        const int64_t now = monotonic(), passed = before == 0 ? 0 : now - before;
        before = now;
        if (for_one_holder && holder != blamed) {
            blamed = holder;
            waited = nap = 0;
        } else {
            waited += for_one_holder ? std::min(passed, 2 * nap) : passed;
        }
        if (waited >= patience_ns) return false;
        if (for_one_holder) nap = std::min(2 * nap + platform::lock_nap_ns_max / 64, platform::lock_nap_ns_max);
        if (nap > platform::lock_nap_ns_max / 16) platform::nap(nap);
        else platform::yield();
    }
}
inline void release_robust_lock(Atomic<uint64_t> &lock) {
    lock.release(0); // SYNC 6: pairs with acquire_robust_lock; forbids an access under the lock after the lock is free
}

// Gives the lock back, however its holder leaves.
class RobustLockGuard {
  public:
    explicit RobustLockGuard(Atomic<uint64_t> &lock) : lock_(lock) {}
    ~RobustLockGuard() { release_robust_lock(lock_); }
    RobustLockGuard(const RobustLockGuard &) = delete;
    RobustLockGuard &operator=(const RobustLockGuard &) = delete;

  private:
    Atomic<uint64_t> &lock_;
};

} // namespace penstock
