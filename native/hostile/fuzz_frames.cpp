// A frame pool's memory overwritten with any bytes, under handles that go on working: a frame within its buffers, nothing, or an
// error; and what is leased by somebody who lives is not handed out.
#include "frames/frame_reader.hpp"
#include "frames/frame_writer.hpp"
#include "fuzz.hpp"
#include "ground.hpp"

using namespace penstock;

namespace {

PoolGeometry geometry() {
    PoolGeometry g;
    g.ring.capacity = 1024;
    g.ring.slot_count = 3;
    g.buffers = 3;
    g.frame_bytes = 40;
    return g;
}

} // namespace

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    static const Ground ground(geometry().file_size(),
                               [](int fd, const uint8_t *boot) { format_frames(fd, geometry(), "{}", boot, 0); });
    ground.restore();
    hostile::Input input(data, size);
    std::vector<uint8_t> buffer;
    std::vector<Frame> held;
    auto read_all = [&](const Frame &frame) {
        if (frame.bytes() > geometry().frame_bytes) __builtin_trap();
        volatile uint8_t sum = 0;
        for (uint64_t i = 0; i < frame.bytes(); ++i) sum = static_cast<uint8_t>(sum + frame.data[i]);
        if (frame.data < ground.map->bytes() || frame.data + frame.bytes() > ground.map->bytes() + ground.size) __builtin_trap();
    };
    try {
        const auto open = [] { return std::make_shared<FramePool>(ground.fd, "fuzzed", ground.map); };
        auto writer = std::make_unique<FrameWriter>(open(), nullptr);
        FrameReader reader(open(), {}, (input.take<uint8_t>() & 1) != 0);
        while (input.left() > 0) {
            const auto what = input.take<uint8_t>();
            try {
                switch (what % 8) {
                case 0:
                case 1: { // a word anywhere behind the header, and before the buffers
                    const uint64_t words = (geometry().buffers_offset() - sizeof(Header)) / 8;
                    const uint64_t at = sizeof(Header) + input.take<uint16_t>() % words * 8;
                    const auto value = input.take<uint64_t>();
                    std::memcpy(ground.map->bytes() + at, &value, sizeof value);
                    break;
                }
                case 2: { // a note's first word, or its frame's
                    const auto which = input.take<uint8_t>();
                    const uint64_t at = ring_data_offset(3) + which % 8 * 64;
                    const auto value = input.take<uint64_t>();
                    const uint64_t word0 = pack_word0(static_cast<uint8_t>(value), flags_whole, FrameType::data);
                    if (which < 128) std::memcpy(ground.map->bytes() + at + header_length, &value, sizeof value);
                    else std::memcpy(ground.map->bytes() + at, &word0, sizeof word0);
                    break;
                }
                case 3:
                    if (const uint32_t free = writer->take_buffer(); free != no_buffer) {
                        std::memset(writer->pool().bytes(free), what, geometry().frame_bytes);
                        FrameNote note;
                        note.rest_length = input.take<uint8_t>() % 65;
                        note.dimensions = input.take<uint8_t>() % 8; // readers believe neither the lengths nor the size
                        char rest[65] = {};
                        rest[0] = static_cast<char>(input.take<uint8_t>() % 48);
                        if (note.rest_length <= writer->meta_max()) writer->publish(free, note, rest, 0);
                        else writer->give_back(free);
                    }
                    break;
                case 4: {
                    Frame frame;
                    if (reader.consume(frame)) {
                        read_all(frame);
                        held.push_back(std::move(frame));
                    }
                    break;
                }
                case 5: {
                    Frame frame;
                    if (reader.newest(frame)) {
                        read_all(frame);
                        reader.give_back(frame.note.buffer);
                    }
                    if (!held.empty()) {
                        reader.give_back(held.back().note.buffer);
                        held.pop_back();
                    }
                    break;
                }
                case 6:
                    writer.reset();
                    writer = std::make_unique<FrameWriter>(open(), nullptr);
                    break;
                case 7: {
                    const FrameBlock run = reader.cell_run(buffer);
                    if (run.length != 0 && run.length != reader.cell()) __builtin_trap();
                    writer->pool().reap_leases();
                    writer->pool().leased_count();
                }
                }
            } catch (const Error &) {
                if (!writer) return;
            }
        }
    } catch (const Error &) {
    }
}
