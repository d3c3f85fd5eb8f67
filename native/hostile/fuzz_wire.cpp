// Any datagram into every parser of the network log's frames: what is accepted lies inside the datagram and inside its term.
#include "fuzz.hpp"
#include "net/receive/session/receiver.hpp"
#include "net/send/sender.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    hostile::Input input(data, size);
    const uint32_t term_length = 1u << (8 + input.take<uint8_t>() % 8);
    size_t length = input.left();
    const auto bytes = input.block(length);
    wire::Type type;
    if (!wire::parse_type(bytes.get(), length, type)) return;
    wire::SetupFrame setup;
    wire::StatusFrame status;
    wire::NakFrame nak;
    wire::RttFrame rtt;
    wire::ErrorFrame error;
    wire::ExtensionFrame extension;
    std::string text;
    bool tagged;
    int accepted = wire::parse(bytes.get(), length, setup) + wire::parse(bytes.get(), length, status, tagged) +
                   wire::parse(bytes.get(), length, nak) + wire::parse(bytes.get(), length, rtt);
    if (wire::parse(bytes.get(), length, error, text)) ++accepted;
    if (text.size() > wire::error_text_max) __builtin_trap();
    if (wire::parse(bytes.get(), length, extension, text)) ++accepted;
    wire::DataRun run;
    uint64_t at = 0, room = 0;
    if (wire::parse(bytes.get(), length, term_length, run)) {
        ++accepted;
        const auto each = [&](const wire::DataFrame &frame, uint32_t before) {
            if (frame.at != at || before != room || frame.at + frame.wire > length) __builtin_trap();
            at += frame.wire;
            room += frame.room;
        };
        if (run.room != 0) wire::each_frame(bytes.get(), length, each);
        if (room != run.room || run.term_offset + room > term_length || (room != 0 && at != length)) __builtin_trap();
    }
    if (accepted > 1) __builtin_trap(); // no datagram is two things
}
