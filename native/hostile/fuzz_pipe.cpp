// A pipe channel's memory overwritten with any bytes, under peers that go on working: right data, nothing, or an error.
#include "fuzz.hpp"
#include "ground.hpp"
#include "pipe/pipe_tap.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    static const PipeGeometry geometry = [] {
        PipeGeometry g;
        g.capacity = 256;
        g.max_members = 4;
        g.max_pipes = 4;
        return g;
    }();
    static const Ground ground(geometry.file_size(),
                               [](int fd, const uint8_t *boot) { format_pipe(fd, geometry, "{}", boot, 0); });
    ground.restore();
    hostile::Input input(data, size);
    static const uint8_t payload[64] = {1};
    static uint8_t out[256];
    try {
        const auto first = input.take<uint8_t>();
        const auto lossy = (first & 1) != 0 ? WhenFull::drop_oldest : WhenFull::wait;
        const int what_else = first >> 1;
        const auto open = [&](PeerRole role) {
            return std::make_unique<PipePeer>(ground.fd, "fuzzed", role, "x", lossy, nullptr, ground.map);
        };
        auto push = open(PeerRole::push), pull = open(PeerRole::pull);
        const std::shared_ptr<PipePeer> recorder = (what_else & 1) != 0 ? open(PeerRole::tap) : nullptr;
        PipeTap tap(recorder, 0);
        while (input.left() > 0) {
            const auto what = input.take<uint8_t>();
            try {
                switch (what % 8) {
                case 0:
                case 1: { // a word anywhere behind the header, but not the lock: who holds it is waited for
                    const uint64_t words = (ground.size - sizeof(Header)) / 8 - 1;
                    const uint64_t at = sizeof(Header) + 8 + input.take<uint16_t>() % words * 8;
                    const auto value = input.take<uint64_t>();
                    std::memcpy(ground.map->bytes() + at, &value, sizeof value);
                    break;
                }
                case 2: { // a frame's first word
                    const uint64_t at = geometry.data_offset() + input.take<uint8_t>() % 32 * 32;
                    const uint64_t value =
                        pack_word0(input.take<uint16_t>(), input.take<uint8_t>(), static_cast<FrameType>(what >> 3 & 1));
                    std::memcpy(ground.map->bytes() + at, &value, sizeof value);
                    break;
                }
                case 3: { // a word of a pipe's
                    const uint64_t at =
                        geometry.links_offset() + input.take<uint8_t>() % 4 * sizeof(PipeLink) + input.take<uint8_t>() % 48 * 8;
                    const uint64_t value = input.take<uint8_t>() * uint64_t{16};
                    std::memcpy(ground.map->bytes() + at, &value, sizeof value);
                    break;
                }
                case 4:
                    push->write(payload, input.take<uint8_t>() % 65);
                    break;
                case 5:
                    for (int i = 0; i < 20; ++i) {
                        const Message *message = pull->peek();
                        if (message == nullptr) break;
                        if (message->length > sizeof out) __builtin_trap();
                        std::memcpy(out, message->data, message->length);
                        pull->consume();
                    }
                    if ((what & 16) != 0)
                        pull->drain([&, left = 20](const Message &message) mutable {
                            if (message.length > sizeof out) __builtin_trap();
                            std::memcpy(out, message.data, message.length);
                            return --left == 0;
                        });
                    if ((what & 8) != 0) pull->acknowledge();
                    if (recorder) tap.acknowledge(tap.run(500));
                    break;
                case 6:
                    if ((what & 8) != 0) {
                        push.reset();
                        push = open(PeerRole::push);
                    } else {
                        pull.reset();
                        pull = open(PeerRole::pull);
                    }
                    break;
                case 7: {
                    const IoVec pieces[] = {{payload, 0}, {payload, 20}, {payload, 0}};
                    push->write_many(pieces, 3);
                    push->lag();
                    push->waiting();
                    push->refresh();
                    push->outgoing().alive();
                    pull->pipes().readable();
                    pull->pipes().has_unread_elsewhere();
                    pull->peers().name_of(input.take<uint64_t>());
                }
                }
            } catch (const Error &) {
                if (!push || !pull) return;
            }
        }
    } catch (const Error &) {
    }
}
