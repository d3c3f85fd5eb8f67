// Additions of a sync queue to the term log: names, members that write before they read, members that nobody may wait for.
#include "stage.hpp"

#include "sync/sync_queue.hpp"

namespace penstock::model {
namespace {

// A slot goes from hand to hand: who looks at its name sees a whole one or none.
void names_change_hands() {
    Stage stage(256, 2, true);
    const std::string first(name_max, 'a'), second(name_max, 'b');
    LogReader &one = Stage::reader(0, {}, 0, first);
    LogReader &watcher = Stage::reader(1);
    Slot::Identity &slot = one.log().me().identity;
    World::thread([&one, second] {
        one.log().detach();
        new LogReader(Stage::open(), Start{}, 0, second);
    });
    World::thread([&watcher, &slot, first, second] {
        (void)watcher;
        for (int look = 0; look < 2; ++look) {
            const std::string name = read_name(slot);
            EXPECT(name.empty() || name == first || name == second);
        }
    });
    World::finally([&slot, second] { EXPECT(read_name(slot) == second); });
}

// The table of events goes round while it is read: each event is read whole, or is counted as missed.
void events_are_whole_or_missed() {
    constexpr uint32_t kept = 2, count = 4;
    using Table = MemberEventTable<kept>;
    alignas(4096) static uint8_t region[4096];
    std::memset(region, 0, sizeof region);
    World::share(region, sizeof region, sizeof region);
    auto *table = reinterpret_cast<Table *>(region);
    auto *members = reinterpret_cast<Slot::Identity *>(region + 2048);
    for (uint32_t number = 0; number < count; ++number)
        write_name(members[number], std::string(8, static_cast<char>('a' + number)), 100 + number);
    World::thread([table, members] {
        for (uint32_t number = 0; number < count; ++number) add_event(*table, number % 2 == 0, number, members[number]);
    });
    World::thread([table] {
        uint64_t next = 0;
        for (int look = 0; look < 2; ++look) {
            uint64_t seen = 0, missed = 0, last = next;
            const uint64_t before = next;
            next = read_events(*table, before, missed, [&](const MemberChange &change) {
                EXPECT(change.slot >= last && change.slot < count && change.joined_ns == 100u + change.slot);
                EXPECT(change.came == (change.slot % 2 == 0));
                EXPECT(std::string(change.name) == std::string(8, static_cast<char>('a' + change.slot)));
                last = change.slot + 1;
                ++seen;
            });
            EXPECT(next >= before && seen + missed == next - before);
        }
    });
}

// A member as the bindings have it, but that its sleep has no timeout: a wake-up that is missing is never made up for.
struct Member {
    Member(int thread, const std::string &name, size_t spill_limit = SIZE_MAX, uint64_t drop_after_ns = 0)
        : reader(Stage::reader(thread, {}, drop_after_ns, name)), log(Stage::writer(thread)), writer(log), name(name),
          prefix(sync_prefix(name, {})), spill_limit(spill_limit) {}

    bool offer(uint32_t number, const std::string &type = {}) {
        const Word word{static_cast<uint32_t>(name.front()), number};
        return writer.offer(type.empty() ? prefix : sync_prefix(name, type), &word, sizeof word) != no_room;
    }
    void send(uint32_t number) {
        auto attempt = [&] { return offer(number); };
        auto making_way = [&] { return attempt_or_spill(log.log(), reader, prefix.size() + sizeof(Word), spill_limit, attempt); };
        Asleep asleep{log.log(), {}};
        EXPECT(attempt() || wait_on(asleep, making_way));
    }
    struct Asleep {
        void prepare() { events.announce(log); }
        bool sleep() {
            const WaitEntry &room = events.entries[0], &data = events.entries[1];
            platform::futex_wait_either(reinterpret_cast<uint32_t *>(room.address), static_cast<uint32_t>(room.value),
                                        reinterpret_cast<uint32_t *>(data.address), static_cast<uint32_t>(data.value));
            return true;
        }
        TermLog &log;
        RoomOrData events;
    };
    // The next message as sender and number; 0 without one. Positions grow, also from what was spilled to what was not.
    uint32_t consume() {
        const Message *message = reader.peek();
        if (message == nullptr) return 0;
        Word word;
        EXPECT(message->length == sizeof word);
        penstock::read(message->data, message->length);
        std::memcpy(&word, message->data, sizeof word);
        EXPECT(reader.parts().sender.size() == 1 && static_cast<uint32_t>(reader.parts().sender.front()) == word.writer);
        EXPECT(message->position >= next);
        next = message->next;
        reader.consume();
        return word.writer << 8 | word.number;
    }
    bool nothing() { return reader.peek() == nullptr; }

