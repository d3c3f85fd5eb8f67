// The term log's scenarios in which a participant is killed at any of its operations, or only might have been.
#include "stage.hpp"

namespace penstock::model {
namespace {

// A reader looks for dead claims though everybody lives: it must never take a living one's away.
template <bool exclusive> void nobody_is_dead() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0, exclusive);
    offers(writer, 1, 2);
    World::thread([&] {
        Seen seen;
        read_past_the_dead(reader, seen, 1, 2);
        EXPECT(reader.log().control().totals.repaired.relaxed() == 0);
    });
}

void nobody_is_dead_in_a_batch() { // run after run, with no fence between them
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        const Word words[] = {{1, 0}, {1, 1}};
        IoVec pieces[] = {{&words[0], sizeof(Word)}, {&words[1], sizeof(Word)}};
        size_t done = 0;
        while (done < 2) done += writer.offer_many(pieces + done, 2 - done);
    });
    World::thread([&] {
        Seen seen;
        read_past_the_dead(reader, seen, 1, 2);
        EXPECT(reader.log().control().totals.repaired.relaxed() == 0);
    });
}

void nobody_is_dead_at_the_trip() {
    Stage stage;
    Stage::advance(256 - 32);
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 2);
    World::thread([&] {
        Seen seen;
        read_past_the_dead(reader, seen, 1, 2);
        EXPECT(reader.log().control().totals.repaired.relaxed() == 0);
    });
}

void dead_seen_by_two() { // one reader fills the hole, the other walks over it
    Stage stage;
    LogReader &one = Stage::reader(1), &two = Stage::reader(2);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    offers(mortal, 1, 1, true);
    World::thread([&] {
        Seen seen;
        for (int turn = 0; turn < 2; ++turn) {
            const Message *message = one.peek();
            if (message != nullptr) seen.consume(one, *message);
            else one.unblock();
        }
        offer_surely(living, 2, 0);
        read_past_the_dead(one, seen, 2, 1);
    });
    World::thread([&] {
        Seen seen;
        while (seen.next[2] < 1) {
            const Message *message = two.peek();
            if (message != nullptr) seen.consume(two, *message);
            else spin_pause();
        }
    });
}

void dead_holder_replaced() { // the slot of a dead lock holder has a new owner before anybody asks for the lock
    Stage stage(128, 3);
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    offers(mortal, 1, 1, true);
    World::thread([&] {
        Seen seen;
        offer_surely(living, 2, 0);
        read_past_the_dead(reader, seen, 2, 1);
    });
    World::thread([&] {
        try {
            new LogWriter(Stage::open(), false, nullptr);
        } catch (const Error &error) {
            EXPECT(error.code == Code::busy);
        }
    });
}

void dead_claim() {
    Stage stage;
    LogReader &reader = Stage::reader(2);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    offers(mortal, 1, 1, true);
    offers(living, 2, 1);
    World::thread([&] {
        Seen seen;
        read_past_the_dead(reader, seen, 2, 1);
    });
}

void dead_claim_alone() { // the living one writes and reads
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    World::thread(
        [&] {
            offer_surely(mortal, 1, 0);
            offer_surely(mortal, 1, 1);
        },
        true);
    World::thread([&] {
        Seen seen;
        offer_surely(living, 2, 0);
        read_past_the_dead(reader, seen, 2, 1);
    });
}

void dead_open_claim() { // dies with a claim open behind which others have gone on
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0);
    LogWriter &living = Stage::writer(1);
    World::thread(
        [&] {
            ClaimedRange range;
            while (!mortal.claim(sizeof(Word), mortal.open_index(), range)) spin_pause();
            const Word word{1, 0};
            copy_in(range.payload, &word, sizeof word);
            mortal.commit(range);
        },
        true);
    World::thread([&] {
        Seen seen;
        offer_surely(living, 2, 0);
        read_past_the_dead(reader, seen, 2, 1);
        offer_surely(living, 2, 1);
        read_past_the_dead(reader, seen, 2, 2);
    });
}

void dead_before_a_living_claim() { // the hole ends where somebody who lives has claimed
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    offers(mortal, 1, 1, true);
    World::thread([&] {
        ClaimedRange range;
        while (!living.claim(sizeof(Word), living.open_index(), range)) spin_pause();
        Seen seen;
        for (int turn = 0; turn < 3; ++turn) {
            const Message *message = reader.peek();
            if (message != nullptr) seen.consume(reader, *message);
            else reader.unblock();
        }
        const Word word{2, 0};
        copy_in(range.payload, &word, sizeof word);
        living.commit(range);
        read_past_the_dead(reader, seen, 2, 1);
    });
}

