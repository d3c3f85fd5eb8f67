// Kills one operation on a pipe channel after every one of its instructions. First on copies: a child is stepped through the
// operation, and whenever shared memory has changed, strangers must go on with a copy of it. Then for good: a child is stepped to
// the same place and killed, and the living must go on with the very memory it left.
#include "../tests/support.hpp"
#include "stepper.hpp"

using namespace penstock;
using namespace penstock::test;
using namespace penstock::kill_room;

namespace {

constexpr uint32_t C = 64 * 1024;
constexpr uint32_t messages_before = 3;
enum : uint32_t { before = 1, victim = 2, after = 3, writers = 4 };

struct Word {
    uint32_t writer, number;
};
std::vector<uint8_t> spell(uint32_t writer, uint32_t number, uint32_t length) {
    std::vector<uint8_t> text(std::max<size_t>(length, sizeof(Word)));
    const Word word{writer, number};
    std::memcpy(text.data(), &word, sizeof word);
    for (size_t i = sizeof word; i < text.size(); ++i) text[i] = static_cast<uint8_t>(writer * 31 + number * 7 + i);
    return text;
}

struct Case {
    uint64_t start = 0;
    uint32_t length = 100;
    bool near_end = false; // the next frame does not fit before the circle's end
};

// The victim's handles, in its own process.
struct Hands {
    const PipeChannel &channel;
    const Case &at;
    std::shared_ptr<PipePeer> peer, other;
    ClaimedRange room;
    std::vector<uint8_t> text;
    void push(WhenFull when_full = WhenFull::wait) {
        peer = channel.peer(PeerRole::push, when_full);
        if (!at.near_end) return;
        const std::vector<uint8_t> filler = spell(writers, 0, C / 2 - 64);
        peer->write(filler.data(), filler.size());
        peer->write(filler.data(), filler.size() - 4 * align_frame(at.length));
    }
    void pull() { peer = channel.peer(PeerRole::pull); }
    void write(uint32_t number) {
        text = spell(victim, number, at.length);
        peer->write(text.data(), text.size());
    }
    void consume(int count) {
        for (int i = 0; i < count && peer->peek() != nullptr; ++i) peer->consume();
    }
};

struct Operation {
    const char *name;
    void (*prepare)(Hands &);
    void (*act)(Hands &);
    uint32_t done = 0;   // messages from before that it may have acknowledged
    bool surely = false; // and what it had written as it was prepared: one message
    bool drops = false;  // its own oldest
};

const Operation operations[] = {
    {"write", [](Hands &h) { h.push(); }, [](Hands &h) { h.write(0); }},
    {"write two", [](Hands &h) { h.push(); },
     [](Hands &h) {
         h.write(0);
         h.write(1);
     }},
    {"write many",
     [](Hands &h) {
         h.push();
         for (uint32_t i = 0; i < 3; ++i) {
             const auto one = spell(victim, i, h.at.length);
             h.text.insert(h.text.end(), one.begin(), one.end());
         }
     },
     [](Hands &h) {
         IoVec pieces[3];
         const size_t each = h.text.size() / 3;
         for (size_t i = 0; i < 3; ++i) pieces[i] = {h.text.data() + i * each, each};
         h.peer->write_many(pieces, 3);
     }},
    {"write, dropping the oldest",
     [](Hands &h) {
         h.push(WhenFull::drop_oldest);
         for (uint32_t i = 0; i < 40; ++i) h.write(i);
     },
     [](Hands &h) {
         for (uint32_t i = 40; i < 43; ++i) h.write(i);
     },
     0, false, true},
    {"write, recorded by one that dies too",
     [](Hands &h) {
         h.push();
         h.other = h.channel.peer(PeerRole::tap);
     },
     [](Hands &h) {
         h.write(0);
         h.write(1);
     }},
    {"come to record", [](Hands &) {}, [](Hands &h) { h.peer = h.channel.peer(PeerRole::tap); }},
    {"claim and commit", [](Hands &h) { h.push(); },
     [](Hands &h) {
         const auto text = spell(victim, 0, h.at.length);
         if (!h.peer->claim(static_cast<uint32_t>(text.size()), h.room)) return;
         std::memcpy(h.room.payload, text.data(), text.size());
         h.peer->commit(h.room);
     }},
    {"come to push", [](Hands &) {}, [](Hands &h) { h.peer = h.channel.peer(PeerRole::push); }},
    {"come to pull, inheriting", [](Hands &) {}, [](Hands &h) { h.pull(); }},
    {"leave a push",
     [](Hands &h) {
         h.push();
         h.write(0);
     },
     [](Hands &h) { h.peer->detach(); }, 0, true},
    {"leave a pull with messages in hand",
     [](Hands &h) {
         h.pull();
         h.consume(2);
     },
     [](Hands &h) { h.peer->detach(); }},
    {"take", [](Hands &h) { h.pull(); }, [](Hands &h) { h.consume(2); }},
    {"take and acknowledge", [](Hands &h) { h.pull(); },
     [](Hands &h) {
         h.consume(1);
         h.peer->acknowledge();
         h.consume(1);
         h.peer->acknowledge();
     },
     2},
    {"pause with messages in hand",
     [](Hands &h) {
         h.pull();
         h.consume(2);
     },
     [](Hands &h) { h.peer->pause(); }, 2},
    {"begin to read", [](Hands &h) { h.pull(); }, [](Hands &h) { h.peer->peek(); }},
    {"relieve one that never looked",
     [](Hands &h) {
         h.other = h.channel.peer(PeerRole::pull); // inherits what is there
         h.pull();
         h.peer->peek();
     },
     [](Hands &h) {
         h.peer->repair();
         h.consume(1);
     }},
    {"begin when relieved",
     [](Hands &h) {
         h.other = h.channel.peer(PeerRole::pull);
         h.pull();
         h.peer->peek();
         h.peer->repair();
         h.consume(1);
     },
     [](Hands &h) { h.other->peek(); }},
    {"look after the dead",
     [](Hands &h) {
         h.other = h.channel.peer(PeerRole::pull);
         h.other->peek();
         h.other->consume();
         h.pull();
         h.other->crash_for_test();
     },
     [](Hands &h) { h.peer->repair(); }},
};

// ---- what must be true afterwards ----

std::string go_on(const PipeChannel &channel, const Operation &op) {
    auto pull = channel.peer(PeerRole::pull), push = channel.peer(PeerRole::push);
    uint32_t next[writers + 1] = {}, count[writers + 1] = {};
    std::string wrong;
    auto read = [&](bool patiently) {
        for (int quiet = 0; quiet < 3 && wrong.empty();) {
            const Message *message = pull->peek();
            if (message == nullptr) {
                if (!patiently) return;
                usleep(1100); // the dead are looked for once a millisecond
                quiet += !pull->repair();
                continue;
            }
            Word word{};
            if (message->length >= sizeof word) std::memcpy(&word, message->data, sizeof word);
            const std::vector<uint8_t> right = spell(word.writer, word.number, static_cast<uint32_t>(message->length));
            if (word.writer < before || word.writer > writers || std::memcmp(right.data(), message->data, right.size()) != 0)
                wrong = "a message at " + std::to_string(message->position) + " is not what was sent";
            const bool skips = (word.writer == before && op.done != 0) || (word.writer == victim && op.drops);
            if (word.writer < writers) {
                if (skips ? word.number < next[word.writer] : word.number != next[word.writer])
                    wrong = "writer " + std::to_string(word.writer) + ": message " + std::to_string(word.number) +
                            " instead of " + std::to_string(next[word.writer]);
                next[word.writer] = word.number + 1;
                ++count[word.writer];
            }
            pull->consume();
            pull->acknowledge();
            quiet = 0;
        }
    };
    read(true);
    if (!wrong.empty()) return wrong;
    if (next[before] != messages_before || count[before] + op.done < messages_before)
        return "messages from before are missing: " + std::to_string(count[before]);
    if (op.surely && count[victim] != 1) return "a message that it had written is missing";
    for (uint32_t i = 0; i < 40; ++i) { // some laps
        const auto text = spell(after, i, 5000);
        if (!push->write(text.data(), text.size())) return "a living peer finds no room";
        read(false);
        if (!wrong.empty()) return wrong;
    }
    if (count[after] != 40) return "messages from after are missing: " + std::to_string(count[after]);
    for (uint32_t i = 0; i < 2 * channel.geometry.max_pipes; ++i)
        channel.peer(i % 2 == 0 ? PeerRole::pull : PeerRole::push); // nothing leaks
    std::vector<std::shared_ptr<PipePeer>> all;
    try {
        while (all.size() + 3 < channel.geometry.max_members) all.push_back(channel.peer(PeerRole::pull));
    } catch (const Error &error) {
        return std::string("a place or a pipe is lost: ") + error.what();
    }
    return {};
}

PipeGeometry geometry_of(const Case &at) {
    PipeGeometry g;
    g.capacity = C;
    g.max_members = 6;
    g.max_pipes = 16;
    g.start_position = at.start;
    g.max_messages = 40;
    return g;
}

// A pusher that is alive all along, or, in a copy, dead like all others.
std::shared_ptr<PipePeer> lay_out(const PipeChannel &channel) {
    auto push = channel.peer(PeerRole::push);
    for (uint32_t i = 0; i < messages_before; ++i) {
        const auto text = spell(before, i, 40);
        CHECK(push->write(text.data(), text.size()));
    }
    return push;
}

void examine(const Operation &op, const Case &at, uint64_t kills, std::mt19937_64 &random, Result &result) {
    const std::string what = std::string(op.name) + " --start " + std::to_string(at.start) + " --length " +
                             std::to_string(at.length) + (at.near_end ? " --near-end 1" : "");
    const auto step_through = [&](std::vector<uint64_t> &changes, std::vector<Place> &places) {
        const PipeChannel channel(geometry_of(at)), copy(geometry_of(at));
        const auto push = lay_out(channel);
        Hands hands{channel, at, nullptr, nullptr, {}, {}};
        Victim child([&] { op.prepare(hands); }, [&] { op.act(hands); });
        uint64_t looked = 0;
        walk(child, channel.map->bytes(), channel.map->size(), result, changes, places,
             [&](uint64_t step, const std::vector<uint8_t> &bytes) {
                 if (places.size() > 1 && places[step].earlier >= 40 && ++looked % 16 != 0) return; // deep in a loop that copies
                 std::memcpy(copy.map->bytes(), bytes.data(), bytes.size());
                 const std::string wrong = judged([&] { return go_on(copy, op); });
                 if (!wrong.empty()) fail(result, what, step, wrong);
             });
    };
    const auto kill_at = [&](uint64_t step, const std::vector<Place> &places) {
        const PipeChannel channel(geometry_of(at));
        const auto push = lay_out(channel);
        Hands hands{channel, at, nullptr, nullptr, {}, {}};
        kill_victim([&] { op.prepare(hands); }, [&] { op.act(hands); }, step, places);
        return go_on(channel, op);
    };
    examine_case(what, kills, 4, random, result, step_through, kill_at);
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t edges[] = {0, (uint64_t{1} << 31) - C, (uint64_t{1} << 32) - C, (uint64_t{1} << 48) - C,
                              (uint64_t{1} << 63) - 16 * uint64_t{pipe_capacity_max} - C};
    const uint32_t lengths[] = {8, 24, 100, 1000};
    const auto shape = [&](const Operation &op, int number, std::mt19937_64 &random) {
        Case at;
        at.start = edges[random() % 5];
        at.length = lengths[random() % 4];
        at.near_end = number == 1 && !op.drops;
        return at;
    };
    return campaign(Options(argc, argv), "pipe: ", operations, 2, shape, examine) == 0 ? 0 : 1;
}