    SyncReader reader;
    LogWriter &log;
    SyncWriter writer;
    const std::string name, prefix;
    const size_t spill_limit;
    uint64_t next = 0;
};
Member &member(int thread, const std::string &name, size_t spill_limit = SIZE_MAX, uint64_t drop_after_ns = 0) {
    return *new Member(thread, name, spill_limit, drop_after_ns);
}
uint32_t from(char sender, uint32_t number) { return static_cast<uint32_t>(sender) << 8 | number; }
size_t spilled_size(size_t messages) { return messages * (200 + 9 + sizeof(Word)); }

template <class Work> bool throws(Code code, Work &&work) {
    try {
        work();
    } catch (const Error &error) {
        return error.code == code;
    }
    return false;
}

// Two members write more than there is room for before either reads. Neither waits for itself, so neither waits for ever, and
// both see one order.
void all_write_before_they_read() {
    Stage stage(128, 4);
    auto *orders = new std::vector<uint32_t>[2];
    Member *members[2] = {&member(0, "a"), &member(1, "b")};
    for (uint32_t me = 0; me < 2; ++me)
        World::thread([orders, me, &mine = *members[me]] {
            for (uint32_t number = 0; number < 2; ++number) mine.send(number);
            while (orders[me].size() < 4) {
                const uint32_t found = mine.consume();
                if (found == 0) spin_pause();
                else orders[me].push_back(found);
            }
        });
    World::finally([orders] {
        EXPECT(orders[0] == orders[1]);
        EXPECT(std::count_if(orders[0].begin(), orders[0].end(), [](uint32_t found) { return found >> 8 == 'a'; }) == 2);
    });
}

// All room is claimed and not yet committed as a member looks: it has nothing to spill, and sleeps. Then a commit must wake it,
// since nobody else makes room: the other two only write.
void new_data_wakes_a_member_that_waits_for_room() {
    Stage stage(128, 4);
    Member &a = member(0, "a");
    for (int thread = 1; thread < 3; ++thread)
        World::thread([&writes = *new SyncWriter(Stage::writer(thread)), thread] {
            const Word word{'b', static_cast<uint32_t>(thread)};
            while (writes.offer(sync_prefix("b", {}), &word, sizeof word) == no_room) spin_pause();
        });
    World::thread([&a] {
        a.send(0);
        for (uint32_t count = 0; count < 3;) {
            if (a.consume() == 0) spin_pause();
            else ++count;
        }
    });
}

// Spilled messages come first; a screen holds for it as for the rest; sender and type stay with their message.
void spilled_messages_come_first() {
    Stage stage(256, 4);
    Member &a = member(0, "a"), &b = member(1, "b");
    World::thread([&a, &b] {
        EXPECT(a.offer(0) && a.offer(1, "x") && a.offer(2));
        EXPECT(b.reader.spill(SIZE_MAX) && !b.reader.spill(SIZE_MAX));
        EXPECT(b.reader.has_spilled() && b.reader.spilled_bytes() > 3 * sizeof(Word));
        EXPECT(b.reader.position() == 0 && b.reader.readable());
        EXPECT(a.reader.spill(SIZE_MAX) && b.offer(7) && a.offer(3, "x") && a.offer(4)); // in the room that the spilled ones left
        SyncScreen screen;
        screen.own = b.log.session();
        screen.types = {"x"};
        b.reader.screen(screen);
        for (const uint32_t number : {0u, 2u, 4u}) EXPECT(b.consume() == from('a', number));
        EXPECT(b.nothing() && b.reader.spilled_bytes() == 0 && b.reader.screened() == 3);
        screen.types.clear();
        screen.senders = {"a"};
        b.reader.screen(screen);
        EXPECT(a.offer(5) && b.nothing() && b.reader.screened() == 4);
        EXPECT(a.reader.spill(SIZE_MAX) && a.offer(6));
        b.reader.screen({});
        EXPECT(b.consume() == from('a', 6) && b.nothing());
    });
}

// Spilled messages are the member's own: the log goes on over the bytes where they were.
void spilled_messages_stay_whole() {
    Stage stage(256, 4);
    Member &a = member(0, "a"), &b = member(1, "b");
    World::thread([&a, &b] {
        constexpr uint32_t enough = 20; // to come around the whole log
        for (uint32_t number = 0; number < enough; ++number)
            EXPECT(a.offer(number) && a.reader.spill(SIZE_MAX) && b.reader.spill(SIZE_MAX));
        for (uint32_t number = 0; number < enough; ++number) EXPECT(b.consume() == from('a', number));
    });
}

// A member's spill has a limit. It still reads the messages that it has spilled by then.
void spilling_has_a_limit() {
    Stage stage(128, 4);
    Member &a = member(0, "a"), &b = member(1, "b", spilled_size(1));
    World::thread([&a, &b] {
        EXPECT(a.offer(0) && a.offer(1) && !a.offer(2));
        EXPECT(throws(Code::busy, [&] { b.send(0); }));
        EXPECT(b.consume() == from('a', 0) && b.consume() == from('a', 1) && b.nothing());
        EXPECT(a.reader.spill(SIZE_MAX) && b.offer(0)); // a's messages were unread by a, too
    });
}

// A member that is dropped while it spills hears of it where the hole is: behind what it has spilled, before what comes then.
void let_go_between_messages() {
    Stage stage(128, 4);
    Member &a = member(0, "a"), &slow = member(1, "s", SIZE_MAX, 1);
    World::thread([&a, &slow] {
        EXPECT(a.offer(0) && slow.reader.spill(SIZE_MAX));
        for (uint32_t number = 1; number < 6; ++number)
            while (!a.offer(number)) a.reader.spill(SIZE_MAX); // its own reader is not in the way
        EXPECT(slow.reader.spill(SIZE_MAX));
        EXPECT(slow.consume() == from('a', 0));
        EXPECT(throws(Code::too_slow, [&] { slow.reader.peek(); }));
        while (slow.reader.spill(SIZE_MAX)) {
        }
        uint32_t last = 0;
        while (const uint32_t found = slow.consume()) last = found;
        EXPECT(last == from('a', 5));
    });
}

// A member that lets no writer wait is named to a writer that would have to, and only while it is in the way.
void nobody_may_wait_for_me() {
    Stage stage(128, 3);
    LogReader &strict = Stage::reader(1, {}, refuses_to_wait, "strict");
    Member &writer = member(0, "w");
    World::thread([&] {
        uint32_t sent = 0;
        while (writer.offer(sent)) ++sent;
        while (writer.consume() != 0) {
        }
        EXPECT(throws(Code::busy, [&] { writer.send(sent); }));
        for (uint32_t i = 0; i < sent; ++i) {
            EXPECT(strict.peek() != nullptr);
            strict.consume();
        }
        EXPECT(strict.peek() == nullptr); // and so it has shown where it is
        refuse_waiting(writer.log.log(), sizeof(Word));
        writer.send(sent);
    });
}

// Bodies written in place and in one batch lie behind their prefixes as those of offer do.
void every_way_of_writing() {
    Stage stage(256, 4);
    Member &a = member(0, "a"), &b = member(1, "b");
    World::thread([&a] {
        const Word words[] = {{'a', 0}, {'a', 1}, {'a', 2}};
        const IoVec bodies[] = {{&words[0], sizeof(Word)}, {&words[1], sizeof(Word)}};
        EXPECT(a.writer.offer_many(a.prefix, bodies, 2) == 2);
        ClaimedRange range;
        EXPECT(a.writer.claim(a.prefix, sizeof(Word), a.log.open_index(), range));
        copy_in(range.payload, &words[2], sizeof(Word));
        a.log.commit(range);
        EXPECT(throws(Code::too_large, [&] { a.writer.offer(a.prefix, nullptr, a.writer.payload_max(a.prefix) + 1); }));
    });
    World::thread([&b] {
        for (uint32_t number = 0; number < 3;) {
            const uint32_t found = b.consume();
            if (found == 0) spin_pause();
            else EXPECT(found == from('a', number++));
        }
    });
}

} // namespace

const std::vector<Scenario> &sync_scenarios() {
    static const std::vector<Scenario> all = {
        {"sync_names", "a name is read whole while its slot changes hands", names_change_hands},
        {"sync_events", "the table of events goes round while it is read", events_are_whole_or_missed},
        {"sync_all_write", "members write before they read", all_write_before_they_read, true},
        {"sync_wakes", "new data wakes a member that waits for room", new_data_wakes_a_member_that_waits_for_room, true},
        {"sync_spilled", "spilled messages come first, and screens hold for them", spilled_messages_come_first},
        {"sync_whole", "spilled messages stay whole", spilled_messages_stay_whole},
        {"sync_limit", "the spill of a member has a limit", spilling_has_a_limit},
        {"sync_let_go", "a member is dropped while it spills", let_go_between_messages},
        {"sync_refused", "a member that nobody may wait for", nobody_may_wait_for_me},
        {"sync_ways", "bodies written in place, and many at once", every_way_of_writing},
    };
    return all;
}

} // namespace penstock::model
