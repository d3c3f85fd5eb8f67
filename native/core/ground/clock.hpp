// Time, injectable: the wall clock that stamps messages (interpolated from the time-stamp counter), a clock that a test
// sets by hand, and the monotonic clock that policies use. No other file asks the system for the time.
#pragma once

#include "ground/atomics.hpp"

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

inline constexpr int64_t for_ever = INT64_MAX; // of a timeout
inline int64_t seconds_to_ns(double seconds) {
    if (seconds <= 0) return 0;
    return seconds > 9e9 ? for_ever : static_cast<int64_t>(seconds * 1e9);
}

// A clock that stands still until a test moves it; shared by all handles it is given to.
struct ManualClock : std::enable_shared_from_this<ManualClock> {
    Atomic<int64_t> now;
};

// The time that policies measure by: the machine's, or one that a test sets.
class MonotonicClock {
  public:
    explicit MonotonicClock(std::shared_ptr<ManualClock> manual = nullptr) : manual_(std::move(manual)) {}
    int64_t now_ns() const { return manual_ ? manual_->now.relaxed() : monotonic_ns(); }

  private:
    std::shared_ptr<ManualClock> manual_;
};

// Carries a clock forward by a counter, between true readings: arithmetic alone. A true reading stands between two readings of
// the counter; the further these lie apart, the less is known about when it was made. A carried time is wrong by at most a
// microsecond. If the clock is set, or the counter, a carried time may be wrong until the next true reading, half a millisecond
// later.
class CarriedTime {
  public:
    // The time at `ticks`; false when a true reading is due.
    bool at(uint64_t ticks, int64_t &ns) const {
        const uint64_t passed = ticks - base_ticks_;
        if (passed >= fresh_ticks_) return false;
        ns = base_ns_ + static_cast<int64_t>((passed * rate_) >> 32);
        return true;
    }
    // The clock said `ns` somewhere between two readings of the counter.
    void read(uint64_t before, int64_t ns, uint64_t after) {
        const uint64_t width = after - before, ticks = before + width / 2, passed = ticks - base_ticks_;
        const int64_t elapsed = ns - base_ns_;
        if (base_ns_ != 0 && elapsed >= 0 && elapsed <= carry_ns) return; // too short to measure a rate by
        // Longer ones would overflow, and those of a counter that began again are nonsense.
        const bool sound = base_ns_ != 0 && elapsed > 0 && elapsed < 1'000'000'000 && passed > 100'000 && passed < 1ull << 36;
        const uint64_t rate = sound ? (static_cast<uint64_t>(elapsed) << 32) / passed : 0;
        // A thread that was kept from its core between the readings does not know when the clock said `ns`.
        const uint64_t widths = width + base_width_;
        const bool narrow = sound && widths < 1 << 20 && (widths * rate) >> 32 <= widths_ns_max;
        // Across a jump of the clock the rate is another one than before and behind it.
        const bool steady = (rate > rate_ ? rate - rate_ : rate_ - rate) <= rate / rate_parts;
        if (narrow && passed < 2 * fresh_ticks_ && strays(base_ns_ + static_cast<int64_t>((passed * rate_) >> 32) - ns))
            ++strays_;
        rate_ = rate;
        fresh_ticks_ = narrow && steady && strays_ < strays_max ? (static_cast<uint64_t>(carry_ns) << 32) / (rate | 1) : 0;
        base_ns_ = ns;
        base_ticks_ = ticks;
        base_width_ = width;
    }

  private:
    // These errors add up: the base is wrong by at most half of its width, the rate adds as much again, and the kernel slews the
    // clock by up to 500 ppm either way, so that its rate may change by half a microsecond in half a millisecond.
    static constexpr int64_t carry_ns = 500'000;
    static constexpr uint64_t widths_ns_max = 400; // of the two readings by which a rate was measured
    static constexpr uint64_t rate_parts = 512;    // rates that differ by less than one part are the same
    static constexpr int64_t stray_ns = 1000;
    static constexpr uint32_t strays_max =
        8; // then the counters of this machine's cores differ, whatever the kernel says of them
    static bool strays(int64_t error) { return error > stray_ns || error < -stray_ns; }

    int64_t base_ns_ = 0;
    uint64_t base_ticks_ = 0, base_width_ = 0, fresh_ticks_ = 0, rate_ = 0; // rate: ns of a tick, times 2^32
    uint32_t strays_ = 0;
};

// Nanoseconds since the epoch: CLOCK_REALTIME. Where the kernel itself keeps time by the time-stamp counter, a reading costs one
// counter read, carried forward for at most half a millisecond after each true reading. Elsewhere it is clock_gettime. One thread
// at a time. docs/design/clock.md.
class WallClock {
  public:
    explicit WallClock(std::shared_ptr<ManualClock> manual = nullptr) : manual_(std::move(manual)) {}

    int64_t now_ns() {
        if (manual_) return manual_->now.relaxed();
#if defined(__x86_64__)
        if (counter_is_trusted()) {
            int64_t ns;
            return carried_.at(__rdtsc(), ns) ? ns : read();
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
    int64_t read() {
        const uint64_t before = __rdtsc();
        const int64_t ns = system_ns(CLOCK_REALTIME);
        carried_.read(before, ns, __rdtsc());
        return ns;
    }

    CarriedTime carried_;
#endif
    std::shared_ptr<ManualClock> manual_;
};

} // namespace penstock
