// The term log's scenarios: each a handful of operations whose every interleaving, within the budget, must keep the
// log's promises. Terms are 256 bytes, frames 32 or 64, so that a few messages cross every boundary.
#include "explorer.hpp"
#include "scenarios.hpp"

#include "log_reader.hpp"
#include "log_writer.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace penstock::model {
namespace {

// One channel for all executions; its bytes are laid out anew before each.
class Stage {
  public:
    explicit Stage(uint32_t window = 256, uint32_t slots = 4) {
        LogGeometry g;
        g.term_length = 256;
        g.window = window;
        g.slot_count = slots;
        static std::vector<uint8_t> pristine;
        static LogGeometry made;
        if (!mapping || made.window != g.window || made.slot_count != g.slot_count) {
            const HeapOff off;
            const int fd = memfd_create("model", MFD_CLOEXEC);
            const uint64_t size = log_file_size(g.slot_count, g.term_length);
            const uint8_t boot[16] = {};
            if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) std::abort();
            format_log(fd, g, "{}", boot, 0);
            mapping = std::make_shared<Mapping>(fd, size, true);
            ::close(fd);
            pristine.assign(mapping->bytes(), mapping->bytes() + size);
            made = g;
        }
        std::memcpy(mapping->bytes(), pristine.data(), pristine.size());
        World::share(mapping->bytes(), mapping->size(), terms_offset(slots));
        const auto *control = reinterpret_cast<Control *>(mapping->bytes() + control_offset);
        World::quiet(&control->totals, sizeof control->totals);
        World::quiet(&control->sessions, sizeof control->sessions);
        for (uint32_t i = 0; i < slots; ++i) {
            const auto *slot = reinterpret_cast<Slot *>(mapping->bytes() + slots_offset + i * sizeof(Slot));
            World::quiet(&slot->counters, sizeof slot->counters);
            World::quiet(&slot->identity.pid, 12); // pid, session, departed
            World::quiet(&slot->identity.joined_ns, 8);
        }
    }
    static std::shared_ptr<TermLog> open() { return std::make_shared<TermLog>(-1, "log", mapping); }
    static LogWriter &writer(int thread, bool exclusive = false) {
        World::owner(thread);
        auto &made = *new LogWriter(open(), exclusive, nullptr);
        World::owner(-1);
        return made;
    }
    static LogReader &reader(int thread, Start start = {}, uint64_t drop_after_ns = 0) {
        World::owner(thread);
        auto &made = *new LogReader(open(), start, drop_after_ns);
        World::owner(-1);
        return made;
    }
    // Moves the tail on by messages of `each` bytes, header included, while nobody else is there yet.
    static void advance(uint64_t bytes, uint32_t each = 32) {
        LogWriter writer(open(), false, nullptr);
        const uint8_t nothing[32] = {};
        for (uint64_t done = 0; done < bytes; done += each)
            if (writer.offer(nothing, each - header_length) == no_room) std::abort();
    }

    static inline std::shared_ptr<Mapping> mapping;
};

struct Word {
    uint32_t writer, number;
};

bool offer(LogWriter &writer, uint32_t who, uint32_t number) {
    const Word word{who, number};
    return writer.offer(&word, sizeof word) != no_room;
}
void offer_surely(LogWriter &writer, uint32_t who, uint32_t number) {
    while (!offer(writer, who, number)) spin_pause();
}

// What a reader saw: each writer's numbers must come in order and without a hole.
struct Seen {
    uint32_t next[threads_max + 1] = {};
    uint32_t total = 0;
    uint64_t last_position = 0;
    bool first = true;

    void take(LogReader &reader, const Message &message, bool from_the_start = true) {
        EXPECT(message.length == sizeof(Word));
        penstock::read(message.data, message.length);
        Word word;
        std::memcpy(&word, message.data, sizeof word);
        EXPECT(word.writer <= threads_max);
        if (!from_the_start && next[word.writer] == 0) next[word.writer] = word.number;
        EXPECT(word.number == next[word.writer]);
        EXPECT(first || message.position > last_position);
        first = false;
        last_position = message.position;
        ++next[word.writer];
        ++total;
        reader.take();
    }
};

void read_count(LogReader &reader, Seen &seen, uint32_t count) {
    while (seen.total < count) {
        const Message *message = reader.look();
        if (message == nullptr) spin_pause();
        else seen.take(reader, *message);
    }
}
// Until `who` was heard to the end, whatever the dead left in between.
void read_past_the_dead(LogReader &reader, Seen &seen, uint32_t who, uint32_t count) {
    while (seen.next[who] < count) {
        const Message *message = reader.look();
        if (message != nullptr) seen.take(reader, *message);
        else if (!reader.unblock()) spin_pause();
    }
}

