// Threads hammer one frame pool: two publications, restarted now and then; readers that read at once, hold frames for a while,
// ask for the newest, record, come and go, and some for which the publication waits. Every frame is whole from its lease to the
// end of it, got + lost + passed over = sent, and nothing is lost where the publication waits.
#include "support.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <thread>

using namespace penstock;
using namespace penstock::test;

namespace {

constexpr uint32_t bytes_each = 3000;

struct Ground : FrameChannel {
    using FrameChannel::FrameChannel;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> received{0};
};

PoolGeometry geometry_from(uint64_t start, uint64_t sequence) {
    PoolGeometry g;
    g.ring.capacity = 64 * 1024;
    g.ring.slot_count = 16;
    g.ring.start_position = start;
    g.ring.start_sequence = sequence;
    g.buffers = 8;
    g.frame_bytes = bytes_each;
    return g;
}

void write(Ground &ground, uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!ground.stop) {
        FrameWriter writer(ground.open(), nullptr);
        uint64_t number = 0; // within its session
        for (uint64_t life = 100 + random() % 5000; life != 0 && !ground.stop; --life) {
            Atomic<uint32_t> &room = writer.pool().room();
            const uint32_t expected = event_prepare(room);
            const uint32_t buffer = writer.take_buffer();
            if (buffer == no_buffer) {
                event_sleep(room, expected, 1'000'000);
                continue;
            }
            if (random() % 16 == 0) {
                std::memset(writer.pool().bytes(buffer), 0xaa, bytes_each);
                writer.give_back(buffer);
                continue;
            }
            // Half of the frames have a size of their own.
            const uint64_t bytes = random() % 2 == 0 ? bytes_each : bytes_each / 2 + random() % (bytes_each / 2);
            fill(writer.pool().bytes(buffer), writer.ring().session(), ++number, bytes);
            FrameNote note;
            note.id = number;
            note.dimensions = bytes != bytes_each;
            std::vector<char> rest(note.shape_length() + random() % 40);
            if (note.dimensions != 0) std::memcpy(rest.data(), &bytes, sizeof bytes);
            note.rest_length = static_cast<uint32_t>(rest.size());
            writer.publish(buffer, note, rest.data(), bytes);
            if (random() % 256 == 0) std::this_thread::yield();
        }
    }
}

void check_frame(const Frame &frame) {
    const Proof proof = check_message(frame.data, frame.bytes());
    CHECK(proof.number == frame.note.id && static_cast<int32_t>(proof.writer) == frame.message.session, "frame %lu came as %lu",
          (unsigned long)proof.number, (unsigned long)frame.note.id);
}

// Holds up to `holds` frames at a time.
void read(Ground &ground, uint64_t seed, bool conflate, size_t holds, uint64_t most, bool waits = false) {
    std::mt19937_64 random(seed);
    FrameReader reader(ground.open(), {}, conflate, waits);
    const uint64_t begun = reader.ring().sequence();
    uint64_t got = 0;
    std::deque<Frame> held;
    std::map<int32_t, uint64_t> newest; // of each session
    auto end_hold = [&] {
        check_frame(held.front());
        reader.give_back(held.front().note.buffer);
        held.pop_front();
    };
    Atomic<uint32_t> &event = reader.pool().ring()->control().data.value;
    while (got < most) {
        const uint32_t expected = event_prepare(event);
        const bool stopped = ground.stop;
        Frame frame;
        if (random() % 16 == 0 && reader.newest(frame)) {
            check_frame(frame);
            reader.give_back(frame.note.buffer);
        }
        if (!reader.consume(frame)) {
            if (stopped && reader.ring().lag() == 0) break;
            event_sleep(event, expected, 1'000'000);
            continue;
        }
        ++got;
        check_frame(frame);
        uint64_t &last = newest[frame.message.session];
        CHECK(frame.note.id > last);
        last = frame.note.id;
        held.push_back(std::move(frame));
        while (held.size() > random() % (holds + 1)) end_hold();
    }
    while (!held.empty()) end_hold();
    CHECK(reader.leases() == 0);
    CHECK(!waits || reader.ring().lost_messages() == 0, "%lu lost", (unsigned long)reader.ring().lost_messages());
    CHECK(got + reader.ring().lost_messages() + reader.ring().conflated() == reader.ring().sequence() - begun,
          "got %lu, lost %lu of %lu", (unsigned long)got, (unsigned long)reader.ring().lost_messages(),
          (unsigned long)(reader.ring().sequence() - begun));
    ground.received += got;
}

void record(Ground &ground) {
    FrameReader reader(ground.open(), {}, false);
    std::vector<uint8_t> buffer;
    for (;;) {
        const bool stopped = ground.stop;
        const uint64_t at = reader.cell_position();
        const FrameBlock run = reader.cell_run(buffer);
        if (run.length != 0) {
            CHECK(run.length == reader.cell() && reader.cell_position() == at + run.length);
            const uint8_t *message = run.data + header_length;
            FrameNote note;
            std::memcpy(&note, message, sizeof note);
            uint64_t bytes = bytes_each;
            if (note.dimensions != 0) std::memcpy(&bytes, message + sizeof note, sizeof bytes);
            const Proof proof = check_message(message + sizeof note + note.rest_length, bytes);
            CHECK(proof.number == note.id);
        } else if (stopped && reader.cell_lag() == 0) {
            return;
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t seed = argument(argc, argv, "--seed", std::random_device{}()), seconds = argument(argc, argv, "--seconds", 2);
    std::printf("frame_stress --seed %lu\n", (unsigned long)seed);
    std::fflush(stdout);
    const uint64_t starts[] = {0, (uint64_t{1} << 31) - 64 * 1024, (uint64_t{1} << 63) - (uint64_t{1} << 35)};
    const uint64_t sequences[] = {0, (uint64_t{1} << 32) - 100, ~uint64_t{0} - 100};
    Ground ground(geometry_from(starts[seed % 3], sequences[seed / 3 % 3]));
    std::vector<std::thread> threads;
    threads.emplace_back([&] { write(ground, seed); });
    threads.emplace_back([&] { write(ground, seed + 50); });
    threads.emplace_back([&] { read(ground, seed + 1, false, 0, UINT64_MAX); });
    threads.emplace_back([&] { read(ground, seed + 2, false, 2, UINT64_MAX); });
    threads.emplace_back([&] { read(ground, seed + 3, true, 1, UINT64_MAX); });
    threads.emplace_back([&] { record(ground); });
    threads.emplace_back([&] {
        for (uint64_t i = 0; !ground.stop; ++i) read(ground, seed + 100 + i, i % 3 == 0, i % 2, 1 + i % 100);
    });
    threads.emplace_back([&] {
        for (uint64_t i = 0; !ground.stop; ++i) read(ground, seed + 200 + i, false, i % 3, 1 + i % 1000, true);
    });
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    ground.stop = true;
    for (std::thread &thread : threads) thread.join();
    const FrameReader last(ground.open(), {}, false);
    CHECK(last.pool().leased_count() == 0);
    std::printf("%lu messages\n", (unsigned long)ground.received);
    CHECK(ground.received > 50);
    return 0;
}
