#include "explorer.hpp"

#include "platform.hpp"
#include "scenarios.hpp"
#include "seat.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <new>
#include <set>
#include <sys/mman.h>

// ---- memory of one execution: a heap that is forgotten as a whole, so that abandoned fibers cost nothing ----

namespace {

constexpr size_t heap_size = 4 << 20;
uint8_t *heap_base = nullptr;
size_t heap_used = 0;
bool heap_on = false;

void *allocate(size_t size) {
    if (!heap_on) {
        void *at = std::malloc(size == 0 ? 1 : size);
        if (at == nullptr) throw std::bad_alloc();
        return at;
    }
    void *at = heap_base + heap_used;
    heap_used += (size + 15) & ~size_t{15};
    if (heap_used > heap_size) std::abort();
    return at;
}
void release(void *at) {
    const auto *byte = static_cast<uint8_t *>(at);
    if (heap_base != nullptr && byte >= heap_base && byte < heap_base + heap_size) return;
    std::free(at);
}

} // namespace

void *operator new(size_t size) { return allocate(size); }
void *operator new[](size_t size) { return allocate(size); }
void operator delete(void *at) noexcept { release(at); }
void operator delete[](void *at) noexcept { release(at); }
void operator delete(void *at, size_t) noexcept { release(at); }
void operator delete[](void *at, size_t) noexcept { release(at); }

// ---- fibers: a switch saves what the calling convention asks for ----

extern "C" void penstock_model_switch(void **save, void *load);
#if defined(__x86_64__)
asm(R"(
.text
.globl penstock_model_switch
.type penstock_model_switch,@function
penstock_model_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size penstock_model_switch,.-penstock_model_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl penstock_model_switch
penstock_model_switch:
    sub sp, sp, #176
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    ret
)");
#else
#error "the checker's fibers know x86-64 and AArch64"
#endif

namespace penstock::model {

HeapOff::HeapOff() : before_(heap_on) { heap_on = false; }
HeapOff::~HeapOff() { heap_on = before_; }

namespace {

using platform::order;
using platform::site;

constexpr int locations_max = 320;
constexpr int messages_max = 96; // per location
constexpr size_t stack_size = 256 * 1024;
constexpr uint64_t steps_max = 20'000;
constexpr int idle_max = 60;
constexpr uint8_t nobody = 255;
constexpr int fences_max = 64;

uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = a ^ (b + 0x9e3779b97f4a7c15ull + (a << 6) + (a >> 2));
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// What a thread may no longer be ignorant of: for each location the oldest message it may still read, and for each
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
    const uint32_t *asleep_on = nullptr;
    View cur, acq, rel;
    uint64_t hash = 0;
    int64_t now = 0;
    int fences = 0;
    View fenced[fences_max]; // what it had seen at each of its release fences
    uint64_t exceptions[2] = {};
    void *stack_pointer = nullptr;
    uint8_t *stack = nullptr;
};

struct SeatEntry {
    const void *owner;
    uint64_t byte;
    uint8_t thread; // nobody: made before the threads started
    View left;      // what its last owner had done when it let go
};

struct Choice {
    uint8_t count, taken;
};

enum class Mode { direct, depth_first, random, replay };

struct Machine {
    Mode mode = Mode::direct;
    bool running = false;
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
    uint64_t sc_hash = 0, place_hash = 0, seat_hash = 0, stores = 0, steps = 0;
    int idle = 0;
    uint8_t building_for = nobody;
    SeatEntry seats[64];
    int seat_count = 0;
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
    std::vector<const void *> met_fast;

