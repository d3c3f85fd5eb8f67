// Sleeping on a shared word. An event is one 32-bit word: bit 0 says that a thread sleeps, the next 21 count wakes, and the last
// 10 say on which core the last notifier ran that woke anybody. Notifying costs no system call unless the bit is set. A sleeper
// that is killed leaves at worst one wake too many. Orders: docs/design/channel_file.md.
#pragma once

#include "ground/atomics.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace penstock {

inline constexpr uint32_t event_has_sleeper = 1;
inline constexpr uint32_t event_core_shift = 22; // above it: the core + 1; 0: nobody has woken anybody
inline constexpr int64_t slice_ns_max = 50'000'000;
inline constexpr int64_t calm_slice_ns = 20 * slice_ns_max; // where only an event brings more: for a signal that came just before
inline constexpr int64_t end_interval_ns = 20'000'000;      // between two looks at whether the publications live

// A waiter does three things in this order: it announces itself, looks again for what it waits for, and sleeps on the value
// returned here.
inline uint32_t event_announce(Atomic<uint32_t> &event) {
    // SYNC -: the word carries no data; the fence of event_announced, which follows, orders it, or the sleep is brief (EndTarget)
    return event.set_bits(event_has_sleeper) | event_has_sleeper;
}
// Stands between announcing and looking. Of a sleeper and a notifier, at least one then sees the other. It costs a system call,
// so a waiter on many events announces itself on all of them and calls this once.
inline void event_announced() {
    // SYNC 7: pairs with event_notify, PeerTable::notify; forbids looking before the sleeper's bit is visible: the look could
    // miss the store and the notifier the bit, and nobody would wake the sleeper
    heavy_fence();
}
inline uint32_t event_prepare(Atomic<uint32_t> &event) {
    const uint32_t expected = event_announce(event);
    event_announced();
    return expected;
}

inline bool event_sleep(Atomic<uint32_t> &event, uint32_t expected, int64_t ns) {
    return platform::futex_wait(event.address(), expected, ns);
}

// The loop of every wait: until `attempt` returns true, or `waiter` says that it is over. The attempt sees every event between
// prepare() and sleep(), or the event ends the sleep.
template <class Waiter, class Attempt> bool wait_on(Waiter &waiter, Attempt &&attempt) {
    for (;;) {
        waiter.prepare();
        if (attempt()) return true;
        if (!waiter.sleep()) return false;
    }
}

inline void event_wake(Atomic<uint32_t> &event) { platform::futex_wake(event.address()); }

// This thread's core as an event names it. Machines with more than 1023 cores have some that share a name.
inline uint32_t event_core() { return platform::core() % 1023 + 1; }
// Whether the last notifier that woke anybody ran on this core. Then it cannot run while this thread spins. It is a hint: either
// may have moved since.
inline bool event_woken_from_here(const Atomic<uint32_t> &event) { return event.relaxed() >> event_core_shift == event_core(); }

// For a caller that has a fence, light or full, between its store and this call.
inline void event_notify_fenced(Atomic<uint32_t> &event) {
    uint32_t seen = event.relaxed();
    if ((seen & event_has_sleeper) == 0) return;
    const uint32_t counted = (seen + 1) & ((1u << event_core_shift) - 1); // without the sleeper's bit
    // Only one of several notifiers wins, and it alone makes the system call.
    // SYNC -: the word carries no data; the fence before the caller's look orders its store (SYNC 7)
    if (event.cas(seen, counted | event_core() << event_core_shift)) event_wake(event);
}

// Call after the store that the sleeper waits for.
inline void event_notify(Atomic<uint32_t> &event) {
    light_fence(); // SYNC 7: pairs with event_announced; forbids reading the sleeper's bit before the caller's store is visible
    event_notify_fenced(event);
}

// Whether a waiter on an event spins before it sleeps: less often after spins in vain. A sleep and a wake across cores take about
// as long as a spin, so a waiter that spins in vain wastes at most as much again, and after three such spins one in 64. A waiter
// whose notifier needs this core sleeps at once, unless several messages came since its last wait: such a notifier goes on
// without an answer, and a waiter that spins, and so lets it have the core, is not woken for each message. Where one message
// comes at a time, it finds that out by trials, each twice as late as the one before if that brought no more.
class SpinHabit {
  public:
    void took(size_t messages = 1) { taken_ += messages; }
    bool worth(const Atomic<uint32_t> &event) {
        const bool several = std::exchange(taken_, 0) > 1;
        if (several) between_ = between_min;
        else if (trying_) between_ = std::min(2 * between_, between_max);
        trying_ = false;
        if (several || !event_woken_from_here(event)) return due();
        if (++waits_ < between_ || !due()) return false;
        waits_ = 0;
        return trying_ = true;
    }
    // The same for a waiter that lets others have its core while it spins.
    bool due() {
        if (skipped_ == 0) return true;
        --skipped_;
        return false;
    }
    void spun(bool found) {
        vain_ = found ? 0 : vain_ + (vain_ < vain_max);
        skipped_ = vain_ < vain_min ? 0 : 1u << (vain_ - vain_min + 1); // 2, 4 … 64
    }

  private:
    static constexpr uint32_t vain_min = 3, vain_max = 8, between_min = 16, between_max = 1u << 16;
    uint32_t vain_ = 0, skipped_ = 0;
    size_t taken_ = 0;                           // messages since the last wait
    uint32_t waits_ = 0, between_ = between_min; // since the last trial, and from trial to trial
    bool trying_ = false;
};

// Wakes sleepers that will find nothing here but look at something else, such as whether their handle is closed. The count of
// wakes changes first, so that a waiter between its announcement and its sleep does not sleep either.
inline void event_interrupt(Atomic<uint32_t> &event) {
    event.add(2); // SYNC -: the word carries no data, and the wake does not depend on the sleeper's bit
    event_wake(event);
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