// ---- publish and read ----

void publish_read() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 3; ++i) offer_surely(writer, 1, i);
    });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 3);
        EXPECT(reader.look() == nullptr);
    });
}

void exclusive_publish() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0, true);
    World::thread([&] {
        for (uint32_t i = 0; i < 5; ++i) offer_surely(writer, 1, i); // 5 × 64 of 256: crosses into the next term
    });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 5);
    });
}

void two_publish() {
    Stage stage;
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    World::thread([&] { offer_surely(one, 1, 0); });
    World::thread([&] { offer_surely(two, 2, 0); });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 2);
    });
}

template <bool commits> void claim_then() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        LogWriter::Reservation place;
        EXPECT(writer.reserve(sizeof(Word), writer.open_index(), place));
        offer_surely(writer, 2, 0);
        const Word word{1, 0};
        copy_in(place.payload, &word, sizeof word);
        if (commits) writer.commit(place);
        else writer.abort(place);
        offer_surely(writer, 2, 1);
    });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, commits ? 3 : 2);
        EXPECT(seen.next[1] == (commits ? 1u : 0u));
        EXPECT(seen.next[2] == 2);
        EXPECT(reader.look() == nullptr);
    });
}

void abort_at_once() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        LogWriter::Reservation place;
        while (!writer.reserve(sizeof(Word), 0, place)) spin_pause();
        writer.abort(place);
        offer_surely(writer, 1, 0);
    });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 1);
    });
}

void batch() {
    Stage stage(256);
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    World::thread([&] {
        const Word words[] = {{1, 0}, {1, 1}};
        LogWriter::Piece pieces[] = {{&words[0], sizeof(Word)}, {&words[1], sizeof(Word)}};
        size_t done = 0;
        while (done < 2) done += one.offer_many(pieces + done, 2 - done);
    });
    World::thread([&] { offer_surely(two, 2, 0); });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 3);
    });
}

// Frames of one run become reachable by the first one's length alone.
void batch_of_empty() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        LogWriter::Piece pieces[] = {{nullptr, 0}, {nullptr, 0}};
        EXPECT(writer.offer_many(pieces, 2) == 2);
        EXPECT(writer.offer_many(pieces, 2) == 2);
    });
    World::thread([&] {
        uint32_t count = 0;
        while (count < 4) {
            const Message *message = reader.look();
            if (message == nullptr) {
                spin_pause();
                continue;
            }
            EXPECT(message->length == 0);
            EXPECT(message->session == writer.session());
            ++count;
            reader.take();
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
        LogWriter::Sending sending{data, sizeof data};
        while (!one.send_some(sending)) spin_pause();
    });
    World::thread([&] { offer_surely(two, 2, 0); });
    World::thread([&] {
        uint32_t got = 0;
        while (got < 2) {
            const Message *message = reader.look();
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
            reader.take();
        }
        EXPECT(reader.incomplete() == 0);
    });
}

void recorder_runs() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 3; ++i) offer_surely(writer, 1, i);
    });
    World::thread([&] {
        uint32_t begins = 0;
        while (begins < 3) {
            const LogReader::Run run = reader.run(1 << 20);
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
            const Message *message = reader.look();
            if (message == nullptr) spin_pause();
            else if (message->length == 0) reader.take();
            else seen.take(reader, *message);
        }
    });
}

void two_trip() {
    Stage stage;
    Stage::advance(256 - 32);
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    World::thread([&] { offer_surely(one, 1, 0); });
    World::thread([&] { offer_surely(two, 2, 0); });
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
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 4);
    });
}

void whole_lap() { // every byte of memory is used twice: cleaning goes where the reader was
    Stage stage(256);
    Stage::advance(640, 64); // the memory of the oldest kept, at 0, is used again from 768 on
    LogReader &reader = Stage::reader(1, {Start::From::earliest, 0});
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) offer_surely(writer, 1, i);
    });
    World::thread([&] {
        Seen seen;
        for (uint32_t old = 0; old < 10; ++old) {
            const Message *message = reader.look();
            EXPECT(message != nullptr && message->length == 32);
            penstock::read(message->data, message->length);
            reader.take();
        }
        read_count(reader, seen, 4);
    });
}

