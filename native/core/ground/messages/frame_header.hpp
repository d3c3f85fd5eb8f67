// A frame's header: 32 bytes, the same in a log, on the wire and in a recording. It is the header of Aeron's data frame.
#pragma once

#include "ground/atomics.hpp"
#include "ground/error.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock {

struct FrameHeader {
    Atomic<uint64_t> word0; // 0: i32 length | 4: u8 version | 5: u8 flags | 6: i16 type; the commit word
    uint32_t term_offset;   // 8
    int32_t session;        // 12
    int32_t stream;         // 16
    int32_t term_id;        // 20
    int64_t reserved;       // 24: send time, nanoseconds since the epoch
};
static_assert(sizeof(FrameHeader) == 32 && offsetof(FrameHeader, session) == 12);
static_assert(offsetof(FrameHeader, term_id) == 20 && offsetof(FrameHeader, reserved) == 24);

inline constexpr uint32_t header_length = 32;
inline constexpr uint32_t frame_alignment = 32;
inline constexpr uint8_t flag_begin = 0x80;
inline constexpr uint8_t flag_end = 0x40;
inline constexpr uint8_t flags_whole = flag_begin | flag_end;
inline constexpr uint8_t flag_lost = 0x08; // of padding, in an image only: it stands for what was lost on the way
enum class FrameType : uint16_t { pad = 0, data = 1 };

constexpr uint64_t align_frame(uint64_t length) { return (length + frame_alignment - 1) & ~uint64_t{frame_alignment - 1}; }
constexpr uint64_t pack_word0(uint32_t length, uint8_t flags, FrameType type) {
    return uint64_t{length} | uint64_t{flags} << 40 | uint64_t{static_cast<uint16_t>(type)} << 48;
}
constexpr int32_t frame_length(uint64_t word0) { return static_cast<int32_t>(word0); }
constexpr uint8_t frame_flags(uint64_t word0) { return static_cast<uint8_t>(word0 >> 40); }
constexpr uint8_t frame_version(uint64_t word0) { return static_cast<uint8_t>(word0 >> 32); }
constexpr uint16_t frame_type(uint64_t word0) { return static_cast<uint16_t>(word0 >> 48); }

// A position from shared memory at which no frame can begin.
[[noreturn]] inline void throw_no_frame(const std::string &where, uint64_t position) {
    throw Error(Code::corrupt, where + ": no frame can begin at position " + std::to_string(position) +
                                   ": the shared memory was overwritten by something else");
}

} // namespace penstock
