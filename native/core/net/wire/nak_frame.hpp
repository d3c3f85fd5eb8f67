// NAK: a receiver asks for one gap again, inside one term.
#pragma once

#include "net/wire/wire.hpp"

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 |      28       | 0, flags, 2   |    session    |    stream     |
//    +---------------+---------------+---------------+---------------+
// 16 |   term id     |  term offset  |    length     |
//    +---------------+---------------+---------------+
struct [[gnu::packed]] NakFrame {
    Start start;
    int32_t session;     // 8
    int32_t stream;      // 12
    int32_t term_id;     // 16
    int32_t term_offset; // 20
    int32_t length;      // 24
};
static_assert(sizeof(NakFrame) == 28 && offsetof(NakFrame, term_id) == 16 && offsetof(NakFrame, length) == 24);

inline bool parse(const uint8_t *bytes, size_t length, NakFrame &frame) {
    constexpr auto alignment = static_cast<int32_t>(frame_alignment);
    return load(bytes, length, Type::nak, frame) && frame.term_offset >= 0 && frame.length > 0 &&
           frame.term_offset % alignment == 0 && frame.length % alignment == 0;
}

} // namespace penstock::wire