void two_make_room() {
    Stage stage(128);
    LogReader &reader = Stage::reader(2);
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i) offer_surely(one, 1, i);
    });
    World::thread([&] { offer_surely(two, 2, 0); });
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 3);
    });
}

void held_bytes_stay() { // a borrowed message's bytes stay while later ones are taken
    Stage stage(256);
    Stage::advance(640, 64); // as in whole_lap: a few messages more, and cleaning comes to the first of them
    LogReader &reader = Stage::reader(1, {Start::From::earliest, 0});
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) offer_surely(writer, 1, i);
    });
    World::thread([&] {
        Seen seen;
        const Message *message = reader.look();
        const uint8_t *bytes = message->data;
        const uint64_t position = message->position;
        reader.hold(position);
        reader.take();
        for (uint32_t old = 1; old < 10; ++old) {
            EXPECT(reader.look() != nullptr);
            reader.take();
        }
        for (int turn = 0; turn < 3; ++turn) spin_pause();
        penstock::read(bytes, 32);
        reader.let_go(position);
        read_count(reader, seen, 4);
    });
}

void slow_is_dropped() {
    Stage stage(128);
    Stage::advance(640, 64); // as in whole_lap: a few messages more, and cleaning comes to where it reads
    LogReader &reader = Stage::reader(1, {Start::From::earliest, 0}, 1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 7; ++i) offer_surely(writer, 1, i);
    });
    World::thread([&] {
        World::tolerate();
        uint32_t next = 0;
        bool lost = false;
        for (uint32_t turn = 0; turn < 3; ++turn) {
            try {
                const Message *message = reader.look();
                if (message == nullptr) {
                    spin_pause();
                    continue;
                }
                Word word;
                penstock::read(message->data, sizeof word);
                std::memcpy(&word, message->data, sizeof word);
                const uint64_t length = message->length;
                reader.still_mine(); // throws if what was read may be another message's
                EXPECT(!World::torn());
                if (length == 32) { // one of those sent before
                    EXPECT(word.writer == 0);
                    reader.take();
                    continue;
                }
                EXPECT(length == sizeof word && word.writer == 1);
                EXPECT(lost ? word.number >= next : word.number == next);
                lost = false;
                next = word.number + 1;
                reader.take();
            } catch (const Error &error) {
                EXPECT(error.code == Code::dropped);
                World::torn();
                lost = true;
            }
        }
    });
}

// ---- members ----

template <Start::From from> void attach_while_written() {
    Stage stage(128);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) offer_surely(writer, 1, i);
    });
    World::thread([&] {
        LogReader &reader = Stage::reader(1, {from, 0});
        Seen seen;
        for (int turn = 0; turn < 4; ++turn) {
            const Message *message = reader.look();
            if (message == nullptr) spin_pause();
            else seen.take(reader, *message, false);
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
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 2);
    });
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
        const Message *message = reader.look();
        if (message != nullptr) seen.take(reader, *message);
        else event_sleep(event, expected, 1);
    }
}

void wait_wake() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i) offer_surely(writer, 1, i);
    });
    World::thread([&] {
        Seen seen;
        sleep_for(reader, seen, 2);
    });
}

void two_sleep() {
    Stage stage;
    LogReader &one = Stage::reader(1), &two = Stage::reader(2);
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i) offer_surely(writer, 1, i);
    });
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
    World::thread([&] { offer_surely(one, 1, 0); });
    World::thread([&] { offer_surely(two, 2, 0); });
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
    World::thread([&] {
        Seen seen;
        read_count(reader, seen, 3);
    });
}

// ---- the dead ----

// A reader looks for dead claims though everybody lives: it must never take a living one's away.
template <bool exclusive> void nobody_is_dead() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &writer = Stage::writer(0, exclusive);
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i) offer_surely(writer, 1, i);
    });
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
        LogWriter::Piece pieces[] = {{&words[0], sizeof(Word)}, {&words[1], sizeof(Word)}};
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
    World::thread([&] {
        for (uint32_t i = 0; i < 2; ++i) offer_surely(writer, 1, i);
    });
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
    World::thread([&] { offer_surely(mortal, 1, 0); }, true);
    World::thread([&] {
        Seen seen;
        for (int turn = 0; turn < 2; ++turn) {
            const Message *message = one.look();
            if (message != nullptr) seen.take(one, *message);
            else one.unblock();
        }
        offer_surely(living, 2, 0);
        read_past_the_dead(one, seen, 2, 1);
    });
    World::thread([&] {
        Seen seen;
        while (seen.next[2] < 1) {
            const Message *message = two.look();
            if (message != nullptr) seen.take(two, *message);
            else spin_pause();
        }
    });
}

