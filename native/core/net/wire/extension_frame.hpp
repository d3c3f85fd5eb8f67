// EXT: what Penstock peers tell each other beside the protocol, such as the stream's codec. Other drivers ignore the type.
#pragma once

#include "net/wire/wire.hpp"

#include <charconv>
#include <string>

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 |  24 + text    | 0, flags, −1  |    session    |    stream     |
//    +---------------+---------------+---------------+---------------+
// 16 | "PNST"        | noun  | length|  text, up to 1024 bytes …
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
inline constexpr size_t extension_text_max = 1024;
inline constexpr uint32_t extension_header = sizeof(ExtensionFrame);

inline bool parse(const uint8_t *bytes, size_t length, ExtensionFrame &frame, std::string &text) {
    if (length < sizeof frame || length > sizeof frame + extension_text_max) return false;
    std::memcpy(&frame, bytes, sizeof frame);
    if (frame.start.version != 0 || frame.start.type != static_cast<uint16_t>(Type::extension)) return false;
    if (frame.start.length != static_cast<int32_t>(length) || frame.magic != extension_magic) return false;
    if (frame.noun < extension_description || frame.noun > extension_round_trip) return false;
    if (frame.text_length != length - sizeof frame) return false;
    text.assign(reinterpret_cast<const char *>(bytes) + sizeof frame, length - sizeof frame);
    return true;
}
// A text of digits as a number; false for any other text.
inline bool read_number(const std::string &text, uint32_t &number) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    return failed == std::errc() && end == text.data() + text.size();
}
// The bytes of the whole frame; `text` is at most extension_text_max long.
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
