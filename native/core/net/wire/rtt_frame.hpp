// RTTM, the measurement of a round trip: a receiver asks, the sender sends the timestamp back. A receiver also learns by it
// that the source of a stream really receives at its address.
#pragma once

#include "net/wire/wire.hpp"

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 |      40       | 0, flags, 6   |    session    |    stream     |
//    +---------------+---------------+---------------+---------------+
// 16 |         echo timestamp        |        reception delta        |
//    +---------------+---------------+---------------+---------------+
// 32 |          receiver id          |
//    +-------------------------------+
struct [[gnu::packed]] RttFrame {
    Start start;
    int32_t session;  // 8
    int32_t stream;   // 12
    int64_t echo;     // 16: returned unchanged
    int64_t delta;    // 24: how long the sender kept it, ns
    int64_t receiver; // 32
};
static_assert(sizeof(RttFrame) == 40 && offsetof(RttFrame, echo) == 16 && offsetof(RttFrame, receiver) == 32);

inline bool parse(const uint8_t *bytes, size_t length, RttFrame &frame) { return load(bytes, length, Type::rtt, frame); }

} // namespace penstock::wire
