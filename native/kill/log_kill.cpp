// Kills one operation on a log after every one of its instructions. First on copies: a child is stepped through the
// operation, and whenever shared memory has changed, strangers must recover from a copy of it. Then for good: a child is
// stepped to the same place and killed, and the living must go on with the memory it left.
#include "../tests/support.hpp"
#include "stepper.hpp"

#include "sync/sync_queue.hpp"

using namespace penstock;
using namespace penstock::test;
using namespace penstock::kill_room;

namespace {

// ---- what a message says ----

struct Word {
    uint32_t writer, number;
};
enum : uint32_t { before = 1, victim = 2, after = 3, lap = 4 };

void spell(uint8_t *to, uint32_t writer, uint32_t number, uint32_t length) {
    const Word word{writer, number};
    std::memcpy(to, &word, sizeof word);
    for (uint32_t i = sizeof word; i < length; ++i) to[i] = static_cast<uint8_t>(writer * 31 + number * 7 + i);
}
bool spelt_right(const uint8_t *data, size_t length, Word &word) {
    if (length < sizeof word) return false;
    std::memcpy(&word, data, sizeof word);
    if (word.writer == lap) return true;
    for (size_t i = sizeof word; i < length; ++i)
        if (data[i] != static_cast<uint8_t>(word.writer * 31 + word.number * 7 + i)) return false;
    return true;
}

// ---- a case: a geometry, an operation, a size ----

constexpr uint64_t T = 64 * 1024;
constexpr uint32_t messages_before = 3;

struct Case {
    uint64_t start = 0;
    int32_t term_id = 0;
    uint32_t length = 100;
    bool exclusive = false;
    bool near_end = false; // the next frame does not fit into its term
    bool full = false;     // the window is used up: room must be made
    std::string describe(const std::string &op) const {
        return op + " --start " + std::to_string(start) + " --length " + std::to_string(length) +
               (exclusive ? " --exclusive 1" : "") + (near_end ? " --near-end 1" : "") + (full ? " --full 1" : "");
    }
};

const std::string long_name(name_max, 'n');

// The victim's handles, in its own process.
struct Hands {
    const Channel &channel;
    const Case &at;
    std::shared_ptr<LogWriter> writer;
    std::shared_ptr<LogReader> reader;
    ClaimedRange range;
    std::vector<uint8_t> buffer;
    void make_writer() { writer = channel.writer(at.exclusive); }
    void make_reader() { reader = channel.reader({Start::From::earliest, 0}); }
    void make_member(Start::From from) { // of a sync queue; two slots, both with its name
        reader = channel.reader({from, 0}, 0, long_name);
        writer = channel.writer(false, long_name);
    }
    uint8_t *message(uint32_t number, uint32_t length) {
        buffer.resize(length);
        spell(buffer.data(), victim, number, length);
        return buffer.data();
    }
    void offer(uint32_t number) { writer->offer(message(number, at.length), at.length); }
};

struct Operation {
    const char *name;
    void (*prepare)(Hands &);
    void (*act)(Hands &);
};

void dig_hole(Hands &h) { // a hole left by a publication that died between its claim and the note of it
    auto dead = h.channel.writer();
    dead->log().control().tail.value.add(128);
    dead->log().crash_for_test();
}

const Operation operations[] = {
    {"publish", [](Hands &h) { h.make_writer(); }, [](Hands &h) { h.offer(0); }},
    {"publish two", [](Hands &h) { h.make_writer(); },
     [](Hands &h) {
         h.offer(0);
         h.offer(1);
     }},
    {"publish many",
     [](Hands &h) {
         h.make_writer();
         h.buffer.resize(3 * h.at.length);
         for (uint32_t i = 0; i < 3; ++i) spell(h.buffer.data() + i * h.at.length, victim, i, h.at.length);
     },
     [](Hands &h) {
         IoVec pieces[3];
         for (uint32_t i = 0; i < 3; ++i) pieces[i] = {h.buffer.data() + i * h.at.length, h.at.length};
         h.writer->offer_many(pieces, 3);
     }},
    {"claim", [](Hands &h) { h.make_writer(); }, [](Hands &h) { h.writer->claim(h.at.length, h.writer->open_index(), h.range); }},
    {"commit",
     [](Hands &h) {
         h.make_writer();
         if (h.writer->claim(h.at.length, h.writer->open_index(), h.range)) spell(h.range.payload, victim, 0, h.at.length);
     },
     [](Hands &h) {
         if (h.range.payload != nullptr) h.writer->commit(h.range);
     }},
    {"abort",
     [](Hands &h) {
         h.make_writer();
         h.writer->claim(h.at.length, h.writer->open_index(), h.range);
     },
     [](Hands &h) {
         if (h.range.payload != nullptr) h.writer->abort(h.range);
     }},
    {"fragments",
     [](Hands &h) {
         h.make_writer();
         h.message(0, h.writer->payload_max() + 500);
     },
     [](Hands &h) {
         PendingSend sending{h.buffer.data(), h.buffer.size()};
         h.writer->send_some(sending);
     }},
    {"attach a publication", [](Hands &) {}, [](Hands &h) { h.make_writer(); }},
    {"attach a subscription", [](Hands &) {}, [](Hands &h) { h.make_reader(); }},
    {"detach a publication", [](Hands &h) { h.make_writer(); }, [](Hands &h) { h.writer->log().detach(); }},
    {"detach a subscription", [](Hands &h) { h.make_reader(); }, [](Hands &h) { h.reader->log().detach(); }},
    {"join a sync queue", [](Hands &) {}, [](Hands &h) { h.make_member(Start::From::newest); }},
    {"leave a sync queue", [](Hands &h) { h.make_member(Start::From::newest); },
     [](Hands &h) {
         h.reader->log().detach();
         h.writer->log().detach();
     }},
    {"write, taking what is unread", [](Hands &h) { h.make_member(Start::From::earliest); },
     [](Hands &h) {
         // A spelt message is one of a sync queue's: what stands for the writer's number are the lengths of its sender and type.
         const uint32_t length = std::max(h.at.length, 16u);
         const uint8_t *whole = h.message(0, length);
         const SyncParts parts = read_sync(whole, length);
         const std::string prefix = sync_prefix(parts.sender, parts.type, 0);
         CHECK(std::memcmp(prefix.data(), whole, prefix.size()) == 0);
         SyncReader reader(*h.reader);
         SyncWriter writer(*h.writer);
         auto attempt = [&] { return writer.offer(prefix, parts.body, parts.length) != no_room; };
         struct Awake { // looks again at once
             void prepare() { events.announce(log); }
             bool sleep() { return true; }
             TermLog &log;
             RoomOrData events;
         } awake{h.writer->log(), {}};
         wait_on(awake, [&] { return attempt_or_spill(h.writer->log(), reader, length, SIZE_MAX, attempt); });
     }},
    {"read", [](Hands &h) { h.make_reader(); },
     [](Hands &h) {
         while (h.reader->peek() != nullptr) h.reader->consume();
         h.reader->show_position();
     }},
    {"fill a hole",
     [](Hands &h) {
         dig_hole(h);
         h.make_reader();
         while (h.reader->peek() != nullptr) h.reader->consume();
     },
     [](Hands &h) { h.reader->unblock(); }},
    {"free the dead's slots",
     [](Hands &h) {
         auto dead = h.channel.writer();
         ClaimedRange open;
         dead->claim(64, dead->open_index(), open);
         dead->log().crash_for_test();
         h.make_reader();
     },
     [](Hands &h) { h.reader->log().reap(); }},
};

// ---- what must be true afterwards ----

struct Seen {
    uint32_t next[5] = {};
    std::string wrong;
};

void read_on(LogReader &reader, Seen &seen) {
    for (int quiet = 0; quiet < 200 && seen.wrong.empty();) {
        const Message *message = reader.peek();
        if (message == nullptr) {
            if (!reader.stalled()) return;
            if (reader.unblock()) continue;
            ++quiet; // somebody alive may hold it for a moment
            if (quiet == 200) seen.wrong = "a hole at " + std::to_string(reader.position()) + " is not filled";
            continue;
        }
        Word word{};
        if (!spelt_right(message->data, message->length, word) || word.writer < before || word.writer > lap)
            seen.wrong = "a message at " + std::to_string(message->position) + " is not what was sent";
        else if (word.number != seen.next[word.writer])
            seen.wrong = "writer " + std::to_string(word.writer) + ": message " + std::to_string(word.number) + " instead of " +
                         std::to_string(seen.next[word.writer]);
        else ++seen.next[word.writer];
        reader.consume();
    }
}

bool offer_until(LogWriter &writer, LogReader &reader, Seen &seen, const uint8_t *data, uint32_t length) {
    for (int i = 0; i < 1000; ++i) {
        if (writer.offer(data, length) != no_room) return true;
        reader.show_position();
        read_on(reader, seen);
        if (!seen.wrong.empty()) return false;
        usleep(100); // the dead are looked for once a millisecond
    }
    seen.wrong = "a living publication never finds room";
    return false;
}

// `earlier`: how many of the messages before the operation the reader has still to see.
std::string go_on(LogWriter &writer, LogReader &reader, const std::string &operation, uint32_t laps) {
    Seen seen;
    uint8_t small[64];
    for (uint32_t i = 0; i < 3; ++i) {
        spell(small, after, i, sizeof small);
        if (!offer_until(writer, reader, seen, small, sizeof small)) return seen.wrong;
    }
    read_on(reader, seen);
    if (!seen.wrong.empty()) return seen.wrong;
    if (seen.next[before] != messages_before) return "messages from before are missing: " + std::to_string(seen.next[before]);
    if (seen.next[after] != 3) return "messages from after are missing: " + std::to_string(seen.next[after]);
    if (operation == "publish many" && seen.next[victim] != 0 && seen.next[victim] != 3) return "a part of a batch is there";
    // Once around the whole memory: cleaning and padding must be right everywhere.
    static uint8_t block[12'000];
    for (uint32_t i = 0; i < laps; ++i) {
        const Word word{lap, i};
        std::memcpy(block, &word, sizeof word);
        if (!offer_until(writer, reader, seen, block, sizeof block)) return seen.wrong;
        read_on(reader, seen);
        if (!seen.wrong.empty()) return seen.wrong;
    }
    if (laps != 0 && seen.next[lap] != laps) return "messages of the lap are missing";
    return {};
}

// Every slot that the dead left can be had again.
std::string all_slots(const Channel &channel, uint32_t held) {
    std::vector<std::shared_ptr<LogReader>> all;
    try {
        for (uint32_t i = held; i < channel.geometry.slot_count; ++i) all.push_back(channel.reader());
    } catch (const Error &error) {
        return std::string("a slot is lost: ") + error.what();
    }
    return {};
}

LogGeometry geometry_of(const Case &at) {
    LogGeometry g;
    g.term_length = g.window = T;
    g.slot_count = 5;
    g.start_position = at.start;
    g.initial_term_id = at.term_id;
    return g;
}

// The state before the operation: some messages, and the tail where the case wants it.
void lay_out(LogWriter &writer, LogReader &reader, const Case &at) {
    uint8_t text[40];
    const uint64_t want = at.near_end ? T - 64 : at.full ? T - 4096 : 0;
    static const std::vector<uint8_t> filler(12'000);
    uint32_t number = 0;
    while (want != 0 && writer.log().tail() - at.start + 13'000 < want) {
        ClaimedRange range;
        CHECK(writer.claim(12'000, 0, range));
        writer.abort(range); // padding
    }
    if (want != 0) {
        const uint64_t left = want - (writer.log().tail() - at.start) - messages_before * 96;
        ClaimedRange range;
        CHECK(writer.claim(static_cast<uint32_t>(left - header_length), 0, range));
        writer.abort(range);
    }
    for (; number < messages_before; ++number) {
        spell(text, before, number, sizeof text);
        CHECK(writer.offer(text, sizeof text) != no_room);
    }
    if (at.full) { // the window is used up
        ClaimedRange range;
        while (writer.claim(96 - header_length, 0, range)) writer.abort(range);
    }
    if (want != 0) { // over the padding, to the first message: so the next claim must make room, and finds some
        reader.peek();
        reader.show_position();
    }
}

// Names are whole or not there.
std::string all_names(const Channel &channel) {
    for (uint32_t i = 0; i < channel.geometry.slot_count; ++i) {
        const Slot &slot = *reinterpret_cast<const Slot *>(channel.map->bytes() + slots_offset + i * sizeof(Slot));
        const std::string name = read_name(slot.identity);
        if (!name.empty() && name != long_name) return "a name is '" + name + "'";
    }
    return {};
}

std::string judge(const Channel &channel, const std::string &operation) {
    return judged([&]() -> std::string {
        const std::string named = all_names(channel);
        if (!named.empty()) return named;
        auto reader = channel.reader({Start::From::earliest, 0});
        auto writer = channel.writer();
        const std::string wrong = go_on(*writer, *reader, operation, 18);
        return wrong.empty() ? all_slots(channel, 2) : wrong;
    });
}

// A batch is seen whole or not at all only within a term and where there is room for all of it.
std::string whole(const Operation &op, const Case &at) { return at.near_end || at.full ? "" : op.name; }

// Steps through the operation once; where memory changed, a copy must be recoverable.
void step_through(const Operation &op, const Case &at, Result &result, std::vector<uint64_t> &changes,
                  std::vector<Place> &places) {
    const Channel channel(geometry_of(at));
    const Channel copy(geometry_of(at));
    auto reader = channel.reader({Start::From::earliest, 0});
    {
        auto writer = channel.writer();
        lay_out(*writer, *reader, at);
    }
    Hands hands{channel, at, nullptr, nullptr, {}, {}};
    Victim child([&] { op.prepare(hands); }, [&] { op.act(hands); });
    walk(child, channel.map->bytes(), channel.map->size(), result, changes, places,
         [&](uint64_t step, const std::vector<uint8_t> &bytes) {
             std::memcpy(copy.map->bytes(), bytes.data(), bytes.size());
             const std::string wrong = judge(copy, whole(op, at));
             if (!wrong.empty()) fail(result, at.describe(op.name), step, wrong);
         });
}

// Kills a victim at that step; the living, who were there all along, must go on.
std::string kill_at(const Operation &op, const Case &at, uint64_t step, const std::vector<Place> &places) {
    const Channel channel(geometry_of(at));
    auto reader = channel.reader({Start::From::earliest, 0});
    auto writer = channel.writer();
    lay_out(*writer, *reader, at);
    if (at.exclusive) writer->log().detach();
    Hands hands{channel, at, nullptr, nullptr, {}, {}};
    kill_victim([&] { op.prepare(hands); }, [&] { op.act(hands); }, step, places);
    if (at.exclusive) writer = channel.writer();
    const std::string wrong = go_on(*writer, *reader, whole(op, at), 6);
    return wrong.empty() ? all_slots(channel, 2) : wrong;
}

void examine(const Operation &op, const Case &at, uint64_t kills, std::mt19937_64 &random, Result &result) {
    examine_case(
        at.describe(op.name), kills, 8, random, result,
        [&](std::vector<uint64_t> &changes, std::vector<Place> &places) { step_through(op, at, result, changes, places); },
        [&](uint64_t step, const std::vector<Place> &places) { return kill_at(op, at, step, places); });
}

// Creating: a file that the creator did not finish must be refused, a finished one must be whole.
void step_through_create(Result &result, uint64_t start) {
    LogGeometry g;
    g.term_length = g.window = T;
    g.slot_count = 5;
    g.start_position = start;
    const uint64_t size = log_file_size(g.slot_count, g.term_length);
    const int fd = memfd_create("create", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) == 0);
    const Mapping map(fd, size, true);
    const uint8_t boot[16] = {1};
    Victim child([] {}, [&] { format_log(fd, g, "{\"codec\": 1}", boot, 77); });
    std::vector<uint8_t> last(map.bytes(), map.bytes() + 8192);
    uint64_t step = 0;
    bool whole = false;
    while (child.step()) {
        ++step;
        if (std::memcmp(last.data(), map.bytes(), last.size()) == 0) continue;
        std::memcpy(last.data(), map.bytes(), last.size());
        ++result.states;
        try {
            const OpenedLog opened = read_header(map.bytes(), size, "created");
            whole = true;
            if (opened.geometry.term_length != T || opened.geometry.start_position != start ||
                opened.metadata != "{\"codec\": 1}")
                fail(result, "create --start " + std::to_string(start), step, "an unfinished file was accepted");
        } catch (const Error &) {
            if (whole) fail(result, "create", step, "a finished file was refused");
        }
    }
    if (!whole) fail(result, "create", step, "the finished file was refused");
    result.steps += step;
    ::close(fd);
}

} // namespace

int main(int argc, char **argv) {
    const Options options(argc, argv);
    // Counters start where something could overflow.
    const uint64_t edges[] = {0, (uint64_t{1} << 31) - T, (uint64_t{1} << 32) - T, (uint64_t{1} << 48) - T,
                              (uint64_t{1} << 63) - 16 * uint64_t{term_length_max} - T};
    const uint32_t lengths[] = {8, 24, 100, 1000, 5000};
    const auto shape = [&](const Operation &op, int number, std::mt19937_64 &random) {
        Case at;
        at.start = edges[random() % 5];
        at.term_id = random() % 2 ? INT32_MAX : 0;
        at.length = lengths[random() % 5];
        const std::string name = op.name; // an exclusive publication has none beside it that could leave holes
        at.exclusive = number == 3 && name.find("hole") == std::string::npos && name.find("dead") == std::string::npos;
        at.near_end = number == 1;
        at.full = number == 2;
        return at;
    };
    uint64_t failures = campaign(options, "", operations, 4, shape, examine);
    if (options.only == nullptr && options.part == 0)
        failures += account("create", [&](Result &result) {
            for (const uint64_t start : edges) step_through_create(result, start);
        });
    return failures == 0 ? 0 : 1;
}
