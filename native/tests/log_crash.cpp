// Dies after each shared store of a claim: every prefix of the writer's stores is laid out by hand, the writer is
// abandoned, and the living must get past it without losing a frame that was committed.
#include "support.hpp"

using namespace penstock;
using namespace penstock::test;

namespace {

// The stores of LogWriter::claim and commit in their order; `steps` of them happen.
void die_after(LogWriter &writer, int steps, uint64_t need) {
    TermLog &log = writer.log();
    ClaimRecord &note = log.me().writer.claims[0];
    Atomic<uint64_t> &tail = log.control().tail.value;
    CHECK(log.make_room(log.tail() + need));
    if (steps > 0) note.length.relaxed(need);
    if (steps > 1) note.where.release(claiming);
    uint64_t at = tail.acquire();
    if (steps > 2) CHECK(tail.cas(at, at + need));
    if (steps > 3) note.where.release(at | claim_taken);
    if (steps > 4) std::memset(log.frame(at) + 1, 0xab, need - header_length); // payload that looks like anything
    if (steps > 5) log.write_header(log.frame(at), at, writer.session(), 1);
    if (steps > 6) log.frame(at)->word0.release(pack_word0(static_cast<uint32_t>(need), flags_whole, FrameType::data));
    log.crash_for_test();
}

void one_death(int steps, uint64_t need, int others) {
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    const Channel channel(g);
    auto reader = channel.reader();
    auto living = channel.writer();
    uint8_t text[64] = {};
    uint64_t sent = 0;
    auto send = [&] {
        std::memcpy(text, &sent, sizeof sent);
        CHECK(living->offer(text, sizeof text) != no_room);
        ++sent;
    };
    send();
    for (int i = 0; i <= others; ++i) die_after(*channel.writer(), steps, need);
    send();
    send();
    uint64_t got = 0, dead = 0;
    for (int turns = 0; turns < 1000 && got < sent; ++turns) {
        const Message *message = reader->peek();
        if (message == nullptr) {
            CHECK(reader->stalled(), "steps %d need %lu: %lu of %lu messages", steps, (unsigned long)need, (unsigned long)got,
                  (unsigned long)sent);
            CHECK(reader->unblock());
            continue;
        }
        uint64_t number;
        std::memcpy(&number, message->data, sizeof number);
        if (message->session == living->session()) CHECK(number == got++);
        else ++dead;
        reader->consume();
    }
    CHECK(got == sent);
    CHECK(dead == (steps > 6 ? static_cast<uint64_t>(others) + 1 : 0), "steps %d: %lu of the dead's", steps, (unsigned long)dead);
    // The slots of the dead come back, and with them all of the table.
    for (int i = 0; i < 100; ++i) channel.writer()->log().crash_for_test();
    CHECK(reader->lag() == 0);
}

void dead_lock_holder() {
    const Channel channel;
    auto reader = channel.reader();
    auto dead = channel.writer();
    CHECK(dead->log().acquire_lock(0));
    dead->log().crash_for_test();
    auto writer = channel.writer(); // takes the lock over
    CHECK(writer->offer("x", 1) != no_room);
    CHECK(reader->peek() != nullptr);
}

void dead_reader_does_not_hold_writers() {
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    const Channel channel(g);
    channel.reader()->log().crash_for_test();
    auto writer = channel.writer();
    const std::vector<uint8_t> block(4096);
    for (int i = 0; i < 1000; ++i) CHECK(writer->offer(block.data(), block.size()) != no_room, "message %d", i);
}

// A patience of a second, by a clock that moves only here: not a nanosecond less.
void slow_reader_is_dropped() {
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    Channel channel(g);
    channel.clock = std::make_shared<ManualClock>();
    channel.clock->now.relaxed(1);
    constexpr int64_t patience = 1'000'000'000;
    auto reader = channel.reader({}, patience);
    auto writer = channel.writer();
    const std::vector<uint8_t> block(4096);
    while (writer->offer(block.data(), block.size()) != no_room) {
    }
    channel.clock->now.add(patience - 1);
    CHECK(writer->offer(block.data(), block.size()) == no_room);
    reader->check_not_dropped();
    channel.clock->now.add(1);
    for (int i = 0; i < 200; ++i) CHECK(writer->offer(block.data(), block.size()) != no_room, "message %d", i);
    bool told = false;
    try {
        reader->peek();
    } catch (const Error &error) {
        told = error.code == Code::too_slow;
    }
    CHECK(told);
    CHECK(reader->lost() > 0);
    CHECK(reader->peek() != nullptr);
}

// A log whose frames end at a network's longest packet: a message goes out in as many frames as it needs, all full but the last.
void frames_end_at_the_longest() {
    LogGeometry g;
    g.term_length = g.window = 64 * 1024;
    g.max_frame = 1408;
    const Channel channel(g);
    auto reader = channel.reader();
    auto writer = channel.writer();
    CHECK(writer->payload_max() == 1376);
    std::vector<uint8_t> message(10'000);
    for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<uint8_t>(i * 7);
    PendingSend sending{message.data(), message.size()};
    CHECK(writer->send_some(sending));
    uint64_t position = 0, payload = 0, frames = 0;
    for (; position < writer->log().tail(); ++frames) {
        const auto length = static_cast<uint32_t>(frame_length(writer->log().frame(position)->word0.acquire()));
        CHECK(length <= 1408, "%u bytes at %lu", length, static_cast<unsigned long>(position));
        payload += length - header_length;
        position += align_frame(length);
    }
    CHECK(frames == 8 && payload == message.size(), "%lu frames", static_cast<unsigned long>(frames));
    const Message *whole = reader->peek();
    CHECK(whole != nullptr && whole->length == message.size() && std::memcmp(whole->data, message.data(), message.size()) == 0);
    // A run that becomes visible at once is no longer than a frame may be, either.
    std::vector<IoVec> pieces(40, IoVec{message.data(), 100});
    CHECK(writer->offer_many(pieces.data(), pieces.size()) == pieces.size());
}

} // namespace

int main() {
    for (int steps = 0; steps <= 7; ++steps)
        for (const uint64_t need : {uint64_t{32}, uint64_t{96}, uint64_t{4096}, uint64_t{16384}})
            for (int others = 0; others < 3; ++others) one_death(steps, need, others);
    dead_lock_holder();
    dead_reader_does_not_hold_writers();
    slow_reader_is_dropped();
    frames_end_at_the_longest();
    std::puts("every death was survived");
    return 0;
}
