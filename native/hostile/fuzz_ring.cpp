// A ring's memory overwritten with any bytes, under handles that go on working: right data, nothing, or an error.
#include "fuzz.hpp"
#include "ground.hpp"
#include "ring/ring_look.hpp"
#include "ring/ring_reader.hpp"
#include "ring/ring_writer.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    static const Ground ground(ring_file_size(4, 256), [](int fd, const uint8_t *boot) {
        RingGeometry g;
        g.capacity = 256;
        g.slot_count = 4;
        format_ring(fd, g, "{}", boot, 0);
    });
    ground.restore();
    hostile::Input input(data, size);
    static const uint8_t payload[64] = {1};
    uint8_t out[256];
    std::vector<uint8_t> buffer;
    try {
        const auto open = [] { return std::make_shared<Ring>(ground.fd, "fuzzed", ground.map); };
        auto writer = std::make_unique<RingWriter>(open(), nullptr);
        RingReader reader(open(), {}, (input.take<uint8_t>() & 1) != 0);
        while (input.left() > 0) {
            const auto what = input.take<uint8_t>();
            try {
                switch (what % 8) {
                case 0:
                case 1: { // a word anywhere behind the header
                    const uint64_t words = (ground.size - sizeof(Header)) / 8;
                    const uint64_t at = sizeof(Header) + input.take<uint16_t>() % words * 8;
                    const auto value = input.take<uint64_t>();
                    std::memcpy(ground.map->bytes() + at, &value, sizeof value);
                    break;
                }
                case 2: { // a frame's first word
                    const uint64_t at = ring_data_offset(4) + input.take<uint8_t>() % 8 * 32;
                    const uint64_t value =
                        pack_word0(input.take<uint16_t>(), input.take<uint8_t>(), static_cast<FrameType>(what >> 3 & 1));
                    std::memcpy(ground.map->bytes() + at, &value, sizeof value);
                    break;
                }
                case 3:
                    writer->offer(payload, input.take<uint8_t>() % 33);
                    break;
                case 4:
                    for (int i = 0; i < 20; ++i) {
                        const Message *message = reader.peek();
                        if (message == nullptr) break;
                        if (message->length > sizeof out) __builtin_trap();
                        if (reader.copy(out, *message)) reader.consume();
                    }
                    break;
                case 5: {
                    const FrameBlock run = reader.run(1 << 12, buffer);
                    if (run.length > 1 << 12) __builtin_trap();
                    break;
                }
                case 6:
                    writer.reset();
                    writer = std::make_unique<RingWriter>(open(), nullptr);
                    break;
                case 7: {
                    const IoVec pieces[] = {{payload, 0}, {payload, 20}, {payload, 0}};
                    writer->offer_many(pieces, 3);
                    writer->ring().readers();
                    writer->ring().lag();
                    RingLook look(ground.map, "fuzzed");
                    look.begin(uint64_t{input.take<uint8_t>()} * 32, look.end());
                    const auto sink = [&](const BatchRow &, size_t length, auto &&copy) {
                        if (length > sizeof out) __builtin_trap();
                        return copy(out);
                    };
                    for (int i = 0; i < 64 && look.take(sink); ++i) {
                    }
                }
                }
            } catch (const Error &) {
                if (!writer) return;
            }
        }
    } catch (const Error &) {
    }
}
