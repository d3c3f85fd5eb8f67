// The arithmetic of time stamps in an imagined machine: a counter and a wall clock of any rate, a wall clock that is slewed,
// threads that are kept from their core between two readings, jumps of the clock and of the counter. No reading may be wrong by
// more than a microsecond, except for a millisecond after a jump. Exits non-zero and names its seed when one is.
#include "check.hpp"
#include "ground/clock.hpp"

#include <cmath>
#include <cstdlib>
#include <random>

using namespace penstock;
using namespace penstock::test;

namespace {

// True time runs in ns; the clock and the counter are functions of it.
struct Machine {
    double ghz;
    double now = 0;          // ns
    double clock = 1.7e18;   // what CLOCK_REALTIME says; a double has a grain of 256 ns there, so its parts are kept apart
    double clock_since = 0;  // ns on top of it
    double counter = 0;      // ticks
    double slew = 0;         // ppm
    double core_differs = 0; // ticks by which the other core's counter differs

    void pass(double ns) {
        now += ns;
        clock_since += ns * (1 + slew * 1e-6);
        counter += ns * ghz;
    }
    int64_t wall() const { return static_cast<int64_t>(clock) + static_cast<int64_t>(clock_since); }
    uint64_t ticks() const { return static_cast<uint64_t>(static_cast<int64_t>(counter)); }
};

struct Reader {
    CarriedTime time;
    uint64_t carried = 0, read = 0;
    // As WallClock does it; `kept`: ns for which the thread is kept from its core at one place or another.
    int64_t error(Machine &machine, double kept, int where) {
        int64_t ns;
        if (time.at(machine.ticks(), ns)) {
            ++carried;
            return ns - machine.wall();
        }
        ++read;
        const uint64_t before = machine.ticks();
        machine.pass(12 + (where == 0 ? kept : 0));
        ns = machine.wall();
        machine.pass(12 + (where == 1 ? kept : 0));
        time.read(before, ns, machine.ticks());
        return 0;
    }
};

double uniform(std::mt19937_64 &random, double low, double high) { return std::uniform_real_distribution(low, high)(random); }

void life(uint64_t seed) {
    std::mt19937_64 random(seed);
    Machine machine{uniform(random, 0.3, 6)};
    Reader reader;
    machine.slew = uniform(random, -500, 500);
    uint64_t jumped_at = 0; // how many true readings there had been
    bool jumped = false;
    const bool jumps = random() % 4 == 0, kept_away = random() % 2 == 0;
    for (int i = 0; i < 60'000; ++i) {
        machine.pass(random() % 50 == 0 ? uniform(random, 0, 3e6) : uniform(random, 20, 2000));
        if (random() % 3000 == 0) machine.slew = uniform(random, -500, 500);
        if (jumps && random() % 9000 == 0) {
            machine.clock_since += uniform(random, -5e9, 5e9);
            jumped = true, jumped_at = reader.read;
        }
        if (jumps && random() % 9000 == 0) { // a suspend in which the counter stopped, or was set to zero
            if (random() % 2 == 0) machine.counter = 0;
            machine.clock_since += uniform(random, 0, 5e9);
            jumped = true, jumped_at = reader.read;
        }
        const double kept = kept_away && random() % 20 == 0 ? uniform(random, 100, 5e6) : 0;
        const int64_t error = reader.error(machine, kept, static_cast<int>(random() % 2));
        if (reader.read > jumped_at) jumped = false;
        if (!jumped)
            CHECK(std::abs(error) <= 1000, "seed %lu: wrong by %ld ns at reading %d", (unsigned long)seed, (long)error, i);
    }
    CHECK(reader.carried > reader.read || jumps, "seed %lu: %lu carried, %lu read", (unsigned long)seed,
          (unsigned long)reader.carried, (unsigned long)reader.read);
}

// Two cores whose counters differ, which the kernel would not trust: after a few strays the clock is read each time.
void cores_that_differ(uint64_t seed) {
    std::mt19937_64 random(seed);
    Machine machine{2.5};
    Reader reader;
    uint64_t wrong_late = 0;
    for (int i = 0; i < 200'000; ++i) {
        machine.pass(uniform(random, 20, 2000));
        if (random() % 500 == 0) { // moves to the other core: its counter is 20 us ahead or behind
            machine.core_differs = machine.core_differs == 0 ? 50'000 : 0;
            machine.counter += machine.core_differs == 0 ? -50'000 : 50'000;
        }
        wrong_late += std::abs(reader.error(machine, 0, 0)) > 1000 && i > 100'000;
    }
    CHECK(wrong_late == 0, "seed %lu: still wrong %lu times", (unsigned long)seed, (unsigned long)wrong_late);
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", std::random_device{}());
    const uint64_t rounds = argument(argc, argv, "--rounds", 100);
    std::printf("clock_check --seed %lu --rounds %lu\n", (unsigned long)seed, (unsigned long)rounds);
    for (uint64_t i = 0; i < rounds; ++i) life(seed + i);
    cores_that_differ(seed);
    std::puts("no time stamp is wrong by more than a microsecond");
    return 0;
}
