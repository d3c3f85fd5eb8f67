// Sleeping on a shared word. An event is one 32-bit word: bit 0 says that somebody sleeps, the rest counts wakes.
// Notifying costs no system call unless the bit is set. A sleeper that is killed leaves at worst one wake too many.
#pragma once

#include "atomics.hpp"

#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {

inline constexpr uint32_t event_has_sleeper = 1;
inline constexpr int64_t slice_ns_max = 50'000'000;

// What a waiter must do in this order: prepare, look again for what it waits for, then sleep on the value returned.
inline uint32_t event_announce(Atomic<uint32_t> &event) { return event.set_bits(event_has_sleeper) | event_has_sleeper; }
// Between what is announced and the look: of a sleeper and a notifier at least one sees the other. Costs a system call, so one
// for all events.
inline void event_announced() { heavy_fence(); } // SYNC 7: pairs with event_notify
inline uint32_t event_prepare(Atomic<uint32_t> &event) {
    const uint32_t expected = event_announce(event);
    event_announced();
    return expected;
}

inline bool event_sleep(Atomic<uint32_t> &event, uint32_t expected, int64_t ns) {
    return platform::futex_wait(event.address(), expected, ns);
}

inline void event_wake(Atomic<uint32_t> &event) { platform::futex_wake(event.address()); }

// The same for a caller that has put a fence, light or full, behind the store already.
inline void event_notify_fenced(Atomic<uint32_t> &event) {
    uint32_t seen = event.relaxed();
    if ((seen & event_has_sleeper) == 0) return;
    if (event.cas(seen, seen + 1)) event_wake(event); // who loses the race leaves the wake to the winner
}

// Call after the store that the sleeper waits for.
inline void event_notify(Atomic<uint32_t> &event) {
    light_fence(); // SYNC 7: pairs with event_announced; forbids reading the bit before the caller's store is visible
    event_notify_fenced(event);
}

inline constexpr size_t wait_many_max = 128; // the kernel's limit for one futex_waitv

struct WaitEntry { // the kernel's struct futex_waitv
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};

// Sleeps until one of several events changes. Where the kernel has no futex_waitv (before 5.16) it naps for at most a
// millisecond on the first word instead; the caller looks again either way.
inline void event_sleep_many(WaitEntry *entries, size_t count, int64_t ns) {
#ifndef SYS_futex_waitv
    constexpr long number = 449;
#else
    constexpr long number = SYS_futex_waitv;
#endif
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t end = int64_t{until.tv_sec} * 1'000'000'000 + until.tv_nsec + ns;
    until.tv_sec = static_cast<time_t>(end / 1'000'000'000);
    until.tv_nsec = static_cast<long>(end % 1'000'000'000);
    if (syscall(number, entries, count, 0, &until, CLOCK_MONOTONIC) < 0 && (errno == ENOSYS || errno == EPERM)) {
        const timespec nap{0, static_cast<long>(ns < 1'000'000 ? ns : 1'000'000)};
        syscall(SYS_futex, entries[0].address, FUTEX_WAIT, static_cast<uint32_t>(entries[0].value), &nap, nullptr, 0);
    }
}

inline WaitEntry wait_entry(Atomic<uint32_t> &event, uint32_t expected) {
    constexpr uint32_t futex_32 = 2; // FUTEX_32, shared between processes
    return {expected, reinterpret_cast<uint64_t>(event.address()), futex_32, 0};
}

} // namespace penstock
