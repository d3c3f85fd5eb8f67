// The ring's scenarios. Message i says i, so that a reader can tell what it got and what it missed.
#include "ring_stage.hpp"

namespace penstock::model {
namespace {

template <uint64_t count> void flow() {
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    sends(RingStage::writer(0), count);
    receives(reader, count, count < 4);
}

void two_readers() {
    RingStage stage;
    RingReader &one = RingStage::reader(1), &two = RingStage::reader(2);
    sends(RingStage::writer(0), 1);
    receives(one, 1, true);
    receives(two, 1, true);
}

void long_messages_wrap() { // 96, 96, a pad of 64, 96
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    RingWriter &writer = RingStage::writer(0);
    World::thread([&] {
        for (uint64_t i = 0; i < 3; ++i) {
            const uint64_t words[5] = {i, i, i, i, i};
            EXPECT(writer.payload_max() == 32);
            writer.offer(words, 32);
        }
    });
    World::thread([&] {
        for (uint64_t seen = 0; seen + reader.lost_messages() < 3;) {
            const Message *message = reader.peek();
            if (message == nullptr) {
                spin_pause();
                continue;
            }
            uint64_t words[4];
            if (!reader.copy(words, *message)) continue;
            EXPECT(message->length == 32);
            for (const uint64_t word : words) EXPECT(word == words[0]);
            reader.consume();
            EXPECT(words[0] + 1 == reader.sequence());
            ++seen;
        }
    });
}

void pad_at_the_end() { // 32-byte frames up to one before the end, then a message that needs two
    RingStage stage;
    RingWriter &writer = RingStage::writer(0);
    for (int i = 0; i < 7; ++i) writer.offer(nullptr, 0);
    RingReader &reader = RingStage::reader(1);
    World::thread([&] {
        for (uint64_t i = 7; i < 9; ++i) send(writer, i);
    });
    World::thread([&] {
        Got got;
        while (got.total < 2)
            if (!got.one(reader)) spin_pause();
        EXPECT(reader.lost_messages() == 0);
    });
}

// A run is at most a frame's largest length: two empty messages.
void send_two(RingWriter &writer) {
    const IoVec pieces[] = {{nullptr, 0}, {nullptr, 0}};
    writer.offer_many(pieces, 2);
}

void batch_at_once() {
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    RingWriter &writer = RingStage::writer(0);
    World::thread([&] {
        send_two(writer);
        send(writer, 2);
    });
    World::thread([&] {
        Got got;
        while (!got.one(reader)) spin_pause();
        EXPECT(reader.peek() != nullptr); // the other came with it
        got.all(reader, 3);
        EXPECT(got.total == 3);
    });
}

void batch_over_the_end() {
    RingStage stage;
    RingWriter &writer = RingStage::writer(0);
    for (uint64_t i = 0; i < 3; ++i) send(writer, i);
    writer.offer(nullptr, 0); // 32 bytes are left before the end
    RingReader &reader = RingStage::reader(1);
    World::thread([&] {
        const uint64_t numbers[] = {4, 5};
        const IoVec pieces[] = {{&numbers[0], 8}, {&numbers[1], 8}};
        writer.offer_many(pieces, 2);
    });
    World::thread([&] {
        Got got;
        while (got.total < 2)
            if (!got.one(reader)) spin_pause();
        EXPECT(reader.sequence() == 6 && reader.lost_messages() == 0);
    });
}

template <bool commits> void claimed_in_place() {
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    RingWriter &writer = RingStage::writer(0);
    World::thread([&] {
        const ClaimedRange range = writer.claim(8);
        const uint64_t number = commits ? 0 : 77;
        copy_words_in(range.payload, &number, 8);
        if (commits) writer.commit(range);
        else writer.abort(range);
        for (uint64_t i = commits; i < 4; ++i) send(writer, i);
    });
    receives(reader, 4);
}

template <Start::From from> void joins_while_written() {
    RingStage stage;
    RingWriter &writer = RingStage::writer(0);
    sends(writer, 5);
    World::thread([&] {
        auto &reader = *new RingReader(RingStage::open(), {from, 1}, false);
        const uint64_t begun = reader.sequence();
        Got got;
        while (got.total + reader.lost_messages() + begun < 5)
            if (!got.one(reader)) spin_pause();
        EXPECT(got.total + reader.lost_messages() + begun == 5);
        reader.ring().detach();
    });
}

template <uint64_t count> void newest_only() { // the last one is never passed over
    RingStage stage;
    RingReader &reader = RingStage::reader(1, true);
    sends(RingStage::writer(0), count);
    World::thread([&reader] {
        Got got;
        got.all(reader, count);
        EXPECT(got.total != 0 || reader.lost_messages() != 0);
        if (count < 4) EXPECT(got.last == count - 1);
    });
}

void newest_of_a_batch() {
    RingStage stage;
    RingReader &reader = RingStage::reader(1, true);
    RingWriter &writer = RingStage::writer(0);
    World::thread([&] {
        send_two(writer);
        send_two(writer);
    });
    receives(reader, 4);
}

void borrowed() { // looked at, read later, believed only if nobody wrote there
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    sends(RingStage::writer(0), 4);
    World::thread([&] {
        const Message *message;
        while ((message = reader.peek()) == nullptr && reader.lost_messages() == 0) spin_pause();
        if (message == nullptr) return;
        const Message held = *message;
        const uint64_t sequence = reader.lost_messages();
        reader.consume();
        uint64_t number;
        const bool intact = reader.copy(&number, held);
        EXPECT(!intact || number == sequence);
    });
}

void sleeps(RingReader &reader, uint64_t count) {
    World::thread([&reader, count] {
        Atomic<uint32_t> &event = reader.ring().control().data.value;
        Got got;
        while (got.total + reader.lost_messages() < count) {
            const uint32_t expected = event_prepare(event);
            if (!got.one(reader)) event_sleep(event, expected, 1);
        }
    });
}
void sleeper_is_woken() {
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    sends(RingStage::writer(0), 2);
    sleeps(reader, 2);
}
void batch_wakes() {
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    RingWriter &writer = RingStage::writer(0);
    World::thread([&] {
        const uint64_t numbers[] = {0, 1};
        const IoVec pieces[] = {{&numbers[0], 8}, {&numbers[1], 8}};
        writer.offer_many(pieces, 2);
    });
    sleeps(reader, 2);
}

void writer_awaits_a_reader() {
    RingStage stage;
    RingWriter &writer = RingStage::writer(0);
    World::thread([&] {
        Atomic<uint32_t> &event = writer.ring().control().members.value;
        for (;;) {
            const uint32_t expected = event_prepare(event);
            if (writer.ring().readers() != 0) break;
            event_sleep(event, expected, 1);
        }
        send(writer, 0);
    });
    World::thread([] {
        RingReader &reader = RingStage::reader(1);
        Got got;
        got.all(reader, 1);
        EXPECT(got.total == 1);
    });
}

void at_most_one_writes() {
    RingStage stage;
    int *inside = new int[2]{};
    for (int i = 0; i < 2; ++i)
        World::thread([=] {
            try {
                auto &writer = *new RingWriter(RingStage::open(), nullptr);
                inside[i] = 1;
                send(writer, 0);
            } catch (const Error &error) {
                EXPECT(error.code == Code::busy);
            }
        });
    World::finally([=] { EXPECT(inside[0] + inside[1] == 1); });
}

// The publication is killed at any of its operations; another goes on after it. Nothing committed is lost but by a lap, nothing
// is seen twice, and the numbers go on.
template <uint64_t before, uint64_t after> void killed_and_followed() {
    RingStage stage;
    RingReader &reader = RingStage::reader(2);
    RingWriter &mortal = RingStage::writer(0);
    sends(mortal, before, true);
    uint64_t *end = new uint64_t(~uint64_t{0});
    World::thread([=] {
        RingWriter *writer = nullptr;
        while (writer == nullptr) {
            try {
                writer = new RingWriter(RingStage::open(), nullptr);
            } catch (const Error &error) {
                EXPECT(error.code == Code::busy);
                return; // it lives
            }
        }
        const uint64_t first = writer->sequence();
        EXPECT(first <= before);
        for (uint64_t i = 0; i < after; ++i) send(*writer, first + i);
        *end = first + after;
    });
    World::thread([&reader] {
        Got got;
        for (int turn = 0; turn < 4; ++turn) got.one(reader);
        EXPECT(got.total + reader.lost_messages() == reader.sequence());
        EXPECT(reader.restarts() <= 1);
    });
    World::finally([=, &reader] {
        if (*end == ~uint64_t{0}) return;
        Got got;
        while (got.one(reader)) {
        }
        EXPECT(reader.sequence() == *end);
    });
}

void batch_killed() {
    RingStage stage;
    RingReader &reader = RingStage::reader(2);
    RingWriter &mortal = RingStage::writer(0);
    World::thread([&mortal] { send_two(mortal); }, true);
    World::thread([&reader] {
        Got got;
        for (int turn = 0; turn < 2; ++turn) got.one(reader);
    });
    World::finally([&reader] {
        if (!World::died(0)) return;
        auto &writer = *new RingWriter(RingStage::open(), nullptr);
        const uint64_t first = writer.sequence();
        EXPECT(first == 0 || first == 2);
        send(writer, first);
        Got got;
        while (got.one(reader)) {
        }
        EXPECT(reader.sequence() == first + 1 && reader.lost_messages() == 0);
    });
}

void slot_of_a_dead_reader() { // one slot: the next reader after a dead one gets it, and is counted once
    RingStage stage(1);
    RingWriter &writer = RingStage::writer(2);
    for (int i = 0; i < 2; ++i)
        World::thread(
            [] {
                try {
                    auto &reader = *new RingReader(RingStage::open(), {}, false);
                    Got got;
                    got.one(reader);
                } catch (const Error &error) {
                    EXPECT(error.code == Code::busy);
                }
            },
            i == 0);
    World::thread([&writer] {
        send(writer, 0);
        EXPECT(writer.ring().readers() <= 1);
    });
}

void dead_reader_is_not_counted() {
    RingStage stage;
    RingWriter &writer = RingStage::writer(1);
    World::thread([] { new RingReader(RingStage::open(), {}, false); }, true);
    World::finally([&writer] { EXPECT(writer.ring().readers() == (World::died(0) ? 0 : 1)); });
}

void all_have_read() { // without lag, all was read: what a reader did before it took a message has happened
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    RingWriter &writer = RingStage::writer(0);
    uint8_t *note = RingStage::mapping->bytes() + 4000; // nobody's bytes, behind the header
    World::thread([&writer, note] {
        send(writer, 0);
        if (writer.ring().lag() != 0) return;
        penstock::read(note, 8);
        EXPECT(*note == 1);
    });
    World::thread([&reader, note] {
        while (reader.peek() == nullptr) spin_pause();
        const uint64_t one = 1;
        copy_in(note, &one, sizeof one);
        reader.consume();
    });
}

void newcomer_has_no_lag() { // its slot's position is its own before anybody asks for it
    RingStage stage;
    RingWriter &writer = RingStage::writer(0);
    send(writer, 0);
    World::thread([] { RingStage::reader(1); });
    World::thread([&writer] { EXPECT(writer.ring().lag() == 0); });
}

// The circle is full, and the reader is at 64, which the claim spares so far. The next message comes to 256: the 0 and the number
// behind it overwrite the header of the frame that the reader comes to.
void fill_up(RingWriter &writer, RingReader &reader) {
    Got got;
    send(writer, 0);
    EXPECT(got.one(reader) && reader.position() == 64);
    for (uint64_t i = 1; i < 4; ++i) send(writer, i);
    EXPECT(writer.ring().control().claimed.value.relaxed() < 256 + 64);
}
void reads_two(RingReader &reader) {
    World::thread([&reader] {
        Got got;
        for (int turn = 0; turn < 2; ++turn) got.one(reader);
        EXPECT(got.total + reader.lost_messages() + 1 == reader.sequence());
    });
}

void claimed_before_it_is_written() {
    RingStage stage;
    RingReader &reader = RingStage::reader(1);
    RingWriter &writer = RingStage::writer(0);
    fill_up(writer, reader);
    World::thread([&writer] { send(writer, 4); });
    reads_two(reader);
}

// Another publication follows one that has claimed bytes: it overwrites them under that claim, without claiming them again.
template <bool killed> void followed_at_the_lap() {
    RingStage stage;
    RingReader &reader = RingStage::reader(2);
    RingWriter &first = RingStage::writer(0);
    fill_up(first, reader);
    World::thread(
        [&first] {
            if (killed) return send(first, 4);
            first.abort(first.claim(8));
            first.ring().detach();
        },
        killed);
    World::thread([] {
        try {
            auto &writer = *new RingWriter(RingStage::open(), nullptr);
            send(writer, writer.sequence());
        } catch (const Error &error) {
            EXPECT(error.code == Code::busy);
        }
    });
    reads_two(reader);
}

// Until the stream has ended, asleep in between if a writer that goes wakes the reader. A look for the publication comes before
// the look for a frame, as in RingReading::ended.
void ends(bool mortal) {
    RingStage stage(1);
    RingReader &reader = RingStage::reader(1);
    RingWriter &writer = RingStage::writer(0);
    auto *sent = new uint64_t(0);
    World::thread(
        [&writer, sent] {
            for (uint64_t i = 0; i < 2; ++i) {
                send(writer, i);
                ++*sent;
            }
            writer.ring().detach();
        },
        mortal);
    World::thread([&reader, sent, mortal] {
        Atomic<uint32_t> &event = reader.ring().control().data.value;
        Got got;
        uint32_t gone = 0;
        for (;;) {
            const uint32_t expected = mortal ? 0 : event_prepare(event);
            if (got.one(reader)) continue;
            if (reader.ring().has_lost_writer(gone, true) && !reader.ring().readable(reader.position())) break;
            if (mortal) spin_pause();
            else event_sleep(event, expected, 1);
        }
        EXPECT(got.total >= *sent && reader.lost_messages() == 0);
    });
}
void ends_when_closed() { ends(false); }
void ends_when_killed() { ends(true); }

} // namespace

const std::vector<Scenario> &ring_scenarios() {
    static const std::vector<Scenario> all = {
        {"ring_flow", "a publication and a subscription within a lap", flow<2>},
        {"ring_lap", "the subscription is lapped and counts what it lost", flow<5>, true},
        {"ring_two_laps", "and lapped again", flow<9>, true},
        {"ring_claims", "bytes are claimed before they are overwritten", claimed_before_it_is_written},
        {"ring_two_readers", "each gets everything", two_readers, true},
        {"ring_long_messages", "several words, whole or not at all", long_messages_wrap, true},
        {"ring_pad", "a pad fills the end of the circle", pad_at_the_end},
        {"ring_batch", "a batch becomes visible at once", batch_at_once},
        {"ring_batch_pad", "over the circle's end", batch_over_the_end},
        {"ring_claim_commit", "a message written in place", claimed_in_place<true>, true},
        {"ring_claim_abort", "and given up", claimed_in_place<false>, true},
        {"ring_join", "a subscription comes while others write", joins_while_written<Start::From::newest>, true},
        {"ring_join_last", "and begins with the newest messages", joins_while_written<Start::From::last>, true},
        {"ring_conflate", "only the newest", newest_only<3>, true},
        {"ring_conflate_lap", "and the newest is overwritten", newest_only<5>, true},
        {"ring_conflate_batch", "the newest of a batch", newest_of_a_batch, true},
        {"ring_borrow", "a borrowed message that was overwritten is reported", borrowed, true},
        {"ring_sleep", "no wake-up is lost", sleeper_is_woken},
        {"ring_batch_wakes", "nor by a batch", batch_wakes},
        {"ring_await_reader", "a publication sleeps until a subscription comes", writer_awaits_a_reader},
        {"ring_one_writer", "of two publications at most one is let in", at_most_one_writes},
        {"ring_killed", "the publication is killed, another goes on", killed_and_followed<1, 1>, true},
        {"ring_killed_lap", "and laps its readers", killed_and_followed<2, 3>, true},
        {"ring_killed_at_lap", "as it overwrites", followed_at_the_lap<true>, true},
        {"ring_followed_at_lap", "it gives up what it claimed and leaves", followed_at_the_lap<false>, true},
        {"ring_killed_batch", "killed within a batch", batch_killed},
        {"ring_dead_reader", "its slot is given to the next", slot_of_a_dead_reader, true},
        {"ring_dead_uncounted", "and it is not counted", dead_reader_is_not_counted},
        {"ring_all_read", "no lag is shown only of what was read", all_have_read},
        {"ring_newcomer", "and none of who has just come", newcomer_has_no_lag},
        {"ring_ends_when_closed", "a reader is told of the stream's end", ends_when_closed},
        {"ring_ends_when_killed", "and when the publication was killed", ends_when_killed},
    };
    return all;
}

} // namespace penstock::model