    // States met: key → budgets they were met with.
    std::vector<std::pair<uint64_t, uint16_t>> table;
    size_t table_used = 0;
} m;

Thread &me() { return m.threads[m.current]; }

[[noreturn]] void leave_execution() {
    void *unused;
    penstock_model_switch(&unused, m.main_stack);
    std::abort();
}

void note(const char *what, const void *word, uint64_t value, const site &at, const char *more = "") {
    if (!m.tracing) return;
    const HeapOff off;
    const char *file = std::strrchr(at.file, '/');
    char line[200];
    std::snprintf(line, sizeof line, "thread %d  %-8s +0x%-6zx %#18llx %s  %s:%u", m.current, what,
                  word == nullptr ? size_t{0} : static_cast<size_t>(static_cast<const uint8_t *>(word) - m.base),
                  static_cast<unsigned long long>(value), more, file ? file + 1 : at.file, at.line);
    m.trace.emplace_back(line);
}

// ---- choosing ----

uint64_t dice() {
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

uint64_t state_key() {
    uint64_t key = mix(m.place_hash, m.sc_hash + static_cast<uint64_t>(m.current) * 77);
    key = mix(key, m.seat_hash);
    for (int i = 0; i < m.thread_count; ++i) {
        const Thread &t = m.threads[i];
        key = mix(key, t.hash);
        key = mix(key, static_cast<uint64_t>(t.status) * 4 + (t.status == Status::paused && t.paused_at != m.stores ? 1 : 0));
    }
    return key | 1;
}

// Whether this state was met before with at least this much left to spend.
bool met_before() {
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

bool enabled(const Thread &t) { return t.status == Status::ready || (t.status == Status::paused && t.paused_at != m.stores); }

void switch_to(int thread) {
    if (thread == m.current) return;
    const int before = m.current;
    m.current = thread;
    // What the language keeps of exceptions in flight belongs to the fiber.
    auto *globals = reinterpret_cast<uint64_t *>(abi::__cxa_get_globals());
    m.threads[before].exceptions[0] = globals[0];
    m.threads[before].exceptions[1] = globals[1];
    globals[0] = m.threads[thread].exceptions[0];
    globals[1] = m.threads[thread].exceptions[1];
    penstock_model_switch(&m.threads[before].stack_pointer, m.threads[thread].stack_pointer);
}

void die() {
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
    if (count == 0) { // nobody but those who rest: let them look again, in turn, but not for ever
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
    int alternatives = count;
    if (m.mode == Mode::depth_first && m.depth == m.choices.size() && count > 1 && met_before()) {
        m.pruned = true;
        leave_execution();
    }
    const int next = able[choose(alternatives, 0)];
    if (m.threads[next].status == Status::paused) m.threads[next].status = Status::ready;
    if (next != m.current) switch_to(next);
}

// Before each shared operation: the current thread goes on, or another one does, or it is killed here.
void schedule() {
    if (++m.steps > steps_max) fail("no end in sight");
    int able[threads_max + 1], count = 0;
    able[count++] = m.current;
    const bool bounded = m.mode != Mode::random;
    if (!bounded || m.preemptions_left > 0)
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

// ---- memory ----

bool outside(const void *word) {
    const auto *byte = static_cast<const uint8_t *>(word);
    return !m.running || byte < m.base || byte >= m.base + m.size || m.quiet[static_cast<size_t>(byte - m.base) / 4];
}

uint64_t load_raw(const void *word, size_t size) {
    if (size == 8) return *static_cast<const uint64_t *>(word);
    return *static_cast<const uint32_t *>(word);
}
void store_raw(void *word, size_t size, uint64_t value) {
    if (size == 8) *static_cast<uint64_t *>(word) = value;
    else *static_cast<uint32_t *>(word) = static_cast<uint32_t>(value);
}

Location &locate(const void *word, size_t size, int &id) {
    uint16_t &known = m.ids[static_cast<size_t>(static_cast<const uint8_t *>(word) - m.base) / 4];
    if (known == 0) {
        const HeapOff off;
        if (m.locations.size() == locations_max) {
            std::fprintf(stderr, "too many shared words for the checker\n");
            std::abort();
        }
        Location fresh{};
        fresh.word = word;
        fresh.size = static_cast<uint8_t>(size);
        fresh.messages = static_cast<Message *>(std::malloc(sizeof(Message) * messages_max));
        m.locations.push_back(fresh);
        known = static_cast<uint16_t>(m.locations.size());
    }
    id = known - 1;
    Location &place = m.locations[static_cast<size_t>(id)];
    if (place.execution != m.execution) {
        place.execution = m.execution;
        place.count = 1;
        place.hash = 0;
        std::memset(place.read_epoch, 0, sizeof place.read_epoch);
        Message &first = place.messages[0];
        first.value = load_raw(word, size);
        first.writer = nobody;
        first.plain = false;
        first.epoch = 0;
        first.view.clear();
    }
    return place;
}

void learn(Location &place, bool writes) {
    const auto me_bit = static_cast<uint8_t>(1u << m.current);
    if ((place.users & me_bit) == 0 || (writes && (place.writers & me_bit) == 0)) m.again = true;
    place.users |= me_bit;
    if (writes) place.writers |= me_bit;
}

Location &reach(const void *word, size_t size, bool writes, int &id) {
    Location &place = locate(word, size, id);
    if (((writes ? place.known_users : place.known_writers) & ~(1u << m.current)) != 0) schedule();
    learn(place, writes);
    return place;
}

bool before_me(uint8_t writer, uint16_t epoch) {
    return writer == nobody || writer == m.current || me().cur.epoch[writer] >= epoch;
}

void race(const char *what, const void *at) {
    if (me().tolerant) {
        me().torn = true;
        return;
    }
    char text[160];
    std::snprintf(text, sizeof text, "data race: thread %d %s at offset 0x%zx", m.current, what,
                  static_cast<size_t>(static_cast<const uint8_t *>(at) - m.base));
    fail(text);
}

void hashed(Location &place, int id) {
    m.place_hash ^= mix(static_cast<uint64_t>(id) + 1, place.hash);
    place.hash = mix(place.hash, me().hash);
    m.place_hash ^= mix(static_cast<uint64_t>(id) + 1, place.hash);
}

bool has_acquire(order how) { return how == order::acquire || how == order::acq_rel || how == order::seq_cst; }
bool has_release(order how) { return how == order::release || how == order::acq_rel || how == order::seq_cst; }

// A mutant takes one half of one operation's order away.
order weakened(order how, const site &at, const char *half) {
    if (!m.mutant.active() || at.line != m.mutant.line || (m.mutant.column != 0 && at.column != m.mutant.column)) return how;
    if (m.mutant.what != half || std::strstr(at.file, m.mutant.file.c_str()) == nullptr) return how;
    if (half[0] == 'a' || half[0] == 'f') return has_release(how) ? order::release : order::relaxed;
    return has_acquire(how) ? order::acquire : order::relaxed;
}

void meet(const site &at, const char *kind) {
    if (m.mutant.active() || m.tracing) return;
    char text[200];
    const char *file = std::strrchr(at.file, '/');
    std::snprintf(text, sizeof text, "%s:%u:%u:%s", file ? file + 1 : at.file, at.line, at.column, kind);
    const HeapOff off;
    m.met.emplace(text);
}
// A site is named once; the set is asked only for those not seen in a small table.
void meet_fast(const site &at, const char *kind) {
    static struct {
        const char *file;
        uint32_t line, column;
        const char *kind;
    } seen[4096];
    auto &slot = seen[(at.line * 131 + at.column * 7 + static_cast<unsigned char>(kind[0])) % 4096];
    if (slot.file == at.file && slot.line == at.line && slot.column == at.column && slot.kind == kind) return;
    slot = {at.file, at.line, at.column, kind};
    meet(at, kind);
}

void observe(const Message &message, order how) {
    Thread &t = me();
    const int count = static_cast<int>(m.locations.size());
    t.acq.join(message.view, count);
    if (has_acquire(how)) t.cur.join(message.view, count);
}

void append(Location &place, int id, uint64_t value, order how, bool plain, const View *chain) {
    if (place.count == messages_max) fail("too many stores to one word");
    Thread &t = me();
    const auto stamp = static_cast<uint16_t>(place.count);
    Message &message = place.messages[place.count++];
    message.value = value;
    message.writer = static_cast<uint8_t>(m.current);
    message.plain = plain;
    message.epoch = ++t.cur.epoch[m.current];
    t.acq.epoch[m.current] = t.cur.epoch[m.current];
    t.cur.at[id] = t.acq.at[id] = stamp;
    const int count = static_cast<int>(m.locations.size());
    if (has_release(how)) message.view = t.cur;
    else message.view = t.rel;
    message.view.at[id] = stamp;
    if (chain != nullptr) message.view.join(*chain, count); // a release sequence goes on through read-modify-writes
    hashed(place, id);
    ++m.stores;
    m.idle = 0;
}

void plain_write_word(const void *word) {
    int id;
    Location &place = locate(word, 8, id);
    learn(place, true);
    const Message &last = place.messages[place.count - 1];
    if (!before_me(last.writer, last.epoch)) race("writes a word that another one stored to", word);
    for (int i = 0; i < m.thread_count; ++i)
        if (i != m.current && me().cur.epoch[i] < place.read_epoch[i]) race("writes a word that another one reads", word);
    append(place, id, load_raw(word, 8), order::relaxed, true, nullptr);
}

Granule &granule_at(const uint8_t *byte) {
    Granule &g = m.granule[static_cast<size_t>(byte - m.base) / 8];
    if (g.execution != m.execution) {
        g = {};
        g.execution = m.execution;
        g.writer = nobody;
    }
    return g;
}

} // namespace

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

// ---- seats: the kernel's lock table is under a lock of its own, which orders who asks behind who has gone ----

static void see_all_of(const View &view) {
    me().cur.join(view, static_cast<int>(m.locations.size()));
    me().acq.join(me().cur, static_cast<int>(m.locations.size()));
}

bool seat_take(const void *owner, uint64_t byte) {
    if (m.running) schedule();
    for (int i = 0; i < m.seat_count; ++i) {
        SeatEntry &entry = m.seats[i];
        if (entry.byte != byte) continue;
        const bool dead = entry.thread != nobody && m.threads[entry.thread].status == Status::dead;
        if (!dead && entry.owner != nullptr) {
            if (m.running) me().hash = mix(me().hash, 0x5ea7);
            errno = EAGAIN;
            return entry.owner == owner;
        }
        if (m.running) { // the kernel's lock orders the one before with us
            if (entry.thread != nobody) see_all_of(entry.owner == nullptr ? entry.left : m.threads[entry.thread].cur);
            me().hash = mix(me().hash, mix(0x5ea8 + byte, m.seat_hash));
            m.seat_hash = mix(m.seat_hash, me().hash);
            ++m.stores;
        }
        entry.owner = owner;
        entry.thread = m.running ? static_cast<uint8_t>(m.current) : m.building_for;
        return true;
    }
    if (m.seat_count == 64) std::abort();
    SeatEntry &fresh = m.seats[m.seat_count++];
    fresh.owner = owner;
    fresh.byte = byte;
    fresh.thread = m.running ? static_cast<uint8_t>(m.current) : m.building_for;
    if (m.running) {
        me().hash = mix(me().hash, mix(0x5ea9 + byte, m.seat_hash));
        m.seat_hash = mix(m.seat_hash, me().hash);
    }
    return true;
}

void seat_leave(const void *owner, uint64_t byte, bool all) {
    if (m.running) schedule();
    for (int i = 0; i < m.seat_count; ++i)
        if (m.seats[i].owner == owner && (all || m.seats[i].byte == byte)) {
            m.seats[i].owner = nullptr; // `thread` stays: the next one is ordered behind it
            if (m.running) {
                m.seats[i].thread = static_cast<uint8_t>(m.current);
                m.seats[i].left = me().cur;
                me().hash = mix(me().hash, 0x5eaa + m.seats[i].byte);
                m.seat_hash = mix(m.seat_hash, me().hash);
                ++m.stores;
            }
        }
}

bool seat_taken_by_other(const void *owner, uint64_t byte) {
    if (m.running) schedule();
    for (int i = 0; i < m.seat_count; ++i) {
        const SeatEntry &entry = m.seats[i];
        if (entry.byte != byte || entry.owner == nullptr) continue;
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
    m.seat_count = 0;
    m.sc.clear();
    m.sc_hash = m.place_hash = m.seat_hash = m.stores = m.steps = 0;
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

// One execution; false when it was cut short because its state was met before.
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
    m.base = nullptr; // each scenario shares anew
    m.size = 0;
}

std::string spell(const std::vector<Choice> &choices) {
    std::string text;
    for (const Choice &choice : choices)
        text += static_cast<char>(choice.taken < 10 ? '0' + choice.taken : 'a' + choice.taken - 10);
    while (!text.empty() && text.back() == '0') text.pop_back();
    return text.empty() ? "0" : text;
}

void explain(Build build, Outcome &outcome) {
    const Mode before = m.mode;
    m.mode = Mode::replay;
    m.tracing = true;
    std::vector<Choice> kept = m.choices;
    if (before == Mode::random) {
        m.budget.preemptions = m.budget.stale = 1 << 20;
    }
    run_execution(build);
    outcome.trace = m.trace;
    m.tracing = false;
    m.mode = before;
    m.choices = kept;
}

} // namespace

namespace {
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
            outcome.failure = m.failure;
            outcome.choices = spell(m.choices);
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
            outcome.failure = m.failure;
            outcome.choices = spell(m.choices);
            explain(build, outcome);
            return outcome;
        }
    }
    return outcome;
}

Outcome replay(Build build, const Budget &budget, const std::string &choices, const Mutant &mutant) {
    prepare(budget, mutant, Mode::replay);
    for (const char c : choices) m.choices.push_back({255, static_cast<uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10)});
    Outcome outcome;
    m.tracing = true;
    run_execution(build);
    m.tracing = false;
    ++outcome.executions;
    outcome.trace = m.trace;
    if (m.failed) outcome.failure = m.failure;
    return outcome;
}

std::vector<std::string> sites_met() { return {m.met.begin(), m.met.end()}; }

} // namespace penstock::model