void dead_holder_replaced() { // the slot of a dead lock holder has a new owner before anybody asks for the lock
    Stage stage(128, 3);
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    World::thread([&] { offer_surely(mortal, 1, 0); }, true);
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
    World::thread([&] { offer_surely(mortal, 1, 0); }, true);
    World::thread([&] { offer_surely(living, 2, 0); });
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
            LogWriter::Reservation place;
            while (!mortal.reserve(sizeof(Word), mortal.open_index(), place)) spin_pause();
            const Word word{1, 0};
            copy_in(place.payload, &word, sizeof word);
            mortal.commit(place);
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
    World::thread([&] { offer_surely(mortal, 1, 0); }, true);
    World::thread([&] {
        LogWriter::Reservation place;
        while (!living.reserve(sizeof(Word), living.open_index(), place)) spin_pause();
        Seen seen;
        for (int turn = 0; turn < 3; ++turn) {
            const Message *message = reader.look();
            if (message != nullptr) seen.take(reader, *message);
            else reader.unblock();
        }
        const Word word{2, 0};
        copy_in(place.payload, &word, sizeof word);
        living.commit(place);
        read_past_the_dead(reader, seen, 2, 1);
    });
}

void dead_batch() {
    Stage stage;
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    World::thread(
        [&] {
            LogWriter::Piece pieces[] = {{nullptr, 0}, {nullptr, 0}};
            mortal.offer_many(pieces, 2);
        },
        true);
    World::thread([&] {
        offer_surely(living, 2, 0);
        Seen seen;
        while (seen.next[2] == 0) {
            const Message *message = reader.look();
            if (message == nullptr) {
                if (!reader.unblock()) spin_pause();
            } else if (message->length == 0) reader.take();
            else seen.take(reader, *message);
        }
    });
}

void dead_at_the_trip() {
    Stage stage;
    Stage::advance(256 - 32);
    LogReader &reader = Stage::reader(2);
    LogWriter &mortal = Stage::writer(0), &living = Stage::writer(1);
    World::thread([&] { offer(mortal, 1, 0); }, true);
    World::thread([&] { offer_surely(living, 2, 0); });
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
                const Message *message = reader.look();
                if (message != nullptr) seen.take(reader, *message);
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
    World::thread([&] {
        for (uint32_t i = 0; i < 4; ++i) offer_surely(writer, 1, i);
    });
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
        {"trip", "a term's end becomes padding", trip},
        {"trip_without_room", "room is made for the padding itself", trip_without_room},
        {"two_trip", "two publications at a term's end", two_trip, true},
        {"back_pressure", "a writer waits for its reader", back_pressure},
        {"whole_lap", "memory is cleaned and used again", whole_lap},
        {"two_make_room", "two writers move the limit", two_make_room, true},
        {"held_bytes_stay", "borrowed bytes are not cleaned", held_bytes_stay},
        {"slow_is_dropped", "a slow reader is let go and told", slow_is_dropped},
        {"attach_newest", "a subscription comes while others write", attach_while_written<Start::From::newest>},
        {"attach_earliest", "and starts at the oldest kept", attach_while_written<Start::From::earliest>},
        {"attach_two", "two publications come at once", attach_two, true},
        {"exclusive_alone", "at most one is exclusive", exclusive_alone},
        {"slot_changes_hands", "a slot's owner goes, another comes", slot_changes_hands},
        {"wait_wake", "no wake-up is lost", wait_wake},
        {"two_sleep", "two sleepers", two_sleep},
        {"two_wake", "two wakers", two_wake},
        {"writer_sleeps_for_room", "a writer sleeps until there is room", writer_sleeps_for_room},
        {"nobody_is_dead", "a reader that looks for the dead spares the living", nobody_is_dead<false>},
        {"nobody_is_dead_exclusive", "and an exclusive publication", nobody_is_dead<true>},
        {"nobody_is_dead_in_a_batch", "nor between the runs of a batch", nobody_is_dead_in_a_batch},
        {"nobody_is_dead_at_the_trip", "at a term's end too", nobody_is_dead_at_the_trip},
        {"dead_seen_by_two", "one reader fills a hole, another walks over it", dead_seen_by_two, true},
        {"dead_holder_replaced", "a dead lock holder's slot has a new owner", dead_holder_replaced, true},
        {"dead_claim", "a publication dies anywhere", dead_claim, true},
        {"dead_claim_alone", "and one who lives writes and reads on", dead_claim_alone},
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
