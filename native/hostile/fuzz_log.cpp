// A channel's memory overwritten with any bytes, under handles that go on working: right data, nothing, or an error.
#include "fuzz.hpp"
#include "ground.hpp"
#include "log/log_look.hpp"
#include "log/log_reader.hpp"
#include "log/log_writer.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    static const Ground ground(log_file_size(4, 256), [](int fd, const uint8_t *boot) {
        LogGeometry g;
        g.term_length = g.window = 256;
        g.slot_count = 4;
        format_log(fd, g, "{}", boot, 0);
    });
    ground.restore();
    hostile::Input input(data, size);
    static const uint8_t payload[128] = {1};
    uint64_t sum = 0;
    try {
        LogReader reader(std::make_shared<TermLog>(ground.fd, "fuzzed", ground.map), {}, input.take<uint8_t>() % 2);
        LogWriter writer(std::make_shared<TermLog>(ground.fd, "fuzzed", ground.map), false, nullptr);
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
                    const uint64_t at = terms_offset(4) + input.take<uint8_t>() % 24 * 32;
                    const uint64_t value =
                        pack_word0(input.take<uint16_t>(), input.take<uint8_t>(), static_cast<FrameType>(what >> 3 & 1));
                    std::memcpy(ground.map->bytes() + at, &value, sizeof value);
                    break;
                }
                case 3:
                    writer.offer(payload, what >> 3);
                    break;
                case 4: {
                    PendingSend sending{payload, 100};
                    for (int i = 0; i < 4 && !writer.send_some(sending); ++i) {
                    }
                    writer.give_up(sending);
                    break;
                }
                case 5:
                case 6:
                    for (int i = 0; i < 8; ++i) {
                        const Message *message = reader.peek();
                        if (message == nullptr) break;
                        for (size_t byte = 0; byte < message->length; ++byte) sum += message->data[byte];
                        reader.consume();
                    }
                    break;
                default: {
                    reader.unblock();
                    const FrameBlock run = reader.run(1 << 12);
                    for (uint64_t byte = 0; byte < run.length; ++byte) sum += run.data[byte];
                    LogLook look(ground.map, "fuzzed");
                    look.begin(uint64_t{input.take<uint8_t>()} * 32, look.end());
                    std::vector<uint8_t> out;
                    const auto sink = [&](const BatchRow &, size_t length, auto &&copy) {
                        out.resize(length);
                        if (!copy(out.data())) return false;
                        for (const uint8_t byte : out) sum += byte;
                        return true;
                    };
                    for (int i = 0; i < 64 && look.take(sink); ++i) {
                    }
                    break;
                }
                }
            } catch (const Error &) {
            }
        }
        reader.log().crash_for_test(); // the lock may be anybody's now: do not wait for it
        writer.log().crash_for_test();
    } catch (const Error &) {
    }
    if (sum == 0x5bd1e995) std::abort(); // the bytes are really read
}
