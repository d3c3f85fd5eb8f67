// Threads hammer one ring: a publication by every way of writing, restarted now and then; steady readers, slow ones, conflating
// ones, ones that read in place or record, ones that come and go. Every message got is whole, and got + lost + passed over =
// sent.
#include "support.hpp"

#include <atomic>
#include <chrono>
#include <thread>

using namespace penstock;
using namespace penstock::test;

namespace {

struct Ground : RingChannel {
    using RingChannel::RingChannel;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> received{0};
};

RingGeometry geometry_from(uint64_t start) {
    RingGeometry g;
    g.capacity = 64 * 1024;
    g.slot_count = 16;
    g.start_position = start;
    g.start_sequence = ~uint64_t{0} - 1000;
    return g;
}

void write(Ground &ground, uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!ground.stop) {
        RingWriter writer(ground.open(), nullptr);
        std::vector<uint8_t> buffer;
        for (uint64_t life = 1000 + random() % 20'000; life != 0 && !ground.stop; --life) {
            const auto length = static_cast<uint32_t>(sizeof(Proof) + random() % (random() % 64 == 0 ? 16'000 : 200));
            if (random() % 256 == 0) std::this_thread::yield();
            switch (random() % 4) {
            case 0: {
                const size_t count = 1 + random() % 20;
                const uint32_t each = std::min<uint32_t>(length, 300);
                buffer.resize(count * each);
                std::vector<IoVec> pieces;
                for (size_t i = 0; i < count; ++i) {
                    fill(buffer.data() + i * each, writer.session(), writer.sequence() + i, each);
                    pieces.push_back({buffer.data() + i * each, each});
                }
                writer.offer_many(pieces.data(), count);
                break;
            }
            case 1: {
                const ClaimedRange range = writer.claim(length);
                buffer.resize(length);
                fill(buffer.data(), writer.session(), writer.sequence(), length);
                copy_words_in(range.payload, buffer.data(), length);
                if (random() % 4 == 0) writer.abort(range);
                else writer.commit(range);
                break;
            }
            default:
                buffer.resize(length);
                fill(buffer.data(), writer.session(), writer.sequence(), length);
                writer.offer(buffer.data(), length);
            }
        }
    }
}

// `pause`: microseconds of rest now and then. Counts until it stands at the end of everything, or leaves after `most`.
void read(Ground &ground, uint64_t seed, bool conflate, uint32_t pause, uint64_t most) {
    std::mt19937_64 random(seed);
    RingReader reader(ground.open(), {}, conflate);
    const uint64_t begun = reader.sequence();
    uint64_t got = 0;
    std::vector<uint8_t> buffer;
    Atomic<uint32_t> &event = reader.ring().control().data.value;
    while (got < most) {
        if (pause != 0 && random() % 512 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % pause));
        const uint32_t expected = event_prepare(event);
        const bool stopped = ground.stop;
        const Message *message = reader.peek();
        if (message == nullptr) {
            if (stopped && reader.lag() == 0) break;
            event_sleep(event, expected, 1'000'000);
            continue;
        }
        buffer.resize(message->length);
        if (random() % 4 == 0) { // in place
            const Message held = *message;
            reader.pass();
            copy_words_out(buffer.data(), held.data, held.length);
            if (!reader.intact(held.position)) {
                reader.missed(held);
                continue;
            }
            reader.received(held);
        } else {
            if (!reader.copy(buffer.data(), *message)) continue;
            reader.consume();
        }
        ++got;
        const Proof proof = check_message(buffer.data(), buffer.size());
        CHECK(proof.number + 1 == reader.sequence(), "message %lu came as %lu", (unsigned long)proof.number,
              (unsigned long)reader.sequence() - 1);
    }
    CHECK(got + reader.lost_messages() + reader.conflated() == reader.sequence() - begun, "got %lu, lost %lu of %lu",
          (unsigned long)got, (unsigned long)reader.lost_messages(), (unsigned long)(reader.sequence() - begun));
    ground.received += got;
}

void record(Ground &ground) {
    RingReader reader(ground.open(), {}, false);
    std::vector<uint8_t> buffer;
    uint64_t at = reader.position();
    for (;;) {
        const bool stopped = ground.stop;
        const FrameBlock run = reader.run(64 * 1024, buffer);
        for (uint64_t offset = 0; offset < run.length;) {
            const auto *frame = reinterpret_cast<const FrameHeader *>(run.data + offset);
            const uint64_t word0 = frame->word0.relaxed();
            const auto length = static_cast<uint32_t>(frame_length(word0));
            CHECK(frame->term_offset == ((at + offset) & (ground.geometry.capacity - 1)));
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::data))
                check_message(run.data + offset + header_length, length - header_length);
            offset += align_frame(length);
        }
        at += run.length;
        if (reader.position() != at) at = reader.position(); // lapped
        if (run.length == 0 && stopped && reader.lag() == 0) return;
    }
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", std::random_device{}()), seconds = argument(argc, argv, "--seconds", 2);
    std::printf("ring_stress --seed %lu\n", (unsigned long)seed);
    std::fflush(stdout);
    const uint64_t edges[] = {0, (uint64_t{1} << 31) - 64 * 1024, (uint64_t{1} << 32) - 64 * 1024,
                              (uint64_t{1} << 63) - (uint64_t{1} << 35)};
    Ground ground(geometry_from(edges[seed % 4]));
    std::vector<std::thread> threads;
    threads.emplace_back([&] { write(ground, seed); });
    threads.emplace_back([&] { read(ground, seed + 1, false, 0, UINT64_MAX); });
    threads.emplace_back([&] { read(ground, seed + 2, false, 3000, UINT64_MAX); });
    threads.emplace_back([&] { read(ground, seed + 3, true, 500, UINT64_MAX); });
    threads.emplace_back([&] { record(ground); });
    threads.emplace_back([&] {
        for (uint64_t i = 0; !ground.stop; ++i) read(ground, seed + 100 + i, i % 3 == 0, 50, 1 + i % 300);
    });
    threads.emplace_back([&] {
        const auto watcher = ground.open();
        while (!ground.stop) {
            CHECK(watcher->readers() <= 5);
            watcher->lag();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    ground.stop = true;
    for (std::thread &thread : threads) thread.join();
    std::printf("%lu messages\n", (unsigned long)ground.received);
    CHECK(ground.received > 100);
    return 0;
}
