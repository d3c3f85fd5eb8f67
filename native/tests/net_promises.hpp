// Shared by the promises of the network log's state machines: bytes captured from a real driver, and a box for datagrams.
#pragma once

#include "net_world.hpp"

#include <utility>

namespace penstock::test {

inline constexpr int64_t ms = 1'000'000;
inline constexpr int32_t session = 0x12345678, stream = 1001;
inline constexpr int64_t receiver_id = 0x1122334455667788;

using Bytes = std::vector<uint8_t>;

inline Bytes hex(const char *text) {
    Bytes bytes;
    for (int high = -1; *text != 0; ++text) {
        if (*text == ' ') continue;
        const int digit = *text <= '9' ? *text - '0' : *text - 'a' + 10;
        if (high < 0) high = digit;
        else {
            bytes.push_back(static_cast<uint8_t>(high << 4 | digit));
            high = -1;
        }
    }
    return bytes;
}
template <class Frame> Bytes copy_of(const Frame &frame, size_t length = sizeof(Frame)) {
    return Bytes(wire::bytes_of(frame), wire::bytes_of(frame) + length);
}

// Everything that was sent.
struct Box {
    bool send(const uint8_t *bytes, size_t length) {
        if (full) return false;
        sent.emplace_back(bytes, bytes + length);
        return true;
    }
    bool send(const Address &, const uint8_t *bytes, size_t length) { return send(bytes, length); }
    bool has_unproved_room(uint32_t) const { return unproved_room; }
    Bytes consume() {
        CHECK(!sent.empty(), "nothing was sent");
        Bytes first = sent.front();
        sent.erase(sent.begin());
        return first;
    }
    std::vector<Bytes> sent;
    bool full = false, unproved_room = true;
};

inline const Bytes setup_bytes = hex("28000000 00000500 00000000 78563412 e9030000 07000000 07000000 00000100 80050000 00000000");
inline const Bytes heartbeat_bytes = hex("00000000 00c00100 00000000 78563412 e9030000 07000000 00000000 00000000");
inline const Bytes data_header = hex("08040000 00c00100 00000000 78563412 e9030000 07000000 00000000 00000000");
inline const Bytes pad_bytes = hex("40000000 00c00000 c0ff0000 78563412 e9030000 07000000 00000000 00000000");
inline const Bytes end_bytes = hex("00000000 00e00100 00420000 78563412 e9030000 09000000 00000000 00000000");
inline const Bytes status_setup_bytes =
    hex("2c000000 00800300 78563412 e9030000 00000000 00000000 00000000 8877665544332211 63000000 00000000");
inline const Bytes status_bytes =
    hex("2c000000 00000300 78563412 e9030000 07000000 604f0000 00370000 8877665544332211 63000000 00000000");
inline const Bytes rtt_bytes = hex("28000000 00800600 78563412 e9030000 0102030405060708 0000000000000000 8877665544332211");
inline const Bytes nak_bytes = hex("1c000000 00000200 78563412 e9030000 07000000 40d50000 20020000");

inline SenderOptions sender_options() {
    SenderOptions options;
    options.session = session;
    options.stream = stream;
    return options;
}
inline Bytes status_at(const Terms &terms, uint64_t position, uint32_t window, uint8_t flags = 0,
                       int64_t receiver = receiver_id) {
    ReceiverOptions options;
    options.stream = stream;
    options.receiver = receiver;
    wire::StatusFrame frame = make_status(options, session, flags);
    frame.term_id = terms.term_id(position);
    frame.term_offset = static_cast<int32_t>(terms.offset(position));
    frame.window = static_cast<int32_t>(window);
    return copy_of(frame, wire::status_length);
}
inline void hand(Sender &sender, int64_t now, const Bytes &bytes, uint16_t from = 1) {
    sender.datagram(now, address(from), bytes.data(), bytes.size());
}

struct Place {
    std::optional<Terms> open(const wire::SetupFrame &setup, const Address &) {
        memories.push_back(
            std::make_unique<Memory>(static_cast<uint32_t>(setup.term_length), 1408, setup.initial_term_id, stream));
        return memories.back()->terms;
    }
    void close(const Image &image) {
        ++closed;
        closed_lost += image.lost();
    }
    std::vector<std::unique_ptr<Memory>> memories;
    size_t closed = 0, closed_lost = 0;
};
inline void hand(Receiver<Place> &receiver, int64_t now, const Bytes &bytes, uint16_t from = 1) {
    receiver.datagram(now, address(from), bytes.data(), bytes.size());
}
inline ReceiverOptions receiver_options() {
    ReceiverOptions options;
    options.stream = stream;
    options.receiver = receiver_id;
    options.group_tag = 99;
    return options;
}

} // namespace penstock::test
