// The explorer's one machine: what an execution's threads, words, bytes and byte locks are. scheduler.cpp decides who runs,
// memory.cpp what a load returns, explorer.cpp begins and ends executions.
#pragma once

#include "byte_locks.hpp"
#include "explorer.hpp"
#include "platform.hpp"
#include "scenarios.hpp"

#include <algorithm>
#include <cstring>
#include <set>

extern "C" void penstock_model_switch(void **save, void *load);

namespace penstock::model {

// Memory that is allocated while `heap_on` is forgotten as a whole, so that abandoned fibers cost nothing.
inline constexpr size_t heap_size = 4 << 20;
extern uint8_t *heap_base;
extern size_t heap_used;
extern bool heap_on;

using platform::order;
using platform::site;

inline constexpr int locations_max = 320;
inline constexpr int messages_max = 96; // per location
inline constexpr size_t stack_size = 256 * 1024;
inline constexpr uint64_t steps_max = 20'000;
inline constexpr int idle_max = 60;
inline constexpr uint8_t nobody = 255;
inline constexpr int fences_max = 200;
inline constexpr int byte_locks_max = 64;

// A source file as reports and mutants name it: a header of the core by its folder and name.
inline const char *name_of(const char *file) {
    constexpr char core[] = "/core/";
    if (const char *found = std::strstr(file, core)) return found + sizeof core - 1;
    const char *slash = std::strrchr(file, '/');
    return slash ? slash + 1 : file;
}

inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = a ^ (b + 0x9e3779b97f4a7c15ull + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// A thread's view: for each location the oldest message it may still read, and for each
// thread how far its plain accesses happened before.
struct View {
    uint16_t at[locations_max];
    uint16_t epoch[threads_max];
    void clear() { std::memset(this, 0, sizeof *this); }
    void join(const View &other, int locations) {
        for (int i = 0; i < locations; ++i) at[i] = std::max(at[i], other.at[i]);
        for (int i = 0; i < threads_max; ++i) epoch[i] = std::max(epoch[i], other.epoch[i]);
    }
};

struct Message {
    uint64_t value;
    uint8_t writer;
    bool plain;
    uint16_t epoch;
    View view;
};

struct Location {
    const void *word;
    uint8_t size;
    uint64_t execution = 0;
    int count = 0;
    uint64_t hash = 0;
    uint16_t read_epoch[threads_max];
    // Which threads wrote and used it, over all executions. A load that no other thread's store can meet, and a store to
    // what nobody else uses, commute with everything: no preemption is tried there. When more is learnt the exploration
    // begins again.
    uint8_t writers = 0, users = 0, known_writers = 0, known_users = 0;
    Message *messages = nullptr;
};

struct Granule {
    uint64_t execution;
    uint16_t write_epoch;
    uint8_t writer, fences; // `fences`: release fences of the writer before it
    uint16_t read_epoch[threads_max];
};

enum class Status : uint8_t { ready, paused, asleep, done, dead };

struct Thread {
    std::function<void()> body;
    bool mortal = false;
    Status status = Status::ready;
    bool tolerant = false, torn = false;
    uint64_t paused_at = 0; // stores made by others when it paused
    const uint32_t *asleep_on = nullptr, *also_on = nullptr;
    View cur, acq, rel;
    uint64_t hash = 0;
    int64_t now = 0;
    int fences = 0;
    View fenced[fences_max]; // its view at each of its release fences
    uint64_t exceptions[2] = {};
    void *stack_pointer = nullptr;
    uint8_t *stack = nullptr;
};

struct ByteLockEntry {
    const void *owner;
    uint64_t byte;
    uint8_t thread; // nobody: made before the threads started
    View left;      // what its last owner had done when it let go
};

struct Choice {
    uint8_t count, taken;
};

enum class Mode { direct, depth_first, random, again };

struct Machine {
    Mode mode = Mode::direct;
    bool running = false;
    bool symmetric = false; // every fence is a full one of its own thread: where the kernel has no membarrier
    uint64_t execution = 0;
    uint8_t *base = nullptr;
    size_t size = 0, terms_from = 0;
    std::vector<uint16_t> ids;    // by (address - base) / 4; 0: none yet
    std::vector<bool> quiet;      // likewise
    std::vector<Granule> granule; // by (address - base) / 8
    std::vector<Location> locations;
    Thread threads[threads_max];
    int thread_count = 0, current = 0;
    View sc;
    uint64_t sc_hash = 0, place_hash = 0, byte_lock_hash = 0, stores = 0, steps = 0;
    int idle = 0;
    uint8_t building_for = nobody;
    ByteLockEntry byte_locks[byte_locks_max];
    int byte_lock_count = 0;
    std::function<void()> check;
    void *main_stack = nullptr;

    Budget budget;
    int preemptions_left = 0, stale_left = 0, deaths_left = 0;
    std::vector<Choice> choices;
    size_t depth = 0;
    uint64_t random = 1;
    bool pruned = false, failed = false, tracing = false, again = false;
    std::string failure;
    std::vector<std::string> trace;
    Mutant mutant;
    std::set<std::string> met;

    // States met: key → budgets they were met with.
    std::vector<std::pair<uint64_t, uint16_t>> table;
    size_t table_used = 0;
};

extern Machine m;

inline Thread &me() { return m.threads[m.current]; }

// scheduler.cpp
[[noreturn]] void leave_execution();
void note(const char *what, const void *word, uint64_t value, const site &at, const char *more = "");
int choose(int count, int likely);
void hand_over();
void schedule();
void fiber_main();

// memory.cpp
Location &locate(const void *word, size_t size, int &id);

} // namespace penstock::model
