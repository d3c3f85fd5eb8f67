// Operations on a ring, stepped through instruction by instruction: whatever memory they leave, strangers go on from it; and at
// the same places the operation's process is killed for good, and the participants that were there all along go on.
//   ring_kill [--seed S] [--rounds N] [--kills K] [--part P --parts Q] [--operation NAME]
#include "../tests/support.hpp"
#include "stepper.hpp"

using namespace penstock;
using namespace penstock::kill_room;
using penstock::test::RingChannel;

namespace {

constexpr uint64_t C = 64 * 1024;
constexpr uint64_t messages_before = 3;

RingGeometry geometry_of(uint64_t start) {
    RingGeometry g;
    g.capacity = C;
    g.slot_count = 4;
    g.start_position = start;
    return g;
}

// Message i says i, in every byte too.
void spell(std::vector<uint8_t> &text, uint64_t number, size_t length) {
    text.assign(length < 8 ? 8 : length, static_cast<uint8_t>(number * 7 + length));
    std::memcpy(text.data(), &number, sizeof number);
}
std::string misspelt(const std::vector<uint8_t> &text, uint64_t due) {
    std::vector<uint8_t> right;
    spell(right, due, text.size());
    return text == right ? "" : "message " + std::to_string(due) + " is another or torn";
}

struct Case {
    uint64_t start = 0;
    uint32_t length = 100;
    bool near_end = false; // the next frame needs a pad before it
    bool lap = false;      // the circle was gone round: what is written overwrites
};

struct Hands {
    const RingChannel &channel;
    const Case &at;
    uint64_t from; // where the messages before the operation begin
    std::shared_ptr<RingWriter> writer;
    std::shared_ptr<RingReader> reader;
    std::vector<uint8_t> text, more[2];
    void send() { writer->offer(text.data(), text.size()); }
    void spell_next(uint64_t ahead = 0) { spell(text, writer->sequence() + ahead, at.length); }
};

struct Operation {
    const char *name;
    uint64_t messages; // that it sends when it is not stopped
    void (*prepare)(Hands &);
    void (*act)(Hands &);
};

void make_writer(Hands &h) {
    h.writer = h.channel.writer();
    h.spell_next();
}

const Operation operations[] = {
    {"publish", 1, make_writer, [](Hands &h) { h.send(); }},
    {"publish two", 2,
     [](Hands &h) {
         make_writer(h);
         spell(h.more[0], h.writer->sequence() + 1, h.at.length);
     },
     [](Hands &h) {
         h.send();
         h.writer->offer(h.more[0].data(), h.more[0].size());
     }},
    {"publish many", 3,
     [](Hands &h) {
         make_writer(h);
         for (uint64_t i = 0; i < 2; ++i) spell(h.more[i], h.writer->sequence() + 1 + i, h.at.length);
     },
     [](Hands &h) {
         const IoVec pieces[] = {
             {h.text.data(), h.text.size()}, {h.more[0].data(), h.more[0].size()}, {h.more[1].data(), h.more[1].size()}};
         h.writer->offer_many(pieces, 3);
     }},
    {"claim, commit", 1, make_writer,
     [](Hands &h) {
         const ClaimedRange range = h.writer->claim(h.text.size());
         copy_words_in(range.payload, h.text.data(), h.text.size());
         h.writer->commit(range);
     }},
    {"claim, abort, publish", 1, make_writer,
     [](Hands &h) {
         const ClaimedRange range = h.writer->claim(1000);
         std::memset(range.payload, 0xee, 1000);
         h.writer->abort(range);
         h.send();
     }},
    {"attach publication, publish", 1, [](Hands &h) { spell(h.text, ~uint64_t{0}, h.at.length); },
     [](Hands &h) {
         h.writer = h.channel.writer();
         const uint64_t number = h.writer->sequence();
         std::memset(h.text.data(), static_cast<int>(static_cast<uint8_t>(number * 7 + h.text.size())), h.text.size());
         std::memcpy(h.text.data(), &number, sizeof number);
         h.send();
     }},
    {"detach publication", 0, make_writer, [](Hands &h) { h.writer->ring().detach(); }},
    {"subscribe", 0, [](Hands &) {}, [](Hands &h) { h.reader = h.channel.reader(); }},
    {"receive", 0, [](Hands &h) { h.reader = h.channel.reader({Start::From::position, h.from}); },
     [](Hands &h) {
         uint8_t text[8192];
         while (const Message *message = h.reader->peek())
             if (h.reader->copy(text, *message)) h.reader->consume();
     }},
    {"record", 0, [](Hands &h) { h.reader = h.channel.reader({Start::From::position, h.from}); },
     [](Hands &h) {
         std::vector<uint8_t> buffer;
         h.reader->run(1 << 16, buffer);
     }},
    {"unsubscribe", 0, [](Hands &h) { h.reader = h.channel.reader(); }, [](Hands &h) { h.reader->ring().detach(); }},
    {"count readers", 0, make_writer,
     [](Hands &h) {
         h.writer->ring().readers();
         h.writer->ring().lag();
     }},
};

// The state before: three messages, near the circle's end or a lap later if the case wants that; where they begin.
uint64_t lay_out(const RingChannel &channel, const Case &at) {
    auto writer = channel.writer();
    std::vector<uint8_t> text;
    auto send = [&](size_t length) {
        spell(text, writer->sequence(), length);
        writer->offer(text.data(), text.size());
    };
    const uint64_t round = at.lap ? C : 0, end = at.start + round + (at.near_end ? C - 64 - messages_before * 96 : 0);
    while (end > writer->position()) { // frames of 4 KiB, and one that fits what is left
        const uint64_t left = end - writer->position();
        send((left >= 2 * 4096 ? 4096 : left) - header_length);
    }
    const uint64_t begun = writer->position();
    for (uint64_t i = 0; i < messages_before; ++i) send(40);
    return begun;
}

// Everything from the reader's place on is whole and in order, up to where the publication stands; then it works for three laps.
std::string go_on(const RingChannel &channel, RingReader &reader, uint64_t least, uint64_t most) {
    std::vector<uint8_t> text;
    auto read = [&]() -> std::string {
        while (const Message *message = reader.peek()) {
            text.resize(message->length);
            if (!reader.copy(text.data(), *message)) continue;
            const uint64_t due = reader.sequence();
            reader.consume();
            if (reader.sequence() != due + 1) return "the numbers do not go on";
            if (const std::string wrong = misspelt(text, due); !wrong.empty()) return wrong;
        }
        return {};
    };
    if (std::string wrong = read(); !wrong.empty()) return wrong;
    auto writer = channel.writer();
    if (writer->sequence() < least || writer->sequence() > most)
        return "the next number is " + std::to_string(writer->sequence()) + ", not from " + std::to_string(least) + " to " +
               std::to_string(most);
    for (int i = 0; i < 50; ++i) {
        spell(text, writer->sequence(), 4000 + static_cast<size_t>(i));
        writer->offer(text.data(), text.size());
        if (std::string wrong = read(); !wrong.empty()) return wrong;
    }
    if (reader.sequence() != writer->sequence() || reader.lost_bytes() != 0) return "something was lost";
    std::vector<std::shared_ptr<RingReader>> all;
    try {
        while (all.size() + 1 < channel.geometry.slot_count) all.push_back(channel.reader());
    } catch (const Error &error) {
        return std::string("a slot is lost: ") + error.what();
    }
    if (writer->ring().readers() != channel.geometry.slot_count) return "not every subscription is counted";
    return {};
}

void examine(const Operation &op, const Case &at, uint64_t kills, std::mt19937_64 &random, Result &result) {
    const std::string what = std::string(op.name) + " --start " + std::to_string(at.start) + " --length " +
                             std::to_string(at.length) + (at.near_end ? " --near-end 1" : "") + (at.lap ? " --lap 1" : "");
    uint64_t before = 0;
    const auto step_through = [&](std::vector<uint64_t> &changes, std::vector<Place> &places) {
        const RingChannel channel(geometry_of(at.start)), copy(geometry_of(at.start));
        const uint64_t begun = lay_out(channel, at);
        before = channel.reader()->sequence();
        Hands hands{channel, at, begun, nullptr, nullptr, {}, {}};
        Victim child([&] { op.prepare(hands); }, [&] { op.act(hands); });
        walk(child, channel.map->bytes(), channel.map->size(), result, changes, places,
             [&](uint64_t step, const std::vector<uint8_t> &bytes) {
                 std::memcpy(copy.map->bytes(), bytes.data(), bytes.size());
                 const std::string wrong = judged(
                     [&] { return go_on(copy, *copy.reader({Start::From::position, begun}), before, before + op.messages); });
                 if (!wrong.empty()) fail(result, what, step, wrong);
             });
    };
    const auto kill_at = [&](uint64_t step, const std::vector<Place> &places) {
        const RingChannel channel(geometry_of(at.start));
        const uint64_t begun = lay_out(channel, at);
        auto reader = channel.reader({Start::From::position, begun});
        Hands hands{channel, at, begun, nullptr, nullptr, {}, {}};
        kill_victim([&] { op.prepare(hands); }, [&] { op.act(hands); }, step, places);
        return go_on(channel, *reader, before, before + op.messages);
    };
    examine_case(what, kills, 4, random, result, step_through, kill_at);
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t edges[] = {0, (uint64_t{1} << 31) - C, (uint64_t{1} << 32) - C, (uint64_t{1} << 48) - C,
                              (uint64_t{1} << 63) - 16 * uint64_t{ring_capacity_max} - C};
    const uint32_t lengths[] = {8, 24, 100, 1000, 5000};
    const auto shape = [&](const Operation &, int number, std::mt19937_64 &random) {
        Case at;
        at.start = edges[random() % 5];
        at.length = lengths[random() % 5];
        at.near_end = (number & 1) != 0;
        at.lap = (number & 2) != 0;
        return at;
    };
    return campaign(Options(argc, argv), "ring: ", operations, 4, shape, examine) == 0 ? 0 : 1;
}
