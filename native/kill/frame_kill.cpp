// Operations on a frame pool, stepped through instruction by instruction: whatever memory they leave, strangers go on from it,
// and every buffer can be had again; and at the same places the operation's process is killed for good, and the participants that
// were there all along, and hold a frame, go on.
//   frame_kill [--seed S] [--rounds N] [--kills K] [--part P --parts Q] [--operation NAME]
#include "../tests/support.hpp"
#include "stepper.hpp"

using namespace penstock;
using namespace penstock::kill_room;
using penstock::test::FrameChannel;

namespace {

constexpr uint32_t buffers = 4;
constexpr uint32_t bytes_each = 96;

PoolGeometry geometry_of(uint64_t start, uint64_t sequence) {
    PoolGeometry g;
    g.ring.capacity = 64 * 1024;
    g.ring.slot_count = 5;
    g.ring.start_position = start;
    g.ring.start_sequence = sequence;
    g.buffers = buffers;
    g.frame_bytes = bytes_each;
    return g;
}

// Frame i says i in every byte. Two of three have a size of their own.
uint8_t said_by(uint64_t number) { return static_cast<uint8_t>(number * 7 + 1); }
uint64_t size_of(uint64_t number) { return number % 3 == 0 ? bytes_each : number % bytes_each; }
std::string misspelt(const Frame &frame) {
    if (frame.bytes() != size_of(frame.sequence)) return "frame " + std::to_string(frame.sequence) + " has another's size";
    for (uint64_t i = 0; i < frame.bytes(); ++i)
        if (frame.data[i] != said_by(frame.sequence)) return "frame " + std::to_string(frame.sequence) + " holds another";
    if (frame.fields() != "{}") return "frame " + std::to_string(frame.sequence) + " has another's fields";
    if (frame.note.id != frame.sequence) return "frame " + std::to_string(frame.sequence) + " has another's note";
    return {};
}
void publish(FrameWriter &writer, uint32_t buffer) {
    const uint64_t number = writer.ring().sequence();
    const uint64_t bytes = size_of(number);
    std::memset(writer.pool().bytes(buffer), said_by(number), bytes);
    FrameNote note;
    note.id = number;
    note.dimensions = bytes != bytes_each;
    std::string rest;
    for (uint32_t word = 0; word < note.shape_length() / sizeof bytes; ++word) // its bytes, and the size of its one dimension
        rest.append(reinterpret_cast<const char *>(&bytes), sizeof bytes);
    rest += "{}";
    note.rest_length = static_cast<uint32_t>(rest.size());
    writer.publish(buffer, note, rest.data(), bytes);
}

struct Case {
    uint64_t start = 0, sequence = 0;
    uint32_t before = 2; // frames published before the operation
};

struct Hands {
    const FrameChannel &channel;
    uint64_t from;
    std::shared_ptr<FrameWriter> writer;
    std::shared_ptr<FrameReader> reader;
    Frame frame, other;
};

struct Operation {
    const char *name;
    uint64_t frames; // that it publishes when it is not stopped
    void (*prepare)(Hands &);
    void (*act)(Hands &);
};

void make_writer(Hands &h) { h.writer = h.channel.writer(); }
void make_reader(Hands &h) { h.reader = h.channel.reader({Start::From::position, h.from}); }
void make_waited_for(Hands &h) { h.reader = h.channel.reader({}, false, true); }
void publish_one(Hands &h) {
    const uint32_t buffer = h.writer->take_buffer();
    if (buffer != no_buffer) publish(*h.writer, buffer);
}

const Operation operations[] = {
    {"publish a frame", 1, make_writer, publish_one},
    {"publish two frames", 2, make_writer,
     [](Hands &h) {
         const uint32_t first = h.writer->take_buffer(), second = h.writer->take_buffer();
         if (second != no_buffer) publish(*h.writer, second);
         if (first != no_buffer) publish(*h.writer, first);
     }},
    {"acquire, give back, publish", 1, make_writer,
     [](Hands &h) {
         const uint32_t buffer = h.writer->take_buffer();
         std::memset(h.writer->pool().bytes(buffer), 0xee, bytes_each);
         h.writer->give_back(buffer);
         publish_one(h);
     }},
    {"attach publication, publish a frame", 1, [](Hands &) {},
     [](Hands &h) {
         make_writer(h);
         publish_one(h);
     }},
    {"acquire all", 0, make_writer,
     [](Hands &h) {
         for (uint32_t i = 0; i <= buffers; ++i) h.writer->take_buffer();
     }},
    {"subscribe to frames", 0, [](Hands &) {}, make_reader},
    {"take frames, give back", 0, make_reader,
     [](Hands &h) {
         while (h.reader->consume(h.frame)) h.reader->give_back(h.frame.note.buffer);
     }},
    {"hold frames", 0, make_reader,
     [](Hands &h) {
         h.reader->consume(h.frame);
         h.reader->newest(h.other);
     }},
    {"record pixels", 0, make_reader,
     [](Hands &h) {
         std::vector<uint8_t> buffer;
         while (h.reader->cell_run(buffer).length != 0) {
         }
     }},
    {"unsubscribe from frames", 0,
     [](Hands &h) {
         make_reader(h);
         h.reader->consume(h.frame);
     },
     [](Hands &h) {
         if (h.frame.data != nullptr) h.reader->give_back(h.frame.note.buffer);
         h.reader->pool().ring()->detach();
     }},
    {"subscribe, to be waited for", 0, [](Hands &) {}, make_waited_for},
    {"be waited for no more", 0, make_waited_for, [](Hands &h) { h.reader->leave(); }},
    {"reap leases", 0, make_writer, [](Hands &h) { h.writer->pool().reap_leases(); }},
};

uint64_t lay_out(const FrameChannel &channel, const Case &at) {
    auto writer = channel.writer();
    const uint64_t begun = writer->ring().position();
    for (uint32_t i = 0; i < at.before; ++i) publish(*writer, writer->take_buffer());
    return begun;
}

// A stranger publishes, another reads: whole frames in order, none lost from here on, and every buffer in use.
// `waited`: publications wait for this reader.
std::string go_on(const FrameChannel &channel, FrameReader &reader, Frame *held, uint64_t least, uint64_t most,
                  bool waited = false) {
    Frame frame;
    auto read = [&]() -> std::string {
        while (reader.consume(frame)) {
            const std::string wrong = misspelt(frame);
            reader.give_back(frame.note.buffer);
            if (!wrong.empty()) return wrong;
        }
        return {};
    };
    const uint64_t lost_before = reader.ring().lost_messages();
    if (std::string wrong = read(); !wrong.empty()) return wrong;
    const uint64_t lost = reader.ring().lost_messages();
    if (waited && lost != lost_before) return "a frame was lost that the publication should have kept";
    auto writer = channel.writer();
    const uint64_t next = writer->ring().sequence();
    if (next - least > most - least) return "the next number is " + std::to_string(next);
    for (uint32_t i = 0; i < 3 * buffers; ++i) {
        const uint32_t buffer = writer->take_buffer();
        if (buffer == no_buffer) return "no buffer is free";
        publish(*writer, buffer);
        if (std::string wrong = read(); !wrong.empty()) return wrong;
        if (held != nullptr)
            if (std::string wrong = misspelt(*held); !wrong.empty()) return "held: " + wrong;
    }
    if (reader.ring().sequence() != writer->ring().sequence() || reader.ring().lost_messages() != lost) return "a frame was lost";
    if (held != nullptr) reader.give_back(held->note.buffer);
    for (uint32_t i = 0; i < buffers; ++i)
        if (writer->take_buffer() == no_buffer) return "a buffer is lost";
    std::vector<std::shared_ptr<FrameReader>> all;
    try {
        while (all.size() + 2 < channel.geometry.ring.slot_count) all.push_back(channel.reader());
    } catch (const Error &error) {
        return std::string("a slot is lost: ") + error.what();
    }
    return {};
}

void examine(const Operation &op, const Case &at, uint64_t kills, std::mt19937_64 &random, Result &result) {
    const std::string what = std::string(op.name) + " --start " + std::to_string(at.start) + " --sequence " +
                             std::to_string(at.sequence) + " --before " + std::to_string(at.before);
    const PoolGeometry geometry = geometry_of(at.start, at.sequence);
    const uint64_t before = at.sequence + at.before;
    const auto step_through = [&](std::vector<uint64_t> &changes, std::vector<Place> &places) {
        const FrameChannel channel(geometry), copy(geometry);
        const uint64_t begun = lay_out(channel, at);
        Hands hands{channel, begun, nullptr, nullptr, {}, {}};
        Victim child([&] { op.prepare(hands); }, [&] { op.act(hands); });
        walk(child, channel.map->bytes(), channel.map->size(), result, changes, places,
             [&](uint64_t step, const std::vector<uint8_t> &bytes) {
                 std::memcpy(copy.map->bytes(), bytes.data(), bytes.size());
                 const std::string wrong = judged([&] {
                     return go_on(copy, *copy.reader({Start::From::position, begun}), nullptr, before, before + op.frames);
                 });
                 if (!wrong.empty()) fail(result, what, step, wrong);
             });
    };
    const auto kill_at = [&](uint64_t step, const std::vector<Place> &places) -> std::string {
        const FrameChannel channel(geometry);
        const uint64_t begun = lay_out(channel, at);
        const bool waited = random() % 2 == 0;
        auto reader = channel.reader({Start::From::position, begun}, false, waited);
        // Half of the time another publication lives, with a buffer open, and goes on first.
        auto beside = random() % 2 == 0 ? channel.writer() : nullptr;
        const uint32_t open = beside ? beside->take_buffer() : no_buffer;
        if (open != no_buffer) std::memset(beside->pool().bytes(open), 0x55, bytes_each);
        Frame held;
        bool holds = random() % 2 == 0 && reader->consume(held);
        for (Frame other; waited && reader->consume(other);) { // then there is room, and what comes is kept for it
            if (holds) reader->give_back(held.note.buffer);
            held = other;
            holds = true;
        }
        Hands hands{channel, begun, nullptr, nullptr, {}, {}};
        kill_victim([&] { op.prepare(hands); }, [&] { op.act(hands); }, step, places);
        if (open != no_buffer) {
            for (uint32_t i = 0; i < bytes_each; ++i)
                if (beside->pool().bytes(open)[i] != 0x55) return "another publication wrote to an open buffer";
            const uint32_t other = beside->take_buffer(); // it then knows the next number
            if (other != no_buffer) beside->give_back(other);
            publish(*beside, open);
        }
        if (beside) beside->leave();
        const uint64_t more = open != no_buffer;
        return go_on(channel, *reader, holds ? &held : nullptr, before + more, before + more + op.frames, waited);
    };
    examine_case(what, kills, 4, random, result, step_through, kill_at);
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t starts[] = {0, (uint64_t{1} << 31) - 64 * 1024, (uint64_t{1} << 48) - 64 * 1024};
    const uint64_t sequences[] = {0, (uint64_t{1} << 32) - 3, (uint64_t{1} << 63) - 3, ~uint64_t{0} - 2};
    const uint32_t befores[] = {1, 2, buffers, 3 * buffers};
    const auto shape = [&](const Operation &, int number, std::mt19937_64 &random) {
        Case at;
        at.start = starts[random() % 3];
        at.sequence = sequences[random() % 4];
        at.before = befores[number];
        return at;
    };
    return campaign(Options(argc, argv), "frames: ", operations, 4, shape, examine) == 0 ? 0 : 1;
}
