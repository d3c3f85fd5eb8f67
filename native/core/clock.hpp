// Time, injectable: the wall clock that stamps messages (interpolated from the time-stamp counter), a clock that a test
// sets by hand, and the monotonic clock that policies use. No other file asks the system for the time.
#pragma once

#include "atomics.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace penstock {

inline int64_t system_ns(clockid_t which) {
    timespec now;
    clock_gettime(which, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
inline int64_t monotonic_ns() { return platform::monotonic_ns(); }

// A clock that stands still until a test moves it; shared by all handles it is given to.
struct ManualClock {
    Atomic<int64_t> now;
};

// Nanoseconds since the epoch. Where the kernel itself trusts the time-stamp counter, a reading costs one counter read:
// the value is carried forward at the measured rate for at most a millisecond after each true reading, so it follows
// every adjustment of the system clock within that time. Elsewhere it is clock_gettime. One thread at a time.
class WallClock {
  public:
    explicit WallClock(std::shared_ptr<ManualClock> manual = nullptr) : manual_(std::move(manual)) {}

    int64_t now_ns() {
        if (manual_) return manual_->now.relaxed();
#if defined(__x86_64__)
        if (counter_is_trusted()) {
            const uint64_t ticks = __rdtsc();
            const uint64_t passed = ticks - base_ticks_;
            if (passed < fresh_ticks_) return base_ns_ + static_cast<int64_t>((passed * rate_) >> 32);
            return refresh();
        }
#endif
        return system_ns(CLOCK_REALTIME);
    }

  private:
#if defined(__x86_64__)
    static bool counter_is_trusted() {
        static const bool trusted = [] {
            char name[16] = {};
            FILE *file = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
            if (file == nullptr) return false;
            const bool read = std::fgets(name, sizeof name, file) != nullptr;
            std::fclose(file);
            return read && std::strncmp(name, "tsc", 3) == 0;
        }();
        return trusted;
    }

    int64_t refresh() {
        const int64_t ns = system_ns(CLOCK_REALTIME);
        const uint64_t ticks = __rdtsc();
        const uint64_t passed = ticks - base_ticks_;
        const int64_t elapsed = ns - base_ns_;
        // The rate is taken over an interval long enough for precision and short enough not to overflow; an interval
        // across a clock step gives nonsense, so it must lie near the rate of a machine between 0.25 and 16 GHz.
        if (base_ns_ != 0 && elapsed > 1'000'000 && elapsed < 1'000'000'000 && passed > 250'000 && passed < (1ull << 36)) {
            rate_ = (static_cast<uint64_t>(elapsed) << 32) / passed;
            fresh_ticks_ = (1'000'000ull << 32) / (rate_ | 1);
        } else if (base_ns_ != 0 && elapsed >= 0 && elapsed <= 1'000'000) {
            return ns; // keep the base until a millisecond has passed
        } else {
            fresh_ticks_ = 0;
        }
        base_ns_ = ns;
        base_ticks_ = ticks;
        return ns;
    }

    int64_t base_ns_ = 0;
    uint64_t base_ticks_ = 0, fresh_ticks_ = 0, rate_ = 0;
#endif
    std::shared_ptr<ManualClock> manual_;
};

} // namespace penstock
