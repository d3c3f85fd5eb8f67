// The network log's datagrams, the part that all of them share: how a frame begins, its types, and how words are read.
// The bytes are those of Aeron's UDP transport. One header per noun has the rest. docs/design/network_log.md.
#pragma once

#include "ground/messages/frame_header.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace penstock::wire {

//    0                   1                   2                   3
//    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//   +---------------------------------------------------------------+
// 0 |                          frame length                         |
//   +---------------+---------------+-------------------------------+
// 4 |   version 0   |     flags     |             type              |
//   +---------------+---------------+-------------------------------+
struct [[gnu::packed]] Start {
    int32_t length;  // 0: header and payload, without the padding to 32
    uint8_t version; // 4
    uint8_t flags;   // 5
    uint16_t type;   // 6
};
static_assert(sizeof(Start) == 8 && offsetof(Start, version) == 4 && offsetof(Start, type) == 6);
static_assert(std::endian::native == std::endian::little); // words are copied as they lie in memory

enum class Type : uint16_t {
    pad = 0,
    data = 1,
    nak = 2,
    status = 3,
    error = 4,
    setup = 5,
    rtt = 6,
    resolution = 7,
    response_setup = 11,
    extension = 0xffff
};

inline constexpr uint8_t flag_end_of_stream = 0x20; // of data: no frame follows
inline constexpr uint8_t flag_send_setup = 0x80;    // of a status message
inline constexpr uint8_t flag_status_eos = 0x40;    // of a status message: the receiver has read the whole stream
inline constexpr uint8_t flag_reply = 0x80;         // of an RTT measurement: asks for one
inline constexpr uint8_t flag_group_tag = 0x08;     // of an error

inline constexpr size_t datagram_max = 65504; // the largest multiple of 32 that UDP over IPv4 carries
inline constexpr uint32_t mtu_min = header_length;
inline constexpr uint32_t mtu_default = 1408;

// The type of a datagram's first frame; false if it is none of this protocol's version.
inline bool parse_type(const uint8_t *bytes, size_t length, Type &type) {
    if (length < sizeof(Start) || length > datagram_max) return false;
    Start start;
    std::memcpy(&start, bytes, sizeof start);
    type = static_cast<Type>(uint16_t{start.type});
    return start.version == 0;
}

// The stream that a datagram says; false if its type has none. Nothing else of it is looked at.
inline bool stream_of(const uint8_t *bytes, size_t length, int32_t &stream) {
    Type type;
    if (!parse_type(bytes, length, type)) return false;
    const bool early = type == Type::rtt || type == Type::extension;
    if (!early && type != Type::data && type != Type::pad && type != Type::setup) return false;
    const size_t at = early ? 12 : 16;
    if (length < at + sizeof stream) return false;
    std::memcpy(&stream, bytes + at, sizeof stream);
    return true;
}

// A private copy of a frame of fixed size, once its length, version and type are right. A longer datagram is not such a frame:
// nothing that follows a frame is ever believed.
template <class Frame> bool load(const uint8_t *bytes, size_t length, Type type, Frame &frame) {
    if (length != sizeof(Frame)) return false;
    std::memcpy(&frame, bytes, sizeof frame);
    return frame.start.length == static_cast<int32_t>(sizeof(Frame)) && frame.start.version == 0 &&
           frame.start.type == static_cast<uint16_t>(type);
}
template <class Frame> Frame make(Type type, uint8_t flags = 0) {
    Frame frame{};
    frame.start = {static_cast<int32_t>(sizeof(Frame)), 0, flags, static_cast<uint16_t>(type)};
    return frame;
}
template <class Frame> const uint8_t *bytes_of(const Frame &frame) { return reinterpret_cast<const uint8_t *>(&frame); }

} // namespace penstock::wire
