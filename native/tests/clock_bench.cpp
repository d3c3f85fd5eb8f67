// The cost of a time stamp, and the largest error of WallClock's. Compares the library's clock, which carries CLOCK_REALTIME
// forward by the time-stamp counter, with clock_gettime itself, for a while (--seconds) and in several threads that move between
// cores. An error is what is left after the interval in which both were read. Also what a clock that is never read again would
// do. Writes JSON. docs/design/clock.md says what was decided by it.
#include "support.hpp"

#include <algorithm>
#include <sched.h>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

using namespace penstock;
using namespace penstock::test;

namespace {

int64_t cpu_ns() { return system_ns(CLOCK_THREAD_CPUTIME_ID); }

template <class Read> double cost(Read &&read) {
    constexpr int count = 2'000'000;
    std::vector<double> found;
    for (int round = 0; round < 7; ++round) {
        int64_t sum = 0;
        const int64_t begun = cpu_ns();
        for (int i = 0; i < count; ++i) sum += read();
        found.push_back(static_cast<double>(cpu_ns() - begun) / count);
        if (sum == 0) return 0;
    }
    std::sort(found.begin(), found.end());
    return found[found.size() / 2];
}

// How far a reading lies outside the interval of two true readings around it.
int64_t outside(int64_t before, int64_t value, int64_t after) {
    return value < before ? value - before : value > after ? value - after : 0;
}

struct Errors {
    int64_t worst = 0;
    uint64_t readings = 0, above = 0; // above: wrong by more than a microsecond
    void note(int64_t error) {
        ++readings;
        above += std::abs(error) > 1000;
        if (std::abs(error) > std::abs(worst)) worst = error;
    }
    void add(const Errors &other) {
        readings += other.readings;
        above += other.above;
        if (std::abs(other.worst) > std::abs(worst)) worst = other.worst;
    }
};

void move_to(unsigned core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

// Reads at once, after pauses of up to some milliseconds, and on another core after each burst.
Errors watch(int64_t end, unsigned number, unsigned cores) {
    WallClock clock;
    Errors found;
    std::mt19937 random(number);
    while (monotonic_ns() < end) {
        move_to((number + random()) % cores);
        const unsigned burst = 1 + random() % 20'000;
        for (unsigned i = 0; i < burst; ++i) {
            const int64_t before = system_ns(CLOCK_REALTIME), value = clock.now_ns(), after = system_ns(CLOCK_REALTIME);
            if (before <= after) found.note(outside(before, value, after)); // else the clock was set back in between
            if (random() % 64 == 0)
                for (unsigned pause = random() % 2000; pause != 0; --pause) platform::pause();
        }
        if (random() % 4 == 0) platform::nap(static_cast<int64_t>(random() % 3'000'000));
    }
    return found;
}

#if defined(__x86_64__)
// A counter that is compared with the clock once, at the beginning: after so many seconds it is wrong by that much.
struct Drift {
    int64_t base_ns;
    uint64_t base_ticks;
    double rate;
    static Drift measured(int64_t for_ns) {
        const int64_t ns = system_ns(CLOCK_REALTIME);
        const uint64_t ticks = __rdtsc();
        platform::nap(for_ns);
        const int64_t later = system_ns(CLOCK_REALTIME);
        const uint64_t passed = __rdtsc() - ticks;
        return {ns, ticks, static_cast<double>(later - ns) / static_cast<double>(passed)};
    }
    int64_t error() const {
        const int64_t ns = system_ns(CLOCK_REALTIME);
        return base_ns + static_cast<int64_t>(static_cast<double>(__rdtsc() - base_ticks) * rate) - ns;
    }
};
#endif

} // namespace

int main(int argc, char **argv) {
    const uint64_t seconds = argument(argc, argv, "--seconds", 60);
    WallClock clock;
    std::printf("{\"wall clock\": %.1f, \"clock_gettime\": %.1f", cost([&] { return clock.now_ns(); }),
                cost([] { return system_ns(CLOCK_REALTIME); }));
    std::printf(", \"coarse\": %.1f", cost([] { return system_ns(CLOCK_REALTIME_COARSE); }));
#if defined(__x86_64__)
    std::printf(", \"rdtsc\": %.1f", cost([] { return static_cast<int64_t>(__rdtsc()); }));
    const Drift drift = Drift::measured(1'000'000'000);
#endif
    const unsigned cores = std::max(std::thread::hardware_concurrency(), 1u);
    const int64_t begun = monotonic_ns(), end = begun + static_cast<int64_t>(seconds) * 1'000'000'000;
    std::vector<Errors> found(cores + 1);
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < found.size(); ++number)
        threads.emplace_back([&, number] { found[number] = watch(end, number, cores); });
    for (std::thread &thread : threads) thread.join();
    Errors all;
    for (const Errors &one : found) all.add(one);
#if defined(__x86_64__)
    std::printf(", \"drift without another look\": %lld", static_cast<long long>(drift.error()));
#endif
    std::printf(", \"seconds\": %.0f, \"threads\": %zu, \"readings\": %llu, \"worst error\": %lld, \"above 1 us\": %llu}\n",
                static_cast<double>(monotonic_ns() - begun) / 1e9, found.size(), static_cast<unsigned long long>(all.readings),
                static_cast<long long>(all.worst), static_cast<unsigned long long>(all.above));
    return 0;
}
