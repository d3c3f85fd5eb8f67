// The term log's scenarios in which participants come, go, sleep and are woken.
#include "stage.hpp"

namespace penstock::model {
namespace {

// ---- members ----

template <Start::From from> void attach_while_written() {
    Stage stage(128);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 4);
    World::thread([&] {
        LogReader &reader = Stage::reader(1, {from, from == Start::From::last});
        Seen seen;
        for (int turn = 0; turn < 4; ++turn) {
            const Message *message = reader.peek();
            if (message == nullptr) spin_pause();
            else seen.consume(reader, *message, false);
        }
        reader.log().detach();
    });
}

void attach_two() { // two handles at once get two slots and two sessions
    Stage stage(256, 3);
    LogReader &reader = Stage::reader(2);
    int32_t *sessions = new int32_t[2]{};
    for (uint32_t i = 0; i < 2; ++i)
        World::thread([=] {
            LogWriter &writer = *new LogWriter(Stage::open(), false, nullptr);
            sessions[i] = writer.session();
            offer_surely(writer, i + 1, 0);
            writer.log().detach();
        });
    reads(reader, 2);
    World::finally([=] { EXPECT(sessions[0] != sessions[1]); });
}

void exclusive_alone() { // of two who want to be alone, at most one is
    Stage stage(256, 3);
    int *inside = new int[2]{};
    for (int i = 0; i < 2; ++i)
        World::thread([=] {
            try {
                new LogWriter(Stage::open(), i == 0, nullptr);
                inside[i] = 1;
            } catch (const Error &error) {
                EXPECT(error.code == Code::busy);
            }
        });
    World::finally([=] { EXPECT(inside[0] + inside[1] == 1); });
}

void slot_changes_hands() { // a reader looks for dead claims while a slot's owner goes and another comes
    Stage stage(256, 3);
    LogReader &reader = Stage::reader(1);
    LogWriter &first = Stage::writer(0);
    World::thread([&] {
        offer_surely(first, 1, 0);
        first.log().detach();
        LogWriter &second = *new LogWriter(Stage::open(), false, nullptr);
        offer_surely(second, 2, 0);
    });
    World::thread([&] {
        Seen seen;
        read_past_the_dead(reader, seen, 2, 1);
        EXPECT(seen.next[1] == 1);
    });
}

// ---- sleeping ----

void sleep_for(LogReader &reader, Seen &seen, uint32_t count) {
    Atomic<uint32_t> &event = reader.log().control().data.value;
    while (seen.total < count) {
        const uint32_t expected = event_prepare(event);
        const Message *message = reader.peek();
        if (message != nullptr) seen.consume(reader, *message);
        else event_sleep(event, expected, 1);
    }
}

void wait_wake() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 2);
    World::thread([&] {
        Seen seen;
        sleep_for(reader, seen, 2);
    });
}

void wait_wake_beside() { // a brief sleep that the notifier may have missed is over
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 2);
    World::thread([&] {
        Seen seen;
        event_announce(reader.log().control().data.value);
        if (const Message *message = reader.peek(); message != nullptr) seen.consume(reader, *message);
        sleep_for(reader, seen, 2);
    });
}

void two_sleep() {
    Stage stage;
    LogReader &one = Stage::reader(1), &two = Stage::reader(2);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 2);
    World::thread([&] {
        Seen seen;
        sleep_for(one, seen, 2);
    });
    World::thread([&] {
        Seen seen;
        sleep_for(two, seen, 2);
    });
}

void two_wake() {
    Stage stage;
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    offers(one, 1, 1);
    offers(two, 2, 1);
    World::thread([&] {
        Seen seen;
        sleep_for(reader, seen, 2);
    });
}

void writer_sleeps_for_room() {
    Stage stage(128);
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        Atomic<uint32_t> &event = writer.log().control().space.value;
        for (uint32_t i = 0; i < 3;) {
            const uint32_t expected = event_prepare(event);
            if (offer(writer, 1, i)) ++i;
            else event_sleep(event, expected, 1);
        }
    });
    reads(reader, 3);
}

void slowest_holds_writers() { // however far the others are, and in whatever slots
    Stage stage;
    LogReader &slow = Stage::reader(1), &fast = Stage::reader(2);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        uint32_t sent = 0;
        while (offer(writer, 0, sent)) ++sent;
        Seen seen;
        read_count(fast, seen, sent);
        EXPECT(fast.peek() == nullptr); // and so it has shown where it is
        EXPECT(!offer(writer, 0, sent));
        const Message *first = slow.peek();
        EXPECT(first != nullptr && first->position == 0);
        Seen all;
        read_count(slow, all, sent);
        EXPECT(slow.peek() == nullptr && offer(writer, 0, sent));
    });
}

