// ERR: a receiver says that it has rejected the image, and why.
#pragma once

#include "net/wire/wire.hpp"

#include <string>

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 |  40 + text    | 0, flags, 4   |    session    |    stream     |
//    +---------------+---------------+---------------+---------------+
// 16 |          receiver id          |           group tag           |
//    +---------------+---------------+---------------+---------------+
// 32 |     code      |  text length  |  text, up to 1023 bytes …
//    +---------------+---------------+
struct [[gnu::packed]] ErrorFrame {
    Start start;
    int32_t session;     // 8
    int32_t stream;      // 12
    int64_t receiver;    // 16
    int64_t group_tag;   // 24: valid with flag_group_tag
    int32_t code;        // 32
    int32_t text_length; // 36
};
static_assert(sizeof(ErrorFrame) == 40 && offsetof(ErrorFrame, receiver) == 16 && offsetof(ErrorFrame, text_length) == 36);
inline constexpr size_t error_text_max = 1023;

// The text is for people: bytes that are not printable ASCII become question marks.
inline bool parse(const uint8_t *bytes, size_t length, ErrorFrame &frame, std::string &text) {
    if (length < sizeof frame || length > sizeof frame + error_text_max) return false;
    std::memcpy(&frame, bytes, sizeof frame);
    if (frame.start.version != 0 || frame.start.type != static_cast<uint16_t>(Type::error)) return false;
    if (frame.start.length != static_cast<int32_t>(length) || frame.text_length < 0) return false;
    if (static_cast<size_t>(frame.text_length) != length - sizeof frame) return false;
    text.assign(reinterpret_cast<const char *>(bytes) + sizeof frame, length - sizeof frame);
    for (char &letter : text)
        if (letter < ' ' || letter > '~') letter = '?';
    return true;
}

} // namespace penstock::wire
