// SM, the status message: how far a receiver has consumed, and how much more it takes.
#pragma once

#include "net/wire/wire.hpp"

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 |   36 or 44    | 0, flags, 3   |    session    |    stream     |
//    +---------------+---------------+---------------+---------------+
// 16 |   term id     |  term offset  |    window     |  receiver id
//    +---------------+---------------+---------------+---------------+
// 32    (8 bytes)    |   group tag, 8 bytes, if length is 44 |
//    +---------------+-------------------------------+
struct [[gnu::packed]] StatusFrame {
    Start start;
    int32_t session;     // 8
    int32_t stream;      // 12
    int32_t term_id;     // 16: with the offset, the position up to which everything is consumed
    int32_t term_offset; // 20
    int32_t window;      // 24
    int64_t receiver;    // 28
    int64_t group_tag;   // 36
};
static_assert(sizeof(StatusFrame) == 44 && offsetof(StatusFrame, term_id) == 16 && offsetof(StatusFrame, window) == 24);
static_assert(offsetof(StatusFrame, receiver) == 28 && offsetof(StatusFrame, group_tag) == 36);
inline constexpr size_t status_length = 36, tagged_status_length = 44;

// A request for SETUP has no position; its other words are as the peer left them.
inline bool parse(const uint8_t *bytes, size_t length, StatusFrame &frame, bool &tagged) {
    if (length != status_length && length != tagged_status_length) return false;
    frame = {};
    std::memcpy(&frame, bytes, length);
    tagged = length == tagged_status_length;
    return frame.start.length == static_cast<int32_t>(length) && frame.start.version == 0 &&
           frame.start.type == static_cast<uint16_t>(Type::status) &&
           ((frame.start.flags & flag_send_setup) != 0 ||
            (frame.window >= 0 && frame.term_offset >= 0 && frame.term_offset % static_cast<int32_t>(frame_alignment) == 0));
}

} // namespace penstock::wire