// ---- the end of the stream ----

// Until the stream has ended, asleep in between; or awake where nobody wakes it, because a writer may die.
void read_to_the_end(LogReader &reader, Seen &seen, bool sleeps) {
    Atomic<uint32_t> &event = reader.log().control().data.value;
    for (;;) {
        const uint32_t expected = sleeps ? event_prepare(event) : 0;
        const Message *message = reader.peek();
        if (message != nullptr) seen.consume(reader, *message);
        else if (reader.ended()) break;
        else if (sleeps) event_sleep(event, expected, 1);
        else spin_pause();
    }
    EXPECT(reader.peek() == nullptr);
}
// Sends `count` messages and closes; `sent` counts those whose call returned.
void sends_and_closes(LogWriter &writer, uint32_t who, uint32_t count, uint32_t *sent, bool mortal = false) {
    World::thread(
        [&writer, who, count, sent] {
            for (uint32_t i = 0; i < count; ++i) {
                offer_surely(writer, who, i);
                ++sent[who];
            }
            writer.log().detach();
        },
        mortal);
}

void ends_when_closed() {
    Stage stage(256, 2);
    LogReader &reader = Stage::reader(1);
    sends_and_closes(Stage::writer(0), 1, 2, new uint32_t[2]{});
    World::thread([&] {
        Seen seen;
        read_to_the_end(reader, seen, true);
        EXPECT(seen.total == 2);
    });
}

void ends_when_both_closed() {
    Stage stage(256, 3);
    LogReader &reader = Stage::reader(2);
    auto *sent = new uint32_t[3]{};
    sends_and_closes(Stage::writer(0), 1, 1, sent);
    sends_and_closes(Stage::writer(1), 2, 1, sent);
    World::thread([&] {
        Seen seen;
        read_to_the_end(reader, seen, true);
        EXPECT(seen.total == 2);
    });
}

void ends_when_killed() { // and what it had sent was read
    Stage stage(256, 2);
    LogReader &reader = Stage::reader(1);
    auto *sent = new uint32_t[2]{};
    sends_and_closes(Stage::writer(0), 1, 2, sent, true);
    World::thread([&, sent] {
        Seen seen;
        read_to_the_end(reader, seen, false);
        EXPECT(seen.next[1] >= sent[1]);
    });
}

void does_not_end_beside_a_newcomer() {
    Stage stage(256, 3);
    LogReader &reader = Stage::reader(2);
    bool *there = new bool(false);
    sends_and_closes(Stage::writer(0), 1, 1, new uint32_t[2]{});
    World::thread([there] {
        LogWriter &second = *new LogWriter(Stage::open(), false, nullptr);
        *there = true;
        offer_surely(second, 2, 0);
    });
    World::thread([&reader, there] {
        Seen seen;
        for (int turn = 0; turn < 3; ++turn) {
            const Message *message = reader.peek();
            if (message != nullptr) {
                seen.consume(reader, *message);
                continue;
            }
            const bool joined = *there;
            if (!reader.ended()) continue;
            EXPECT(!joined && seen.next[1] == 1);
            return;
        }
    });
}

} // namespace

const std::vector<Scenario> &log_members() {
    static const std::vector<Scenario> all = {
        {"slowest_holds_writers", "of two subscriptions the slower one counts", slowest_holds_writers},
        {"attach_newest", "a subscription comes while others write", attach_while_written<Start::From::newest>},
        {"attach_earliest", "and starts at the oldest kept", attach_while_written<Start::From::earliest>},
        {"attach_last", "or at the newest message", attach_while_written<Start::From::last>},
        {"attach_two", "two publications come at once", attach_two, true},
        {"exclusive_alone", "at most one is exclusive", exclusive_alone},
        {"slot_changes_hands", "a slot's owner goes, another comes", slot_changes_hands},
        {"wait_wake", "no wake-up is lost", wait_wake},
        {"wait_wake_beside", "nor where a notifier may not have seen the first sleep", wait_wake_beside},
        {"two_sleep", "two sleepers", two_sleep},
        {"two_wake", "two wakers", two_wake},
        {"writer_sleeps_for_room", "a writer sleeps until there is room", writer_sleeps_for_room},
        {"ends_when_closed", "a reader is told of the stream's end", ends_when_closed},
        {"ends_when_both_closed", "when the last of two has closed", ends_when_both_closed},
        {"ends_when_killed", "and when it was killed", ends_when_killed},
        {"does_not_end_beside_a_newcomer", "but not while another has joined", does_not_end_beside_a_newcomer},
    };
    return all;
}

} // namespace penstock::model
