// The term log's scenarios with everybody alive: each a handful of operations whose every interleaving, within the budget,
// must keep the log's promises.
#include "stage.hpp"

namespace penstock::model {
namespace {

// ---- publish and read ----

void publish_read() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 3);
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 3);
        EXPECT(reader.peek() == nullptr);
    });
}

void exclusive_publish() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0, true);
    offers(writer, 1, 5); // 5 × 64 of 256: crosses into the next term
    reads(reader, 5);
}

void two_publish() {
    Stage stage;
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    offers(one, 1, 1);
    offers(two, 2, 1);
    reads(reader, 2);
}

template <bool commits> void claim_then() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        ClaimedRange range;
        EXPECT(writer.claim(sizeof(Word), writer.open_index(), range));
        offer_surely(writer, 2, 0);
        const Word word{1, 0};
        copy_in(range.payload, &word, sizeof word);
        if (commits) writer.commit(range);
        else writer.abort(range);
        offer_surely(writer, 2, 1);
    });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, commits ? 3 : 2);
        EXPECT(seen.next[1] == (commits ? 1u : 0u));
        EXPECT(seen.next[2] == 2);
        EXPECT(reader.peek() == nullptr);
    });
}

void abort_at_once() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        ClaimedRange range;
        while (!writer.claim(sizeof(Word), 0, range)) spin_pause();
        writer.abort(range);
        offer_surely(writer, 1, 0);
    });
    reads(reader, 1);
}

void batch() {
    Stage stage(256);
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    World::thread([&] {
        const Word words[] = {{1, 0}, {1, 1}};
        IoVec pieces[] = {{&words[0], sizeof(Word)}, {&words[1], sizeof(Word)}};
        size_t done = 0;
        while (done < 2) done += one.offer_many(pieces + done, 2 - done);
    });
    offers(two, 2, 1);
    reads(reader, 3);
}

// Frames of one run become reachable by the first one's length alone.
void batch_of_empty() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        IoVec pieces[] = {{nullptr, 0}, {nullptr, 0}};
        EXPECT(writer.offer_many(pieces, 2) == 2);
        EXPECT(writer.offer_many(pieces, 2) == 2);
    });
    World::thread([&] {
        uint32_t count = 0;
        while (count < 4) {
            const Message *message = reader.peek();
            if (message == nullptr) {
                spin_pause();
                continue;
            }
            EXPECT(message->length == 0);
            EXPECT(message->session == writer.session());
            ++count;
            reader.consume();
        }
    });
}

void fragments() {
    Stage stage;
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    World::thread([&] {
        uint8_t data[40]; // two fragments of at most 32
        for (uint8_t i = 0; i < 40; ++i) data[i] = i;
        PendingSend sending{data, sizeof data};
        while (!one.send_some(sending)) spin_pause();
    });
    offers(two, 2, 1);
    World::thread([&] {
        uint32_t got = 0;
        while (got < 2) {
            const Message *message = reader.peek();
            if (message == nullptr) {
                spin_pause();
                continue;
            }
            if (message->assembled) {
                EXPECT(message->length == 40);
                for (uint8_t i = 0; i < 40; ++i) EXPECT(message->data[i] == i);
            } else {
                penstock::read(message->data, message->length);
                EXPECT(message->length == sizeof(Word));
            }
            ++got;
            reader.consume();
        }
        EXPECT(reader.incomplete() == 0);
    });
}

void recorder_runs() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 3);
    World::thread([&] {
        uint32_t begins = 0;
        while (begins < 3) {
            const FrameBlock run = reader.run(1 << 20);
            if (run.length == 0) {
                spin_pause();
                continue;
            }
            penstock::read(run.data, run.length);
            begins += run.begins;
            reader.take_run(run);
        }
    });
}

void recorder_runs_padding() { // headers of padding are copied as well: of an abort, and of two ends of a term
    Stage stage;
    Stage::advance(256 - 96);
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        ClaimedRange range;
        while (!writer.claim(sizeof(Word), 0, range)) spin_pause();
        writer.abort(range);
        offer_surely(writer, 1, 0);
        while (!writer.pad_rest()) spin_pause();
    });
    World::thread([&] {
        while (reader.position() < 512) {
            const FrameBlock run = reader.run(1 << 20);
            if (run.length == 0) {
                spin_pause();
                continue;
            }
            penstock::read(run.data, run.length);
            reader.take_run(run);
        }
    });
}

// ---- terms, room, cleaning ----

void trip() { // the last 32 bytes of a term become padding
    Stage stage;
    Stage::advance(256 - 32);
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        offer_surely(writer, 1, 0);
        offer_surely(writer, 1, 1);
    });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 2);
        EXPECT(seen.last_position == 256 + 64);
    });
}

void trip_without_room() { // room is made for the padding itself
    Stage stage(224);
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 3; ++i) offer_surely(writer, 1, i);
        while (writer.offer(nullptr, 0) == no_room) spin_pause(); // 224: 32 are left
        offer_surely(writer, 1, 3);
    });
    World::thread([&] {
        Seen seen;
        while (seen.total < 4) {
            const Message *message = reader.peek();
            if (message == nullptr) spin_pause();
            else if (message->length == 0) reader.consume();
            else seen.consume(reader, *message);
        }
    });
}