// ---- the platform that the core's headers call ----

namespace penstock::platform {

using namespace penstock::model;

uint64_t do_load(const void *word, size_t size, order how, const site &at) {
    if (outside(word)) return load_raw(word, size);
    int id;
    Location &place = reach(word, size, false, id);
    if (how != order::relaxed) meet_fast(at, "acquire");
    how = weakened(how, at, "acquire");
    Thread &t = me();
    const int newest = place.count - 1, oldest = t.cur.at[id];
    int back = 0;
    if (newest > oldest && m.stale_left > 0) {
        back = choose(newest - oldest + 1, 13);
        if (back != 0) --m.stale_left;
    }
    const Message &message = place.messages[newest - back];
    t.cur.at[id] = std::max<uint16_t>(t.cur.at[id], static_cast<uint16_t>(newest - back));
    t.acq.at[id] = std::max(t.acq.at[id], t.cur.at[id]);
    t.hash = mix(t.hash, mix(static_cast<uint64_t>(id) * 4 + 1, static_cast<uint64_t>(newest - back)));
    ++t.cur.epoch[m.current];
    if (!t.tolerant) place.read_epoch[m.current] = t.cur.epoch[m.current];
    t.acq.epoch[m.current] = t.cur.epoch[m.current];
    observe(message, how);
    if (message.plain && !before_me(message.writer, message.epoch)) race("loads a word that another one writes plainly", word);
    note("load", word, message.value, at, back != 0 ? "(stale)" : "");
    return message.value;
}

void do_store(void *word, size_t size, uint64_t value, order how, const site &at) {
    if (outside(word)) return store_raw(word, size, value);
    int id;
    Location &place = reach(word, size, true, id);
    if (how != order::relaxed) meet_fast(at, "release");
    how = weakened(how, at, "release");
    const Message &last = place.messages[place.count - 1];
    if (last.plain && !before_me(last.writer, last.epoch)) race("stores to a word that another one writes plainly", word);
    Thread &t = me();
    t.hash = mix(t.hash, mix(static_cast<uint64_t>(id) * 4 + 2, value));
    store_raw(word, size, value);
    append(place, id, value, how, false, nullptr);
    note("store", word, value, at);
}

bool do_exchange(void *word, size_t size, uint64_t &expected, uint64_t desired, order success, order failure, const site &at) {
    if (outside(word)) {
        const uint64_t seen = load_raw(word, size);
        if (seen == expected) {
            store_raw(word, size, desired);
            return true;
        }
        expected = seen;
        return false;
    }
    int id;
    Location &place = reach(word, size, true, id);
    meet_fast(at, "cas");
    success = weakened(weakened(success, at, "acquire"), at, "release");
    failure = weakened(failure, at, "failure");
    Thread &t = me();
    const Message &last = place.messages[place.count - 1];
    if (last.plain && !before_me(last.writer, last.epoch)) race("swaps a word that another one writes plainly", word);
    const auto stamp = static_cast<uint16_t>(place.count - 1);
    t.cur.at[id] = t.acq.at[id] = std::max(t.cur.at[id], stamp);
    t.hash = mix(t.hash, mix(static_cast<uint64_t>(id) * 4 + 3, stamp));
    place.read_epoch[m.current] = ++t.cur.epoch[m.current];
    t.acq.epoch[m.current] = t.cur.epoch[m.current];
    if (last.value != expected) {
        observe(last, failure);
        expected = last.value;
        note("swap", word, last.value, at, "(refused)");
        return false;
    }
    observe(last, success);
    store_raw(word, size, desired);
    append(place, id, desired, success, false, &last.view);
    note("swap", word, desired, at);
    return true;
}

uint64_t do_update(void *word, size_t size, update what, uint64_t operand, order how, const site &at) {
    const auto apply = [&](uint64_t seen) {
        const uint64_t value = what == update::add ? seen + operand : seen | operand;
        return size == 4 ? value & 0xffffffff : value;
    };
    if (outside(word)) {
        const uint64_t seen = load_raw(word, size);
        store_raw(word, size, apply(seen));
        return seen;
    }
    int id;
    Location &place = reach(word, size, true, id);
    meet_fast(at, "update");
    how = weakened(weakened(how, at, "acquire"), at, "release");
    Thread &t = me();
    const Message &last = place.messages[place.count - 1];
    const uint64_t seen = last.value;
    t.cur.at[id] = t.acq.at[id] = static_cast<uint16_t>(place.count - 1);
    t.hash = mix(t.hash, mix(static_cast<uint64_t>(id) * 4 + 3, static_cast<uint64_t>(place.count)));
    observe(last, how);
    store_raw(word, size, apply(seen));
    append(place, id, apply(seen), how, false, &last.view);
    note("update", word, apply(seen), at);
    return seen;
}

void fence(order how, const site &at) {
    if (!m.running) return;
    schedule();
    meet_fast(at, how == order::seq_cst ? "full fence" : "acquire fence");
    Thread &t = me();
    if (m.mutant.active() && at.line == m.mutant.line && m.mutant.what == "fence" &&
        std::strstr(at.file, m.mutant.file.c_str()) != nullptr)
        return;
    const int count = static_cast<int>(m.locations.size());
    t.hash = mix(t.hash, 0xfe);
    if (how == order::acquire || how == order::acq_rel || how == order::seq_cst) t.cur.join(t.acq, count);
    if (how == order::seq_cst) {
        // Sequentially consistent fences agree on one order of what is visible; they do not order plain accesses.
        for (int i = 0; i < count; ++i) t.cur.at[i] = m.sc.at[i] = std::max(t.cur.at[i], m.sc.at[i]);
        t.acq.join(t.cur, count);
        m.sc_hash = mix(m.sc_hash, t.hash);
        t.hash = mix(t.hash, m.sc_hash);
    }
    if (how != order::acquire) {
        t.rel = t.cur;
        if (++t.fences == fences_max) fail("too many fences in one thread");
        t.fenced[t.fences] = t.cur;
    }
    note("fence", nullptr, 0, at);
}

void pause() {
    if (!m.running) return;
    Thread &t = me();
    t.status = Status::paused;
    t.paused_at = m.stores;
    hand_over();
    t.status = Status::ready;
}
void yield() { pause(); }

void wrote(const void *at, size_t length) {
    const auto *byte = static_cast<const uint8_t *>(at);
    if (!m.running || byte < m.base || byte >= m.base + m.size) return;
    const uint8_t *end = byte + length;
    byte = m.base + (static_cast<size_t>(byte - m.base) & ~size_t{7});
    Thread &t = me();
    ++t.cur.epoch[m.current];
    t.acq.epoch[m.current] = t.cur.epoch[m.current];
    t.hash = mix(t.hash, static_cast<uint64_t>(byte - m.base) * 2 + 0x77);
    for (; byte < end; byte += 8) {
        const auto offset = static_cast<size_t>(byte - m.base);
        if (offset >= m.terms_from && (offset - m.terms_from) % 32 == 0) {
            plain_write_word(byte);
            continue;
        }
        Granule &g = granule_at(byte);
        if (!before_me(g.writer, g.write_epoch)) race("writes bytes that another one wrote", byte);
        for (int i = 0; i < m.thread_count; ++i)
            if (i != m.current && t.cur.epoch[i] < g.read_epoch[i]) race("writes bytes that another one reads", byte);
        g.writer = static_cast<uint8_t>(m.current);
        g.write_epoch = t.cur.epoch[m.current];
        g.fences = static_cast<uint8_t>(t.fences);
    }
}

void read(const void *at, size_t length) {
    const auto *byte = static_cast<const uint8_t *>(at);
    if (!m.running || byte < m.base || byte >= m.base + m.size) return;
    const uint8_t *end = byte + length;
    byte = m.base + (static_cast<size_t>(byte - m.base) & ~size_t{7});
    Thread &t = me();
    if (t.tolerant) schedule(); // others may be free: what is read may change at any moment
    ++t.cur.epoch[m.current];
    t.acq.epoch[m.current] = t.cur.epoch[m.current];
    t.hash = mix(t.hash, static_cast<uint64_t>(byte - m.base) * 2 + 0x78);
    for (; byte < end; byte += 8) {
        const auto offset = static_cast<size_t>(byte - m.base);
        if (offset >= m.terms_from && (offset - m.terms_from) % 32 == 0) {
            int id;
            Location &place = locate(byte, 8, id);
            const Message &last = place.messages[place.count - 1];
            if (!before_me(last.writer, last.epoch)) {
                race("reads a word that another one writes", byte);
                t.acq.join(last.view, static_cast<int>(m.locations.size())); // what an acquire fence makes of it
            }
            if (!t.tolerant) place.read_epoch[m.current] = t.cur.epoch[m.current];
            continue;
        }
        Granule &g = granule_at(byte);
        if (!before_me(g.writer, g.write_epoch)) {
            race("reads bytes that another one writes", byte);
            t.acq.join(m.threads[g.writer].fenced[g.fences], static_cast<int>(m.locations.size()));
        }
        if (!t.tolerant) g.read_epoch[m.current] = t.cur.epoch[m.current];
    }
}

bool futex_wait(uint32_t *word, uint32_t expected, int64_t) {
    if (!m.running) return true;
    schedule();
    if (static_cast<uint32_t>(load_raw(word, 4)) != expected) { // the kernel looks at the newest value, under its lock
        me().hash = mix(me().hash, 0xf0);
        return true;
    }
    note("sleeps", word, expected, site::here());
    me().status = Status::asleep;
    me().asleep_on = word;
    hand_over();
    me().hash = mix(me().hash, 0xf1);
    return true;
}

void futex_wake(uint32_t *word) {
    if (!m.running) return;
    schedule();
    note("wakes", word, 0, site::here());
    me().hash = mix(me().hash, 0xf2);
    for (int i = 0; i < m.thread_count; ++i)
        if (m.threads[i].status == Status::asleep && m.threads[i].asleep_on == word) {
            m.threads[i].status = Status::ready;
            ++m.stores;
        }
}

// Each look at the clock finds it 10 ms later: patience ends soon, and intervals have always passed.
int64_t monotonic_ns() {
    static int64_t outside_now;
    int64_t &now = m.running ? me().now : outside_now;
    return 1'000'000'000 + (now += 10'000'000);
}

} // namespace penstock::platform
