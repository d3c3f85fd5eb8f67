// Kills one operation on a log that keeps last values after every one of its instructions, as log_kill does. Whenever the lock is
// free, the table has exactly the newest committed message of each key, and a subscription that joins there misses none.
#include "../tests/support.hpp"
#include "stepper.hpp"

#include "log/last_values.hpp"

#include <map>

using namespace penstock;
using namespace penstock::test;
using namespace penstock::kill_room;

namespace {

constexpr uint32_t T = 64 * 1024, keys = 4, last_max = 512;

struct Word {
    uint32_t key, number;
};

struct Case {
    uint32_t length = 100;
    bool near_end = false; // the next frame does not fit into its term
    bool full = false;     // the window is used up: room must be made
    std::string describe(const std::string &op) const {
        return op + " --length " + std::to_string(length) + (near_end ? " --near-end 1" : "") + (full ? " --full 1" : "");
    }
};

struct Sender {
    explicit Sender(const Channel &channel) : writer(channel.writer()), last(writer->shared_log()) {}
    bool send(uint32_t key, uint32_t number, uint32_t length) {
        uint8_t body[last_max] = {};
        const Word word{key, number};
        std::memset(body, static_cast<int>(key * 16 + number), length);
        std::memcpy(body, &word, sizeof word);
        return last.send(reinterpret_cast<const uint8_t *>(&key), sizeof key, body, length,
                         [&](const uint8_t *data, size_t size) { return writer->offer(data, size); }) != no_room;
    }
    std::shared_ptr<LogWriter> writer;
    LastValues last;
};

struct Hands {
    const Channel &channel;
    const Case &at;
    std::shared_ptr<Sender> sender;
    std::shared_ptr<LogReader> reader;
    void make() { sender = std::make_shared<Sender>(channel); }
    void join() {
        reader = channel.reader();
        uint64_t next = 0;
        LastValues(reader->shared_log()).snapshot(next);
        reader->skip_to(next);
    }
    // A holder that dies with its message in the log, before the table has it.
    void die_sending() {
        auto dead = std::make_shared<Sender>(channel);
        try {
            uint8_t body[64] = {};
            const uint32_t key = 0;
            const Word word{key, 90};
            std::memcpy(body, &word, sizeof word);
            dead->last.send(reinterpret_cast<const uint8_t *>(&key), sizeof key, body, sizeof body,
                            [&](const uint8_t *data, size_t size) -> int64_t {
                                CHECK(dead->writer->offer(data, size) != no_room);
                                throw Error(Code::busy, "dies");
                            });
        } catch (const Error &) {
        }
        dead->writer->log().crash_for_test();
    }
};

struct Operation {
    const char *name;
    void (*prepare)(Hands &);
    void (*act)(Hands &);
};

const Operation operations[] = {
    {"send a known key", [](Hands &h) { h.make(); }, [](Hands &h) { h.sender->send(1, 50, h.at.length); }},
    {"send a new key", [](Hands &h) { h.make(); }, [](Hands &h) { h.sender->send(2, 50, h.at.length); }},
    {"send twice", [](Hands &h) { h.make(); },
     [](Hands &h) {
         h.sender->send(0, 50, h.at.length);
         h.sender->send(0, 51, h.at.length);
     }},
    {"join with last values", [](Hands &) {}, [](Hands &h) { h.join(); }},
    {"finish a dead holder's message", [](Hands &h) { h.die_sending(); }, [](Hands &h) { h.join(); }},
    {"send after a dead holder",
     [](Hands &h) {
         h.make();
         h.die_sending();
     },
     [](Hands &h) { h.sender->send(1, 50, h.at.length); }},
};

using Newest = std::map<uint32_t, std::pair<uint64_t, std::vector<uint8_t>>>; // key → position, message

// All that is committed, by a reader from the earliest position on; up to where it could read.
std::string read_all(LogReader &reader, Newest &newest) {
    for (int quiet = 0; quiet < 200;) {
        const Message *message = reader.peek();
        if (message == nullptr) {
            if (!reader.stalled()) return {};
            if (!reader.unblock()) ++quiet;
            continue;
        }
        Word word{};
        std::memcpy(&word, message->data, sizeof word);
        newest[word.key] = {message->position, {message->data, message->data + message->length}};
        reader.consume();
    }
    return "a hole at " + std::to_string(reader.position()) + " is not filled";
}

std::string compare(LastValues &last, LogReader &reader, Newest &newest) {
    uint64_t next = 0;
    const std::vector<LastValue> kept = last.snapshot(next);
    if (const std::string wrong = read_all(reader, newest); !wrong.empty()) return wrong;
    if (next != reader.position()) return "a late reader joins at " + std::to_string(next) + ", not at the tail";
    if (kept.size() != newest.size()) return std::to_string(kept.size()) + " keys are kept, not " + std::to_string(newest.size());
    for (const LastValue &one : kept) {
        Word word{};
        std::memcpy(&word, one.payload.data(), sizeof word);
        if (newest[word.key] != std::pair{one.position, one.payload})
            return "the value of key " + std::to_string(word.key) + " is not its newest: number " + std::to_string(word.number);
    }
    return {};
}

// The table is right, and stays right while the living go on.
std::string go_on(Sender &sender, LogReader &reader, Newest &newest) {
    if (std::string wrong = compare(sender.last, reader, newest); !wrong.empty()) return wrong;
    for (uint32_t i = 0; i < 6; ++i) {
        int turns = 0;
        while (!sender.send(i % 3, 60 + i, 40)) {
            if (++turns == 1000) return "a living publication never finds room";
            if (const std::string wrong = read_all(reader, newest); !wrong.empty()) return wrong;
            usleep(100);
        }
        if (std::string wrong = compare(sender.last, reader, newest); !wrong.empty()) return wrong;
    }
    return {};
}

LogGeometry geometry() {
    LogGeometry g;
    g.term_length = g.window = T;
    g.slot_count = 5;
    g.last = {keys, last_max};
    return g;
}

void lay_out(Sender &sender, LogReader &reader, const Case &at) {
    const uint64_t want = at.near_end ? T - 64 : at.full ? T - 2048 : 0;
    LogWriter &writer = *sender.writer;
    const auto pad = [&](uint64_t bytes) {
        ClaimedRange range;
        CHECK(writer.claim(static_cast<uint32_t>(bytes - header_length), 0, range));
        writer.abort(range);
    };
    while (want > 0 && writer.log().tail() + 13'000 < want) pad(12'000);
    if (want > 0) pad(want - writer.log().tail() - 4 * 96);
    for (uint32_t i = 0; i < 4; ++i) CHECK(sender.send(i % 2, i, 50)); // keys 0 and 1; 96 bytes each
    if (at.full) {
        ClaimedRange range;
        while (writer.claim(64, 0, range)) writer.abort(range);
    }
    if (want != 0) { // over the padding: the next claim must make room, and finds some
        reader.peek();
        reader.show_position();
    }
}

std::string judge(const Channel &channel) {
    return judged([&]() -> std::string {
        auto reader = channel.reader({Start::From::earliest, 0});
        Sender sender(channel);
        Newest newest;
        return go_on(sender, *reader, newest);
    });
}

void examine(const Operation &op, const Case &at, uint64_t kills, std::mt19937_64 &random, Result &result) {
    examine_case(
        at.describe(op.name), kills, 4, random, result,
        [&](std::vector<uint64_t> &changes, std::vector<Place> &places) {
            const Channel channel(geometry()), copy(geometry());
            auto reader = channel.reader({Start::From::earliest, 0});
            {
                Sender sender(channel);
                lay_out(sender, *reader, at);
            }
            Hands hands{channel, at, nullptr, nullptr};
            Victim child([&] { op.prepare(hands); }, [&] { op.act(hands); });
            walk(child, channel.map->bytes(), channel.map->size(), result, changes, places,
                 [&](uint64_t step, const std::vector<uint8_t> &bytes) {
                     std::memcpy(copy.map->bytes(), bytes.data(), bytes.size());
                     const std::string wrong = judge(copy);
                     if (!wrong.empty()) fail(result, at.describe(op.name), step, wrong);
                 });
        },
        [&](uint64_t step, const std::vector<Place> &places) {
            const Channel channel(geometry());
            auto reader = channel.reader({Start::From::earliest, 0});
            Sender sender(channel);
            lay_out(sender, *reader, at);
            Hands hands{channel, at, nullptr, nullptr};
            kill_victim([&] { op.prepare(hands); }, [&] { op.act(hands); }, step, places);
            Newest newest;
            return go_on(sender, *reader, newest);
        });
}

} // namespace

int main(int argc, char **argv) {
    const Options options(argc, argv);
    const uint32_t lengths[] = {8, 24, 100, last_max};
    const auto shape = [&](const Operation &, int number, std::mt19937_64 &random) {
        Case at;
        at.length = lengths[random() % 4];
        at.near_end = number == 1;
        at.full = number == 2;
        return at;
    };
    return campaign(options, "", operations, 3, shape, examine) == 0 ? 0 : 1;
}
