// The table of participants, once for all kinds: the dead are counted once, however they are found, a full table and a failing
// lock are told apart, and a slot serves one owner after another.
#include "support.hpp"

#include "ends/pipe_ends.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

using namespace penstock;
using namespace penstock::test;

namespace {

template <class What> Code code_of(What &&what) {
    try {
        what();
    } catch (const Error &error) {
        return error.code;
    }
    CHECK(false, "no error");
    return Code::invalid;
}

// A member of a channel of some kind, as its table sees it.
struct Member {
    std::function<void()> crash_for_test, leave, join;
};
struct Table {
    const char *kind;
    uint32_t slots; // for members such as these
    std::function<Member()> member;
    std::function<void()> reap; // by somebody who is there anyway
    std::function<uint64_t()> reaped;
};

// The dead that somebody has cleared, by the words of a table's slots.
template <class Slot, class Word> uint64_t counted(const Mapping &map, uint32_t slots, Word word) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < slots; ++i)
        sum += word(*reinterpret_cast<const Slot *>(map.bytes() + slots_offset + i * sizeof(Slot))).relaxed() / 2;
    return sum;
}

// A look counts each owner once: nobody has cleared it, or somebody has begun to, or has.
void peek() {
    Deaths deaths{};
    Atomic<uint64_t> joined{};
    bool there = true, alive = true;
    const auto seen = [&] { return deaths_of(deaths, joined, [&] { return there; }, [&] { return alive; }); };
    for (uint64_t dead = 0; dead < 3; ++dead) {
        there = alive = true;
        begin_owner(deaths);
        CHECK(seen() == dead);
        alive = false;
        CHECK(seen() == dead + 1);
        count_death(deaths); // by a process that dies before it has cleared the slot
        CHECK(seen() == dead + 1);
        count_death(deaths);
        CHECK(seen() == dead + 1);
        there = false;
        CHECK(seen() == dead + 1);
    }
    // An owner that leaves while it is looked at, and its successor, are no deaths.
    begin_owner(deaths);
    there = true;
    CHECK(deaths_of(deaths, joined, [&] { return there; }, [&] { return there = false; }) == 3);
    there = true;
    bool again = false;
    const auto lives = [&] {
        if (std::exchange(again, true)) return true;
        joined.relaxed(joined.relaxed() + 1);
        return false;
    };
    CHECK(deaths_of(deaths, joined, [&] { return there; }, lives) == 3);
}

void check(const Table &table) {
    // All slots, and no more.
    std::vector<Member> members;
    for (uint32_t i = 0; i < table.slots; ++i) members.push_back(table.member());
    CHECK(code_of([&] { table.member(); }) == Code::busy, "%s", table.kind);
    CHECK(table.reaped() == 0);
    // One that leaves is no death, and its slot is the next one's.
    members[1].leave();
    Member next = table.member();
    CHECK(table.reaped() == 0, "%s", table.kind);
    next.leave();
    // A dead one is counted by the next owner of its slot.
    members[0].crash_for_test();
    next = table.member();
    CHECK(table.reaped() == 1, "%s: %lu", table.kind, static_cast<unsigned long>(table.reaped()));
    next.leave();
    // Or by a search for the dead: once.
    for (uint32_t i = 2; i < table.slots; ++i) members[i].crash_for_test();
    table.reap();
    table.reap();
    for (uint32_t i = 0; i < table.slots; ++i) members[i] = table.member();
    CHECK(table.reaped() == table.slots - 1, "%s: %lu", table.kind, static_cast<unsigned long>(table.reaped()));
    // Where the kernel cannot be asked, nobody says that the table is full.
    members[0].leave();
    CHECK(code_of(members[0].join) == Code::system, "%s", table.kind);
}

void log_table() {
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    g.slot_count = 6;
    Channel channel(g);
    channel.clock = std::make_shared<ManualClock>();
    const auto there = channel.writer();
    check({"log", 5,
           [&] {
               auto reader = channel.reader();
               return Member{[=] { reader->log().crash_for_test(); }, [=] { reader->log().detach(); }, [=] { reader->join({}); }};
           },
           [&] {
               channel.clock->now.add(reap_interval_ns); // it looks for the dead at most so often
               there->log().reap();
           },
           [&] { return counted<Slot>(*channel.map, 6, [](const Slot &s) -> const Deaths & { return s.counters.deaths; }); }});
}

void ring_table() {
    RingGeometry g;
    g.capacity = 64 * 1024;
    g.slot_count = 5;
    const RingChannel channel(g);
    const auto there = channel.writer();
    check({"ring", 5,
           [&] {
               auto reader = channel.reader();
               return Member{[=] { reader->ring().crash_for_test(); }, [=] { reader->ring().detach(); },
                             [=] { reader->rejoin(); }};
           },
           [&] { there->ring().readers(); },
           [&] {
               return counted<RingSlot>(*channel.map, 5, [](const RingSlot &s) -> const Deaths & { return s.identity.deaths; });
           }});
}

void pipe_table() {
    PipeGeometry g;
    g.capacity = 64 * 1024;
    g.max_members = 6;
    g.max_pipes = 32;
    PipeChannel channel(g);
    channel.clock = std::make_shared<ManualClock>();
    const auto there = channel.peer(PeerRole::push);
    check({"pipe", 5,
           [&] {
               auto reader = channel.peer(PeerRole::pull);
               return Member{[=] { reader->crash_for_test(); }, [=] { reader->detach(); }, [=] { reader->attach(); }};
           },
           [&] {
               channel.clock->now.add(PipePeer::repair_interval_ns);
               there->repair();
           },
           [&] {
               return counted<PeerSlot>(*channel.map, 6, [](const PeerSlot &s) -> const Deaths & { return s.counters.deaths; });
           }});
}

// A reader is there, and whoever keeps the table's lock has no core for a while: no message is dropped for that.
void a_reader_without_a_pipe_loses_nothing() {
    PipeGeometry g;
    PipeChannel channel(g);
    auto writer = channel.peer(PeerRole::pair, WhenFull::drop_newest);
    auto reader = channel.peer(PeerRole::pair);
    PipeWriterEnd end(writer);
    std::atomic<bool> held{false};
    auto &table = const_cast<PeerTable &>(reader->peers());
    std::thread holder([&] {
        table.under_lock([&] {
            held = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
        });
    });
    while (!held) std::this_thread::yield();
    CHECK(end.readers() == 1);
    CHECK(end.offer("x", 1) != 0);
    holder.join();
    const Message *message = reader->peek();
    CHECK(message != nullptr && message->length == 1);
}

} // namespace

int main() {
    peek();
    log_table();
    ring_table();
    pipe_table();
    a_reader_without_a_pipe_loses_nothing();
    std::puts("every table keeps its members");
    return 0;
}
