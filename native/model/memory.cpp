// The results that a load may return, the views that a store publishes, the plain accesses that race; and the platform that the
// core's headers call.
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace penstock::model {

namespace {

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
    std::snprintf(text, sizeof text, "%s:%u:%u:%s", name_of(at.file), at.line, at.column, kind);
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

namespace {

bool weakened(const site &at) {
    return m.mutant.active() && at.line == m.mutant.line && m.mutant.what == "fence" &&
           std::strstr(at.file, m.mutant.file.c_str()) != nullptr;
}

void pass_fence(Thread &t, order how) {
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
}

} // namespace

void fence(order how, const site &at) {
    if (!m.running) return;
    schedule();
    meet_fast(at, how == order::seq_cst ? "full fence" : how == order::release ? "release fence" : "acquire fence");
    if (weakened(at)) return;
    pass_fence(me(), how);
    note("fence", nullptr, 0, at);
}

// The compiler's alone, unless fences are symmetric.
void light_fence(const site &at) {
    if (m.symmetric) fence(order::seq_cst, at);
    else if (m.running) schedule(); // a place to be interrupted at, or to die
}

// A full fence of this thread, of every other one wherever it stands, and again of this one: as membarrier has it.
void heavy_fence(const site &at) {
    if (m.symmetric) {
        fence(order::seq_cst, at);
        return;
    }
    if (!m.running) return;
    schedule();
    meet_fast(at, "full fence");
    if (weakened(at)) return;
    pass_fence(me(), order::seq_cst);
    for (int i = 0; i < m.thread_count; ++i)
        if (i != m.current) pass_fence(m.threads[i], order::seq_cst);
    pass_fence(me(), order::seq_cst);
    note("fences", nullptr, 0, at);
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
                t.acq.join(last.view, static_cast<int>(m.locations.size())); // its view after an acquire fence
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
    me().also_on = nullptr;
    hand_over();
    me().hash = mix(me().hash, 0xf1);
    return true;
}

bool futex_wait_either(uint32_t *word, uint32_t expected, uint32_t *other, uint32_t other_expected) {
    if (!m.running) return true;
    schedule();
    if (static_cast<uint32_t>(load_raw(word, 4)) != expected || static_cast<uint32_t>(load_raw(other, 4)) != other_expected) {
        me().hash = mix(me().hash, 0xf3);
        return true;
    }
    note("sleeps", word, expected, site::here());
    note("sleeps", other, other_expected, site::here());
    me().status = Status::asleep;
    me().asleep_on = word;
    me().also_on = other;
    hand_over();
    me().hash = mix(me().hash, 0xf4);
    return true;
}

void futex_wake(uint32_t *word) {
    if (!m.running) return;
    schedule();
    note("wakes", word, 0, site::here());
    me().hash = mix(me().hash, 0xf2);
    for (int i = 0; i < m.thread_count; ++i)
        if (m.threads[i].status == Status::asleep && (m.threads[i].asleep_on == word || m.threads[i].also_on == word)) {
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
