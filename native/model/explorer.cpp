// Worlds, byte locks, and the executions of a scenario: depth-first or at random.
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <sys/mman.h>

namespace penstock::model {

// ---- World ----

void World::share(void *base, size_t size, size_t terms_from) {
    m.terms_from = terms_from;
    if (m.base == base && m.size == size) return;
    const HeapOff off;
    m.base = static_cast<uint8_t *>(base);
    m.size = size;
    m.ids.assign(size / 4, 0);
    m.quiet.assign(size / 4, false);
    m.granule.assign(size / 8, Granule{});
    for (Location &place : m.locations) std::free(place.messages);
    m.locations.clear();
    m.locations.reserve(locations_max); // they are held by reference while other threads run
}

void World::quiet(const void *from, size_t length) {
    const auto at = static_cast<size_t>(static_cast<const uint8_t *>(from) - m.base);
    for (size_t i = at / 4; i < (at + length) / 4; ++i) m.quiet[i] = true;
}

void World::thread(std::function<void()> body, bool mortal) {
    Thread &t = m.threads[m.thread_count++];
    t.body = std::move(body);
    t.mortal = mortal;
}
void World::finally(std::function<void()> check) { m.check = std::move(check); }
void World::tolerate() { me().tolerant = true; }
bool World::torn() {
    const bool was = me().torn;
    me().torn = false;
    return was;
}
void World::owner(int thread) { m.building_for = thread < 0 ? nobody : static_cast<uint8_t>(thread); }
bool World::died(int thread) { return m.threads[thread].status == Status::dead; }
bool World::finished(int thread) { return m.threads[thread].status == Status::done; }

// ---- byte locks: the kernel's lock table is under a lock of its own, which orders who asks behind who has gone ----

static void see_all_of(const View &view) {
    me().cur.join(view, static_cast<int>(m.locations.size()));
    me().acq.join(me().cur, static_cast<int>(m.locations.size()));
}

bool byte_lock_take(const void *owner, uint64_t byte) {
    if (m.running) schedule();
    for (int i = 0; i < m.byte_lock_count; ++i) {
        ByteLockEntry &entry = m.byte_locks[i];
        if (entry.byte != byte) continue;
        const bool dead = entry.thread != nobody && m.threads[entry.thread].status == Status::dead;
        if (!dead && entry.owner != nullptr) {
            if (m.running) me().hash = mix(me().hash, 0x5ea7);
            errno = EAGAIN;
            return entry.owner == owner;
        }
        if (m.running) { // the kernel's lock orders the one before with us
            if (entry.thread != nobody) see_all_of(entry.owner == nullptr ? entry.left : m.threads[entry.thread].cur);
            me().hash = mix(me().hash, mix(0x5ea8 + byte, m.byte_lock_hash));
            m.byte_lock_hash = mix(m.byte_lock_hash, me().hash);
            ++m.stores;
        }
        entry.owner = owner;
        entry.thread = m.running ? static_cast<uint8_t>(m.current) : m.building_for;
        return true;
    }
    if (m.byte_lock_count == byte_locks_max) std::abort();
    ByteLockEntry &fresh = m.byte_locks[m.byte_lock_count++];
    fresh.owner = owner;
    fresh.byte = byte;
    fresh.thread = m.running ? static_cast<uint8_t>(m.current) : m.building_for;
    if (m.running) {
        me().hash = mix(me().hash, mix(0x5ea9 + byte, m.byte_lock_hash));
        m.byte_lock_hash = mix(m.byte_lock_hash, me().hash);
    }
    return true;
}

void byte_lock_pass(const void *from, const void *to) {
    for (int i = 0; i < m.byte_lock_count; ++i)
        if (m.byte_locks[i].owner == from) m.byte_locks[i].owner = to;
}

void byte_lock_leave(const void *owner, uint64_t byte, bool all) {
    if (m.running) schedule();
    for (int i = 0; i < m.byte_lock_count; ++i)
        if (m.byte_locks[i].owner == owner && (all || m.byte_locks[i].byte == byte)) {
            m.byte_locks[i].owner = nullptr; // `thread` stays: the next one is ordered behind it
            m.byte_locks[i].left.clear();    // a participant that left during the build comes before all
            if (m.running) {
                m.byte_locks[i].thread = static_cast<uint8_t>(m.current);
                m.byte_locks[i].left = me().cur;
                me().hash = mix(me().hash, 0x5eaa + m.byte_locks[i].byte);
                m.byte_lock_hash = mix(m.byte_lock_hash, me().hash);
                ++m.stores;
            }
        }
}

bool byte_lock_taken_by_other(const void *owner, uint64_t byte) {
    if (m.running) schedule();
    for (int i = 0; i < m.byte_lock_count; ++i) {
        const ByteLockEntry &entry = m.byte_locks[i];
        if (entry.byte != byte) continue;
        if (entry.owner == nullptr) { // the kernel's lock orders a look behind who left, as it orders a taking
            if (!m.running) return false;
            if (entry.thread != nobody) see_all_of(entry.left);
            me().hash = mix(me().hash, mix(0x5eac + byte, m.byte_lock_hash));
            return false;
        }
        const bool dead = entry.thread != nobody && m.threads[entry.thread].status == Status::dead;
        if (m.running) {
            if (dead) see_all_of(m.threads[entry.thread].cur);
            me().hash = mix(me().hash, 0x5eab + (dead ? 1 : 0));
        }
        return !dead && entry.owner != owner;
    }
    if (m.running) me().hash = mix(me().hash, 0x5eac);
    return false;
}

// ---- executions ----

namespace {

void begin_execution(Build build) {
    ++m.execution;
    heap_used = 0;
    m.running = false;
    m.thread_count = 0;
    m.byte_lock_count = 0;
    m.sc.clear();
    m.sc_hash = m.place_hash = m.byte_lock_hash = m.stores = m.steps = 0;
    m.idle = 0;
    m.pruned = m.failed = false;
    m.depth = 0;
    m.preemptions_left = m.mode == Mode::random ? 1 << 20 : m.budget.preemptions;
    m.stale_left = m.mode == Mode::random ? 1 << 20 : m.budget.stale;
    m.deaths_left = 1;
    m.building_for = nobody;
    m.trace.clear();
    heap_on = true;
    new (&m.check) std::function<void()>();
    for (Thread &t : m.threads) {
        new (&t.body) std::function<void()>();
        t.status = Status::ready;
    }
    build();
    for (int i = 0; i < m.thread_count; ++i) {
        Thread &t = m.threads[i];
        if (t.stack == nullptr) {
            t.stack = static_cast<uint8_t *>(
                mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
        }
        t.status = Status::ready;
        t.tolerant = t.torn = false;
        t.now = 0;
        t.fences = 0;
        t.fenced[0].clear();
        t.exceptions[0] = t.exceptions[1] = 0;
        t.cur.clear();
        t.acq.clear();
        t.rel.clear();
        t.hash = static_cast<uint64_t>(i) + 1;
        auto *top = reinterpret_cast<uint64_t *>(t.stack + stack_size);
#if defined(__x86_64__)
        *--top = 0; // the return address that nobody returns to, and the alignment a call leaves
        *--top = reinterpret_cast<uint64_t>(&fiber_main);
        for (int r = 0; r < 6; ++r) *--top = 0;
#else
        top -= 22;
        std::memset(top, 0, 176);
        top[11] = reinterpret_cast<uint64_t>(&fiber_main); // x30
#endif
        t.stack_pointer = top;
    }
}

void run_execution(Build build) {
    begin_execution(build);
    m.running = true;
    m.current = 0;
    if (m.thread_count > 1) m.current = choose(m.thread_count, 4);
    penstock_model_switch(&m.main_stack, m.threads[m.current].stack_pointer);
    auto *globals = reinterpret_cast<uint64_t *>(abi::__cxa_get_globals());
    globals[0] = globals[1] = 0;
    m.running = false;
    if (!m.pruned && !m.failed && m.check) {
        try {
            m.check();
        } catch (const std::exception &error) {
            m.failed = true;
            heap_on = false;
            m.failure = std::string("the final check threw: ") + error.what();
        } catch (...) { // `fail` in the check
            m.failed = true;
        }
    }
    heap_on = false;
}

void prepare(const Budget &budget, const Mutant &mutant, Mode mode) {
    if (heap_base == nullptr)
        heap_base = static_cast<uint8_t *>(
            mmap(nullptr, heap_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    m.mode = mode;
    m.budget = budget;
    m.mutant = mutant;
    m.choices.clear();
    m.table.clear();
    m.table.shrink_to_fit();
    m.table_used = 0;
    m.again = false;
    m.base = nullptr; // each scenario has its own sharing
    m.size = 0;
}

// The execution that failed, once more, and this time every operation is written down.
void explain(Build build, Outcome &outcome) {
    outcome.failure = m.failure;
    if (m.mode == Mode::random) m.budget.preemptions = m.budget.stale = 1 << 20;
    m.mode = Mode::again;
    m.tracing = true;
    run_execution(build);
    outcome.trace = m.trace;
    m.tracing = false;
}

void begin_again() {
    m.again = false;
    for (Location &place : m.locations) {
        place.known_users = place.users;
        place.known_writers = place.writers;
    }
    m.choices.clear();
    m.table.clear();
    m.table_used = 0;
}

} // namespace

Outcome explore(Build build, const Budget &budget, const Mutant &mutant) {
    prepare(budget, mutant, Mode::depth_first);
    Outcome outcome;
    for (;;) {
        run_execution(build);
        outcome.steps += m.steps;
        if (m.again && !m.failed) {
            begin_again();
            continue;
        }
        if (m.pruned) ++outcome.pruned;
        else ++outcome.executions;
        if (m.failed) {
            explain(build, outcome);
            return outcome;
        }
        m.choices.resize(m.depth);
        while (!m.choices.empty() && m.choices.back().taken + 1 == m.choices.back().count) m.choices.pop_back();
        if (m.choices.empty()) {
            outcome.exhausted = true;
            return outcome;
        }
        ++m.choices.back().taken;
        if (outcome.executions + outcome.pruned >= budget.executions) return outcome;
    }
}

Outcome wander(Build build, uint64_t executions, uint64_t seed, const Mutant &mutant) {
    prepare({}, mutant, Mode::random);
    Outcome outcome;
    for (uint64_t i = 0; i < executions; ++i) {
        m.random = mix(seed, i) | 1;
        m.choices.clear();
        if (m.again) begin_again();
        run_execution(build);
        outcome.steps += m.steps;
        ++outcome.executions;
        if (m.failed) {
            explain(build, outcome);
            return outcome;
        }
    }
    return outcome;
}

std::vector<std::string> sites_met() { return {m.met.begin(), m.met.end()}; }

void make_symmetric() { m.symmetric = true; }

} // namespace penstock::model
