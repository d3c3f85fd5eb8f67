// Explores the interleavings of a few threads over one small channel, under release/acquire semantics: a load may return
// any value that its thread is not yet forbidden to see. Depth-first within budgets, or at random. One OS thread; the
// threads of a scenario are fibers. How it works and what it leaves out: docs/design/evidence.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::model {

inline constexpr int threads_max = 4;

void make_symmetric(); // see light_fence

struct Budget {
    int preemptions = 3;
    int stale = 3;
    uint64_t executions = UINT64_MAX; // gives up the claim to be exhaustive beyond these
};

// Makes one operation weaker wherever it runs: `what` is acquire, release, failure (of a swap) or fence.
struct Mutant {
    std::string file;
    uint32_t line = 0, column = 0;
    std::string what;
    bool active() const { return line != 0; }
};

// The argument of a scenario's build function. Everything allocated during an execution is dropped at its end unseen.
class World {
  public:
    // The shared bytes. Words at multiples of 32 from `terms` on, and all words before, may be atomic.
    static void share(void *base, size_t size, size_t terms_from);
    // Words that need no exploring: counters, identification.
    static void quiet(const void *from, size_t length);
    static void thread(std::function<void()> body, bool mortal = false);
    static void finally(std::function<void()> check);
    // Byte locks that are taken while building belong to this thread from now on (-1: to nobody who can die).
    static void owner(int thread);
    // The running thread may read bytes that change under it; `torn` says since the last call whether it did.
    static void tolerate();
    static bool torn();
    static bool died(int thread);
    static bool finished(int thread);
};

[[noreturn]] void fail(const std::string &what);
#define EXPECT(what)                                                                                                             \
    do {                                                                                                                         \
        if (!(what)) ::penstock::model::fail(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #what);                 \
    } while (0)

using Build = void (*)();

struct Outcome {
    uint64_t executions = 0; // run to their end
    uint64_t pruned = 0;     // stopped where a state was met again
    uint64_t steps = 0;
    bool exhausted = false;
    std::string failure; // empty: none
    std::vector<std::string> trace;
};

// Every operation met so far, as file:line:column:kind.
std::vector<std::string> sites_met();

Outcome explore(Build build, const Budget &budget, const Mutant &mutant);
Outcome wander(Build build, uint64_t executions, uint64_t seed, const Mutant &mutant);

} // namespace penstock::model
