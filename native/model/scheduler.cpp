// Chooses the next thread, and ends executions.
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>

namespace penstock::model {

Machine m;

void leave_execution() {
    void *unused;
    penstock_model_switch(&unused, m.main_stack);
    std::abort();
}

void note(const char *what, const void *word, uint64_t value, const site &at, const char *more) {
    if (!m.tracing) return;
    const HeapOff off;
    char line[200];
    std::snprintf(line, sizeof line, "thread %d  %-8s +0x%-6zx %#18llx %s  %s:%u", m.current, what,
                  word == nullptr ? size_t{0} : static_cast<size_t>(static_cast<const uint8_t *>(word) - m.base),
                  static_cast<unsigned long long>(value), more, name_of(at.file), at.line);
    m.trace.emplace_back(line);
}

void fail(const std::string &what) {
    const HeapOff off;
    m.failed = true;
    m.failure = std::string(what.c_str());
    if (!m.running) {
        struct Failed {};
        throw Failed();
    }
    leave_execution();
}

// ---- choosing ----

static uint64_t dice() {
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return m.random;
}

// `likely`: how often, of 16, random wandering takes the first alternative.
int choose(int count, int likely) {
    if (count == 1) return 0;
    const HeapOff off;
    if (m.mode == Mode::random) {
        const int taken = static_cast<int>(dice() % 16) < likely ? 0 : static_cast<int>(dice() % static_cast<uint64_t>(count));
        m.choices.push_back({static_cast<uint8_t>(count), static_cast<uint8_t>(taken)});
        return taken;
    }
    if (m.depth == m.choices.size()) m.choices.push_back({static_cast<uint8_t>(count), 0});
    const Choice &choice = m.choices[m.depth++];
    if (choice.count != count && m.mode == Mode::depth_first) {
        std::fprintf(stderr, "the scenario is not deterministic: %d alternatives, %d before\n", count, choice.count);
        std::abort();
    }
    return std::min<int>(choice.taken, count - 1);
}

static uint64_t state_key() {
    uint64_t key = mix(m.place_hash, m.sc_hash + static_cast<uint64_t>(m.current) * 77);
    key = mix(key, m.byte_lock_hash);
    for (int i = 0; i < m.thread_count; ++i) {
        const Thread &t = m.threads[i];
        key = mix(key, t.hash);
        key = mix(key, static_cast<uint64_t>(t.status) * 4 + (t.status == Status::paused && t.paused_at != m.stores ? 1 : 0));
    }
    return key | 1;
}

// Whether this state was met before with at least this much left to spend.
static bool met_before() {
    const HeapOff off;
    if (m.table.empty()) m.table.resize(size_t{1} << 16);
    if (m.table_used * 2 > m.table.size()) {
        std::vector<std::pair<uint64_t, uint16_t>> old(m.table.size() * 2);
        old.swap(m.table);
        for (const auto &entry : old) {
            if (entry.first == 0) continue;
            size_t at = entry.first & (m.table.size() - 1);
            while (m.table[at].first != 0) at = (at + 1) & (m.table.size() - 1);
            m.table[at] = entry;
        }
    }
    const uint64_t key = mix(state_key(), static_cast<uint64_t>(m.deaths_left)) | 1;
    size_t at = key & (m.table.size() - 1);
    while (m.table[at].first != 0 && m.table[at].first != key) at = (at + 1) & (m.table.size() - 1);
    if (m.table[at].first == 0) {
        m.table[at].first = key;
        ++m.table_used;
    }
    const int p = std::min(m.preemptions_left, 3), s = std::min(m.stale_left, 3);
    if (m.table[at].second >> (p * 4 + s) & 1) return true;
    for (int i = 0; i <= p; ++i)
        for (int j = 0; j <= s; ++j) m.table[at].second |= static_cast<uint16_t>(1u << (i * 4 + j));
    return false;
}

// ---- who runs ----

static bool enabled(const Thread &t) {
    return t.status == Status::ready || (t.status == Status::paused && t.paused_at != m.stores);
}

static void switch_to(int thread) {
    if (thread == m.current) return;
    const int before = m.current;
    m.current = thread;
    // The language's record of exceptions in flight belongs to the fiber.
    auto *globals = reinterpret_cast<uint64_t *>(abi::__cxa_get_globals());
    m.threads[before].exceptions[0] = globals[0];
    m.threads[before].exceptions[1] = globals[1];
    globals[0] = m.threads[thread].exceptions[0];
    globals[1] = m.threads[thread].exceptions[1];
    penstock_model_switch(&m.threads[before].stack_pointer, m.threads[thread].stack_pointer);
}

static void die() {
    note("dies", nullptr, 0, site::here());
    Thread &t = me();
    t.status = Status::dead;
    ++m.stores; // the kernel's lock goes: something changed
}

// Hands over when the current thread cannot go on, or ends the execution.
void hand_over() {
    int able[threads_max], count = 0;
    for (int i = 0; i < m.thread_count; ++i)
        if (enabled(m.threads[i])) able[count++] = i;
    if (count == 0) { // only resting threads are left: let them look again, in turn, but not for ever
        for (int i = 1; i <= m.thread_count && count == 0; ++i) {
            const int next = (m.current + i) % m.thread_count;
            if (m.threads[next].status == Status::paused) able[count++] = next;
        }
        if (count != 0 && ++m.idle > idle_max) fail("stuck: the living spin and nothing changes any more");
    }
    if (count == 0) {
        for (int i = 0; i < m.thread_count; ++i)
            if (m.threads[i].status == Status::asleep) fail("lost wake-up: everybody left sleeps");
        leave_execution();
    }
    if (m.mode == Mode::depth_first && m.depth == m.choices.size() && count > 1 && met_before()) {
        m.pruned = true;
        leave_execution();
    }
    const int next = able[choose(count, 0)];
    if (m.threads[next].status == Status::paused) m.threads[next].status = Status::ready;
    if (next != m.current) switch_to(next);
}

// Before each shared operation: the current thread goes on, or another one does, or it is killed here.
void schedule() {
    if (++m.steps > steps_max) fail("no end in sight");
    me().hash =
        mix(me().hash, 0x5c); // an operation that changes nothing may follow: the next place is another state all the same
    int able[threads_max + 1], count = 0;
    able[count++] = m.current;
    if (m.preemptions_left > 0)
        for (int i = 0; i < m.thread_count; ++i)
            if (i != m.current && enabled(m.threads[i])) able[count++] = i;
    const bool may_die = me().mortal && m.deaths_left > 0;
    const int alternatives = count + (may_die ? 1 : 0);
    if (alternatives == 1) return;
    if (m.mode == Mode::depth_first && m.depth == m.choices.size() && met_before()) {
        m.pruned = true;
        leave_execution();
    }
    const int taken = choose(alternatives, 13);
    if (taken == count) {
        --m.deaths_left;
        die();
        hand_over();
        std::abort(); // a dead thread never runs again
    }
    if (taken == 0) return;
    --m.preemptions_left;
    const int next = able[taken];
    if (m.threads[next].status == Status::paused) m.threads[next].status = Status::ready;
    switch_to(next);
}

void fiber_main() {
    try {
        me().body();
    } catch (const std::exception &error) {
        fail(std::string("thread ") + std::to_string(m.current) + " threw: " + error.what());
    }
    me().status = Status::done;
    ++m.stores;
    hand_over();
    std::abort();
}

} // namespace penstock::model
