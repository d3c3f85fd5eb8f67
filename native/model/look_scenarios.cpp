// Looks at a log and at a ring beside writers that use the memory again: what a look gives is right, and the rest is missing.
#include "ring_stage.hpp"
#include "stage.hpp"

#include "log/log_look.hpp"
#include "ring/ring_look.hpp"

namespace penstock::model {
namespace {

// ---- the log: old messages are 32 bytes of ones, new ones a word that says who sent it ----

struct Filled {
    uint64_t end = 0; // of the old messages
    int32_t session = 0;
} filled;

void fill_with_ones(uint64_t bytes, uint32_t length = 32) {
    LogWriter writer(Stage::open(), false, nullptr);
    filled = {bytes, writer.session()};
    uint8_t ones[32];
    std::memset(ones, 0xff, sizeof ones);
    for (uint64_t done = 0; done < bytes; done += length + header_length)
        if (writer.offer(ones, length) == no_room) std::abort();
}

// Reads all that there is; whatever was cleaned or written anew while it was read has not come through.
struct Looked {
    uint32_t next[threads_max + 1] = {};
    uint64_t at = 0;

    void all(LogLook &look, uint64_t start) {
        look.begin(start, look.end());
        at = start;
        while (look.take([&](const BatchRow &row, size_t length, auto &&copy) { return one(look, row, length, copy); }));
        EXPECT(look.position() >= at && look.resume() == look.position());
        for (const MissingSpan &span : look.missing()) EXPECT(span.start >= start && span.start < span.end);
    }
    template <class Copy> bool one(const LogLook &look, const BatchRow &row, size_t length, Copy &&copy) {
        uint8_t bytes[32];
        EXPECT(length <= sizeof bytes);
        World::torn();
        if (!copy(bytes)) return false;
        EXPECT(!World::torn());
        EXPECT(row.position >= at && (row.session == filled.session) == (row.position < filled.end));
        at = row.position;
        if (length == 0) return true;
        if (length == sizeof bytes) {
            for (const uint8_t byte : bytes) EXPECT(byte == 0xff);
            return true;
        }
        Word word;
        EXPECT(length == sizeof word);
        std::memcpy(&word, bytes, sizeof word);
        EXPECT(word.writer <= threads_max && word.number >= next[word.writer]);
        EXPECT(word.number == next[word.writer] || !look.missing().empty());
        next[word.writer] = word.number + 1;
        return true;
    }
};

void looks(uint64_t start) {
    World::thread([start] {
        World::tolerate();
        LogLook look(Stage::mapping, "log");
        Looked().all(look, start);
    });
}

void look_beside_one() { // which cleans, and writes where it has cleaned
    Stage stage(128);
    fill_with_ones(640); // the memory of the oldest kept, at 0, is used again from 768 on
    offers(Stage::writer(0), 1, 4);
    looks(128);
}

void look_beside_two() { // one writes into what the other has cleaned
    Stage stage(128);
    fill_with_ones(640, 0); // empty ones: a new header replaces all of an old message
    LogWriter &one = Stage::writer(0), &two = Stage::writer(1);
    World::thread([&one] {
        for (uint32_t i = 0; i < 2; ++i) offer_surely(one, 1, i);
        while (one.offer(nullptr, 0) == no_room) spin_pause();
    });
    World::thread([&two] {
        while (two.offer(nullptr, 0) == no_room) spin_pause();
    });
    looks(32); // where the last message goes: a limit that says that the old one is kept is two steps old then
}

void look_beside_padding() { // a claim for which two steps are cleaned under one lock
    Stage stage;
    fill_with_ones(704);
    LogWriter &writer = Stage::writer(0);
    World::thread([&writer] {
        offer_surely(writer, 1, 0);
        writer.pad_rest(); // of a whole term
    });
    looks(256);
}

void look_at_the_tail() { // all that was committed before is there
    Stage stage;
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        offer_surely(writer, 1, 0);
        offer_surely(writer, 1, 1);
    });
    World::thread([] {
        World::tolerate();
        LogLook look(Stage::mapping, "log");
        const uint64_t end = look.end();
        Looked seen;
        seen.all(look, 0);
        EXPECT(look.missing().empty());
        EXPECT(seen.next[1] + 1 >= end / 64); // only the last claim may be open
    });
}

void look_beside_a_death() { // the pad of a dead publication's claim is no header of what was there before
    Stage stage(128);
    fill_with_ones(640, 0); // empty ones: a header is all that can be wrong
    LogReader &reader = Stage::reader(1);
    LogWriter &mortal = Stage::writer(0);
    World::thread(
        [&] {
            for (uint32_t i = 0; i < 4; ++i) offer(mortal, 1, i);
        },
        true);
    World::thread([&] {
        for (int turn = 0; turn < 4; ++turn) {
            if (reader.peek() != nullptr) reader.consume();
            else if (!reader.unblock()) spin_pause();
        }
    });
    looks(64);
}

// ---- the ring: message i says i ----

void ring_look() {
    RingStage stage;
    RingWriter &writer = RingStage::writer(0);
    for (uint64_t i = 0; i < 3; ++i) send(writer, i);
    World::thread([&] {
        for (uint64_t i = 3; i < 6; ++i) send(writer, i);
    });
    World::thread([] {
        RingLook look(RingStage::mapping, "ring");
        const uint64_t end = look.end();
        look.begin(0, end);
        uint64_t next = 0, at = 0;
        const auto sink = [&](const BatchRow &row, size_t length, auto &&copy) {
            uint64_t number = ~uint64_t{0};
            EXPECT(length == sizeof number);
            if (!copy(&number)) return false;
            EXPECT(number == row.position / 64); // 64 bytes each, and no pads
            EXPECT(number >= next && row.position < end);
            next = number + 1;
            at = row.position + 64;
            return true;
        };
        uint64_t messages = 0, gone = 0;
        while (look.take(sink)) ++messages;
        for (const MissingSpan &span : look.missing()) gone += span.end - span.start;
        EXPECT(messages * 64 + gone == end);
        EXPECT(at <= end && look.position() == end);
    });
}

} // namespace

const std::vector<Scenario> &look_scenarios() {
    static const std::vector<Scenario> all = {
        {"look_beside_one", "a look at a log whose memory is used again", look_beside_one},
        {"look_beside_two", "by two publications", look_beside_two, true},
        {"look_beside_padding", "by a claim of several steps", look_beside_padding},
        {"look_at_the_tail", "a look has what was committed before it", look_at_the_tail},
        {"look_beside_a_death", "beside the repair of a claim", look_beside_a_death, false, true},
        {"ring_look", "a look at a ring that is overwritten", ring_look},
    };
    return all;
}

} // namespace penstock::model