void dead_batch() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    World::thread(
        [&] {
            IoVec pieces[] = {{nullptr, 0}, {nullptr, 0}};
            mortal.offer_many(pieces, 2);
        },
        true);
    World::thread([&] {
        offer_surely(living, 2, 0);
        Seen seen;
        while (seen.next[2] == 0) {
            const Message *message = reader.peek();
            if (message == nullptr) {
                if (!reader.unblock()) spin_pause();
            } else if (message->length == 0) reader.consume();
            else seen.consume(reader, *message);
        }
    });
}

void dead_at_the_trip() {
    Stage stage;
    Stage::advance(256 - 32);
    LogReader &reader = Stage::reader(2);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    World::thread([&] { offer(mortal, 1, 0); }, true);
    offers(living, 2, 1);
    World::thread([&] {
        Seen seen;
        read_past_the_dead(reader, seen, 2, 1);
    });
}

void dead_making_room() { // dies with the lock, somewhere between cleaning and moving the limit
    Stage stage(128);
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    World::thread(
        [&] {
            for (uint32_t i = 0; i < 2; ++i) offer_surely(mortal, 1, i);
        },
        true);
    World::thread([&] {
        Seen seen;
        for (uint32_t i = 0; i < 2; ++i) {
            while (!offer(living, 2, i)) {
                const Message *message = reader.peek();
                if (message != nullptr) seen.consume(reader, *message);
                else if (!reader.unblock()) spin_pause();
            }
            read_past_the_dead(reader, seen, 2, i + 1);
        }
    });
}

void dead_reader() { // its position must not hold writers for ever
    Stage stage(128);
    LogReader &mortal = Stage::reader(0);
    LogWriter &writer = Stage::writer(1);
    World::thread(
        [&] {
            Seen seen;
            read_count(mortal, seen, 4);
        },
        true);
    offers(writer, 1, 4);
}

void dead_attaching() { // its slot must come back, whatever it wrote there
    Stage stage(256, 2);
    LogWriter &writer = Stage::writer(1);
    World::thread([] { Stage::reader(0, {Start::From::earliest, 0}); }, true);
    World::thread([&] {
        offer_surely(writer, 1, 0);
        while (!World::died(0)) {
            if (writer.log().tail() > 64) return;
            offer_surely(writer, 1, 1); // it lives: nothing more to show
        }
        LogReader &reader = Stage::reader(1, {Start::From::earliest, 0});
        Seen seen;
        read_count(reader, seen, 1);
    });
}

void dead_detaching() {
    Stage stage(256, 2);
    LogWriter &mortal = Stage::writer(0);
    LogReader &reader = Stage::reader(1);
    World::thread(
        [&] {
            offer_surely(mortal, 1, 0);
            mortal.log().detach();
        },
        true);
    World::thread([&] {
        Seen seen;
        LogWriter *next = nullptr;
        while (next == nullptr) {
            try {
                next = new LogWriter(Stage::open(), false, nullptr);
            } catch (const Error &error) {
                EXPECT(error.code == Code::busy);
                spin_pause();
            }
        }
        offer_surely(*next, 2, 0);
        read_past_the_dead(reader, seen, 2, 1);
    });
}

} // namespace

const std::vector<Scenario> &log_deaths() {
    static const std::vector<Scenario> all = {
        {"nobody_is_dead", "a reader that looks for the dead spares the living", nobody_is_dead<false>},
        {"nobody_is_dead_exclusive", "and an exclusive publication", nobody_is_dead<true>},
        {"nobody_is_dead_in_a_batch", "nor between the runs of a batch", nobody_is_dead_in_a_batch},
        {"nobody_is_dead_at_the_trip", "at a term's end too", nobody_is_dead_at_the_trip},
        {"dead_seen_by_two", "one reader fills a hole, another walks over it", dead_seen_by_two, true},
        {"dead_holder_replaced", "a dead lock holder's slot has a new owner", dead_holder_replaced, true},
        {"dead_claim", "a publication dies anywhere", dead_claim, true},
        {"dead_claim_alone", "and a living member writes and reads on", dead_claim_alone},
        {"dead_open_claim", "with a claim open", dead_open_claim},
        {"dead_before_a_living_claim", "its hole ends where the living have claimed", dead_before_a_living_claim},
        {"dead_batch", "within a batch", dead_batch},
        {"dead_at_the_trip", "at a term's end", dead_at_the_trip, true},
        {"dead_making_room", "with the lock, while cleaning", dead_making_room, true},
        {"dead_reader", "a subscription dies", dead_reader},
        {"dead_attaching", "while it attaches", dead_attaching},
        {"dead_detaching", "while it detaches", dead_detaching},
    };
    return all;
}

} // namespace penstock::model
