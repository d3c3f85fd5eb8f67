// Any datagrams into a sender over a small log that goes on: what leaves is whole frames as they were written, or a control
// frame, within the MTU and the window; a request that is not honoured leaves no trace but a count.
#include "fuzz.hpp"
#include "net/send/sender.hpp"

#include <vector>

using namespace penstock;

namespace {

constexpr uint32_t term_length = 256, mtu = 96;

struct Out {
    bool send(const uint8_t *bytes, size_t length) {
        wire::Type type;
        if (length > mtu || !wire::parse_type(bytes, length, type)) __builtin_trap();
        wire::DataRun run;
        wire::SetupFrame setup;
        wire::RttFrame rtt;
        if (type == wire::Type::setup) {
            if (!wire::parse(bytes, length, setup)) __builtin_trap();
        } else if (type == wire::Type::rtt) {
            if (!wire::parse(bytes, length, rtt) || rtt.start.flags != 0) __builtin_trap();
        } else if (type == wire::Type::extension) {
            wire::ExtensionFrame frame;
            std::string text;
            if (!wire::parse(bytes, length, frame, text) || text != "described") __builtin_trap();
        } else if (!wire::parse(bytes, length, term_length, run) || run.session != 3) __builtin_trap();
        return !full;
    }
    bool full = false;
};

void forge(hostile::Input &input, uint8_t *bytes, size_t length) {
    static constexpr uint16_t types[] = {2, 2, 3, 3, 3, 6, 4, 1};
    static constexpr uint32_t lengths[] = {28, 36, 44, 40};
    const auto what = input.take<uint8_t>();
    const auto put = [&](size_t at, uint32_t value) {
        if (at + 4 <= length) std::memcpy(bytes + at, &value, 4);
    };
    put(0, lengths[what >> 3 & 3]);
    put(4, uint32_t{types[what & 7]} << 16 | (what & 0xe0u) << 8);
    put(8, 3);
    put(12, 1);
    if ((what & 7) > 4) return;
    put(16, 7 + (input.take<uint8_t>() & 7u));
    put(20, input.take<uint8_t>() % 9 * 32u);
    put(24, input.take<uint8_t>());
}

} // namespace

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    hostile::Input input(data, size);
    const auto memory = std::make_unique<uint64_t[]>(3 * term_length / 8);
    const Terms terms(reinterpret_cast<uint8_t *>(memory.get()), term_length, mtu, 7, 1);
    SenderOptions options;
    const auto kind = input.take<uint8_t>();
    options.session = 3;
    options.stream = 1;
    options.mtu = mtu;
    options.window = 64;
    options.flow_control = static_cast<FlowControl>(kind % 3);
    if ((kind & 4) != 0) options.description = "described";
    uint64_t tail = 0;
    int64_t now = 0;
    Sender sender(terms, options, 0, now);
    Out out;
    while (input.left() > 0) {
        const auto what = input.take<uint8_t>();
        static constexpr int64_t steps[] = {0, 1, 1'000'000, 11'000'000, 100'000'000, 6'000'000'000, -1'000'000'000, 0};
        now += steps[what & 7];
        if ((what & 8) != 0 && sender.state() < Sender::State::draining &&
            tail < sender.position() + term_length / 2) { // a frame more
            const auto asked = static_cast<uint32_t>(32 + (what >> 4) * 4);
            const auto room = static_cast<uint32_t>(align_frame(asked));
            const bool fits = room <= terms.left_in_term(tail);
            const auto length = fits ? asked : static_cast<uint32_t>(terms.left_in_term(tail));
            terms.clean(tail, tail + align_frame(length) + header_length);
            FrameHeader *frame = terms.frame(tail);
            terms.write_header(frame, tail, 3, 0);
            frame->word0.release(pack_word0(length, flags_whole, fits ? FrameType::data : FrameType::pad));
            tail += align_frame(length);
        }
        static constexpr size_t lengths[] = {28, 36, 44, 40, 41, 8, 7, 60};
        size_t length = lengths[what >> 5];
        const auto bytes = input.block(length);
        if ((what & 16) != 0) forge(input, bytes.get(), length);
        Address from;
        from.port = what >> 7;
        sender.datagram(now, from, bytes.get(), length);
        const uint64_t limit = sender.limit(), before = sender.counts().rtt_replies;
        out.full = (what & 0x60) == 0x60;
        sender.tick(now, out);
        if (sender.position() > tail || sender.limit() < limit || sender.counts().rtt_replies > before + 8) __builtin_trap();
        if ((what & 0x1f) == 0x1f) sender.close(now, tail);
        if (sender.next() < 0) __builtin_trap();
    }
}
