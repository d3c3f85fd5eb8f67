// SETUP: a sender names its session and the geometry of its log, and where a receiver joins.
#pragma once

#include "net/wire/wire.hpp"

namespace penstock::wire {

//     0               4               8               12
//    +---------------+---------------+---------------+---------------+
//  0 |      40       | 0, flags, 5   |  term offset  |    session    |
//    +---------------+---------------+---------------+---------------+
// 16 |    stream     |initial term id| active term id|  term length  |
//    +---------------+---------------+---------------+---------------+
// 32 |      MTU      |      TTL      |
//    +---------------+---------------+
struct [[gnu::packed]] SetupFrame {
    Start start;
    int32_t term_offset;     // 8: with the active term id, where a receiver joins
    int32_t session;         // 12
    int32_t stream;          // 16
    int32_t initial_term_id; // 20
    int32_t active_term_id;  // 24
    int32_t term_length;     // 28
    int32_t mtu;             // 32
    int32_t ttl;             // 36
};
static_assert(sizeof(SetupFrame) == 40 && offsetof(SetupFrame, session) == 12 && offsetof(SetupFrame, initial_term_id) == 20);
static_assert(offsetof(SetupFrame, term_length) == 28 && offsetof(SetupFrame, ttl) == 36);

inline constexpr uint32_t setup_term_length_max = 1u << 30;

inline bool parse(const uint8_t *bytes, size_t length, SetupFrame &frame) {
    if (!load(bytes, length, Type::setup, frame)) return false;
    const auto term_length = static_cast<uint32_t>(frame.term_length), mtu = static_cast<uint32_t>(frame.mtu);
    const auto offset = static_cast<uint32_t>(frame.term_offset);
    return term_length >= platform::term_length_min && term_length <= setup_term_length_max && std::has_single_bit(term_length) &&
           offset < term_length && offset % frame_alignment == 0 && mtu >= mtu_min && mtu <= datagram_max &&
           mtu % frame_alignment == 0 && frame.ttl >= 0 && frame.ttl <= 255;
}

} // namespace penstock::wire
