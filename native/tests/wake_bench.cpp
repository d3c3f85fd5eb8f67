// Round trips of two processes that sleep on a futex, and nothing else: what the kernel takes to wake one and then the other.
// Where the two run decides it, so each of them may be told its core (--first, --second; 0 lets it run anywhere, else core + 1).
// Writes JSON: round trips in ns, the median and the 99th of a hundred, CPU time of this side, and in how many trips both sides
// were on one core at their ends. With --note each side notes its waits as a participant of a channel does. With --spin neither
// sleeps: each looks at its word until it changes. Always: what the two stores of a note take by themselves.
#include "check.hpp"
#include "ground/atomics.hpp"
#include "ground/cache_line.hpp"
#include "ground/clock.hpp"
#include "ground/wait_note.hpp"

#include <algorithm>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <vector>

using namespace penstock;
using namespace penstock::test;

namespace {

void run_on(uint64_t core_and_one) {
    if (core_and_one == 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core_and_one - 1, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

void post(Atomic<uint32_t> &word) {
    word.add(1);
    platform::futex_wake(word.address());
}
void note(Atomic<uint64_t> &noted, int64_t since_ns) {
    noted.relaxed(WaitNote{WaitsFor::messages, false, 4711, since_ns}.word());
}
void await(Atomic<uint32_t> &word, uint32_t seen, Atomic<uint64_t> *noted) {
    if (word.acquire() != seen) return;
    const int64_t since_ns = monotonic_ns(); // every wait of a channel reads the clock as it begins
    do {
        if (noted != nullptr) note(*noted, since_ns);
        platform::futex_wait(word.address(), seen, 1'000'000'000);
    } while (word.acquire() == seen);
    if (noted != nullptr) noted->relaxed(0);
}

void await_spinning(Atomic<uint32_t> &word, uint32_t seen) {
    while (word.acquire() == seen) spin_pause();
}

// The median of many rounds, in ns: a round is long against the clock's step.
double time_of_note(Atomic<uint64_t> &noted) {
    constexpr int rounds = 101, each = 1000;
    std::vector<int64_t> times;
    for (int round = 0; round < rounds; ++round) {
        const int64_t begun = monotonic_ns();
        for (int i = 0; i < each; ++i) {
            note(noted, begun + i * 1'000'000);
            __asm__ volatile("" ::: "memory"); // the first of the two stores is not left out
            noted.relaxed(0);
            __asm__ volatile("" ::: "memory");
        }
        times.push_back(monotonic_ns() - begun);
    }
    std::sort(times.begin(), times.end());
    return static_cast<double>(times[rounds / 2]) / each;
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t count = argument(argc, argv, "--count", 20'000);
    const uint64_t first = argument(argc, argv, "--first", 0), second = argument(argc, argv, "--second", 0);
    void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    auto *there = static_cast<Paired<Atomic<uint32_t>> *>(memory), *back = there + 1, *where = there + 2;
    auto *notes = reinterpret_cast<Paired<Atomic<uint64_t>> *>(there + 3);
    const bool noted = argument(argc, argv, "--note", 0) != 0, spins = argument(argc, argv, "--spin", 0) != 0;
    Atomic<uint64_t> *mine = noted ? &notes[0].value : nullptr, *others = noted ? &notes[1].value : nullptr;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_on(second);
        for (uint32_t i = 0; i < count; ++i) {
            if (spins) {
                await_spinning(there->value, i);
                back->value.add(1);
                continue;
            }
            await(there->value, i, others);
            where->value.release(static_cast<uint32_t>(sched_getcpu()));
            post(back->value);
        }
        _exit(0);
    }
    run_on(first);
    std::vector<int64_t> trips;
    uint64_t together = 0;
    const int64_t cpu = system_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (uint32_t i = 0; i < count; ++i) {
        const int64_t begun = monotonic_ns();
        if (spins) {
            there->value.add(1);
            await_spinning(back->value, i);
        } else {
            post(there->value);
            await(back->value, i, mine);
        }
        trips.push_back(monotonic_ns() - begun);
        together += where->value.acquire() == static_cast<uint32_t>(sched_getcpu());
    }
    const int64_t spent = (system_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / static_cast<int64_t>(count);
    waitpid(child, nullptr, 0);
    trips.erase(trips.begin(), trips.begin() + static_cast<ptrdiff_t>(trips.size() / 10));
    std::sort(trips.begin(), trips.end());
    std::printf("{\"p50\": %ld, \"p99\": %ld, \"cpu\": %ld, \"together\": %lu, \"note\": %.3f}\n",
                static_cast<long>(trips[trips.size() / 2]), static_cast<long>(trips[trips.size() * 99 / 100]),
                static_cast<long>(spent), static_cast<unsigned long>(together), time_of_note(notes[0].value));
    return 0;
}