void two_trip() {
    Stage stage;
    Stage::advance(256 - 32);
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    offers(one, 1, 1);
    offers(two, 2, 1);
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 2);
        EXPECT(seen.last_position == 256 + 64);
    });
}

void back_pressure() { // 128 bytes of window: a writer must wait for its reader
    Stage stage(128);
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) {
            offer_surely(writer, 1, i);
            EXPECT(writer.log().tail() <= writer.log().limit());
        }
    });
    reads(reader, 4);
}

void whole_lap() { // every byte of memory is used twice: cleaning goes where the reader was
    Stage stage(256);
    Stage::advance(640, 64); // the memory of the oldest kept, at 0, is used again from 768 on
    LogReader &reader = Stage::reader(1, {Start::From::earliest, 0});
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 4);
    World::thread([&] {
        Seen seen;
        for (uint32_t old = 0; old < 10; ++old) {
            const Message *message = reader.peek();
            EXPECT(message != nullptr && message->length == 32);
            penstock::read(message->data, message->length);
            reader.consume();
        }
        read_count(reader, seen, 4);
    });
}

void two_make_room() {
    Stage stage(128);
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    offers(one, 1, 2);
    offers(two, 2, 1);
    reads(reader, 3);
}

void held_bytes_stay() { // a borrowed message's bytes stay while later ones are taken
    Stage stage(256);
    Stage::advance(640, 64); // as in whole_lap: a few messages more, and cleaning comes to the first of them
    LogReader &reader = Stage::reader(1, {Start::From::earliest, 0});
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 4);
    World::thread([&] {
        Seen seen;
        const Message *message = reader.peek();
        const uint8_t *bytes = message->data;
        const uint64_t position = message->position;
        reader.hold(position);
        reader.consume();
        for (uint32_t old = 1; old < 10; ++old) {
            EXPECT(reader.peek() != nullptr);
            reader.consume();
        }
        for (int turn = 0; turn < 3; ++turn) spin_pause();
        penstock::read(bytes, 32);
        reader.end_hold(position);
        read_count(reader, seen, 4);
    });
}

void slow_is_dropped() {
    Stage stage(128);
    Stage::advance(640, 64); // as in whole_lap: a few messages more, and cleaning comes to where it reads
    LogReader &reader = Stage::reader(1, {Start::From::earliest, 0}, 1);
    LogWriter &writer = Stage::writer(0);
    offers(writer, 1, 7);
    World::thread([&] {
        World::tolerate();
        uint32_t next = 0;
        bool lost = false;
        for (uint32_t turn = 0; turn < 3; ++turn) {
            try {
                const Message *message = reader.peek();
                if (message == nullptr) {
                    spin_pause();
                    continue;
                }
                Word word;
                penstock::read(message->data, sizeof word);
                std::memcpy(&word, message->data, sizeof word);
                const uint64_t length = message->length;
                reader.check_not_dropped(); // throws if the bytes read may be another message's
                EXPECT(!World::torn());
                if (length == 32) { // one of those sent before
                    EXPECT(word.writer == 0);
                    reader.consume();
                    continue;
                }
                EXPECT(length == sizeof word && word.writer == 1);
                EXPECT(lost ? word.number >= next : word.number == next);
                lost = false;
                next = word.number + 1;
                reader.consume();
            } catch (const Error &error) {
                EXPECT(error.code == Code::too_slow);
                World::torn();
                lost = true;
            }
        }
    });
}

} // namespace

const std::vector<Scenario> &log_scenarios() {
    static const std::vector<Scenario> all = {
        {"publish_read", "a publication and a subscription", publish_read},
        {"exclusive_publish", "an exclusive publication crosses a term", exclusive_publish},
        {"two_publish", "two publications, one order", two_publish, true},
        {"claim_commit", "a claim stays open while others are sent", claim_then<true>},
        {"claim_abort", "and is given up", claim_then<false>},
        {"abort_at_once", "before anything else", abort_at_once},
        {"batch", "a batch becomes visible at once, beside another publication", batch, true},
        {"batch_of_empty", "empty frames of one run", batch_of_empty},
        {"fragments", "a large message beside a small one", fragments, true},
        {"recorder_runs", "whole runs, as the recorder takes them", recorder_runs},
        {"recorder_runs_padding", "and the padding between them", recorder_runs_padding},
        {"trip", "a term's end becomes padding", trip},
        {"trip_without_room", "room is made for the padding itself", trip_without_room},
        {"two_trip", "two publications at a term's end", two_trip, true},
        {"back_pressure", "a writer waits for its reader", back_pressure},
        {"whole_lap", "memory is cleaned and used again", whole_lap},
        {"two_make_room", "two writers move the limit", two_make_room, true},
        {"held_bytes_stay", "borrowed bytes are not cleaned", held_bytes_stay},
        {"slow_is_dropped", "a slow reader is let go and told", slow_is_dropped},
    };
    return all;
}

} // namespace penstock::model
