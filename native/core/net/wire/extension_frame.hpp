// EXT: what Penstock peers tell each other beside the protocol, such as the stream's codec. Other drivers ignore the type.
#pragma once

#include "net/wire/wire.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 |  24 + text    | 0, flags, −1  |    session    |    stream     |
//    +---------------+---------------+---------------+---------------+
// 16 | "PNST"        | noun  | length|  text, up to 1024 bytes; a probe's: up to a datagram …
//    +---------------+-------+-------+
struct [[gnu::packed]] ExtensionFrame {
    Start start;
    int32_t session;      // 8
    int32_t stream;       // 12
    uint32_t magic;       // 16
    uint16_t noun;        // 20
    uint16_t text_length; // 22
};
static_assert(sizeof(ExtensionFrame) == 24 && offsetof(ExtensionFrame, magic) == 16 &&
              offsetof(ExtensionFrame, text_length) == 22);
inline constexpr uint32_t extension_magic = 0x54534e50; // "PNST"
inline constexpr uint16_t extension_description = 1;    // the text describes the stream: its codec
inline constexpr uint16_t extension_readers = 2;        // the text is a number: how many subscriptions read at this receiver
inline constexpr uint16_t extension_round_trip = 3;     // the text is a number: the round trip as the receiver measured it, ns
inline constexpr uint16_t extension_clock_request = 4;  // a receiver asks for the sender's clock; the text is a number
inline constexpr uint16_t extension_clock_answer = 5;   // that number, and the sender's wall clock in nanoseconds
inline constexpr uint16_t extension_probe = 6;          // a sender looks whether a datagram of this length arrives; spaces
inline constexpr uint16_t extension_probe_echo = 7;     // the length of a probe that has arrived
inline constexpr uint16_t extension_last = extension_probe_echo;
inline constexpr size_t extension_text_max = 1024;
inline constexpr uint32_t extension_header = sizeof(ExtensionFrame);

inline bool parse(const uint8_t *bytes, size_t length, ExtensionFrame &frame, std::string &text) {
    if (length < sizeof frame) return false;
    std::memcpy(&frame, bytes, sizeof frame);
    if (length > sizeof frame + extension_text_max && frame.noun != extension_probe) return false;
    if (frame.start.version != 0 || frame.start.type != static_cast<uint16_t>(Type::extension)) return false;
    if (frame.start.length != static_cast<int32_t>(length) || frame.magic != extension_magic) return false;
    if (frame.noun < extension_description || frame.noun > extension_last) return false;
    if (frame.text_length != length - sizeof frame) return false;
    text.assign(reinterpret_cast<const char *>(bytes) + sizeof frame, std::min(length - sizeof frame, extension_text_max));
    return true;
}
// Whether a datagram is an extension frame with that noun. It is not checked otherwise.
inline bool has_noun(const uint8_t *bytes, size_t length, uint16_t noun) {
    ExtensionFrame frame;
    if (length < sizeof frame) return false;
    std::memcpy(&frame, bytes, sizeof frame);
    return frame.start.type == static_cast<uint16_t>(Type::extension) && frame.noun == noun;
}
// A text of digits as a number; false for any other text.
template <class Number> bool read_number(const std::string &text, Number &number) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    return failed == std::errc() && end == text.data() + text.size();
}
// Two numbers with a space in between.
inline bool read_numbers(const std::string &text, uint64_t &first, int64_t &second) {
    const size_t space = text.find(' ');
    return space != std::string::npos && read_number(text.substr(0, space), first) && read_number(text.substr(space + 1), second);
}
// A probe is a datagram of `length` bytes: spaces.
inline std::string probe_text(uint32_t length) { return std::string(length - std::min(length, extension_header), ' '); }
// The bytes of the whole frame; `text` is at most extension_text_max long, but for a probe's.
inline std::string write_extension(uint16_t noun, int32_t session, int32_t stream, const std::string &text) {
    ExtensionFrame frame = make<ExtensionFrame>(Type::extension);
    frame.start.length = static_cast<int32_t>(sizeof frame + text.size());
    frame.session = session;
    frame.stream = stream;
    frame.magic = extension_magic;
    frame.noun = noun;
    frame.text_length = static_cast<uint16_t>(text.size());
    return std::string(reinterpret_cast<const char *>(&frame), sizeof frame) + text;
}

// A process' question to another one of its machine that has the port of a stream: it wants to receive that stream. A number of
// readers means this at a receiver, since receivers tell it to senders only.
inline std::string write_question(int32_t stream) { return write_extension(extension_readers, 0, stream, "0"); }
inline bool is_question(const uint8_t *bytes, size_t length) {
    ExtensionFrame frame;
    if (length != sizeof frame + 1) return false;
    std::memcpy(&frame, bytes, sizeof frame);
    return frame.start.type == static_cast<uint16_t>(Type::extension) && frame.noun == extension_readers && frame.session == 0;
}

} // namespace penstock::wire
