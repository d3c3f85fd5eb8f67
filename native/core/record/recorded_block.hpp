// Checks a recorded block and finds its frames, in one walk. Believes no byte that the block's checksum does not cover.
#pragma once

#include "ground/messages/frame_header.hpp"
#include "record/recording.hpp"

#include <cstring>
#include <optional>

namespace penstock {

// Walks the frames of a block. Returns where it stopped: the block's length, unless bytes there are not a frame.
// `visit(word0, at)`, with the frame's offset in the block.
template <class Visit> uint64_t walk_frames(const uint8_t *bytes, const IndexEntry &entry, uint32_t term_length, Visit &&visit) {
    uint64_t at = 0;
    uint64_t left = UINT64_MAX; // in the term
    if (term_length != 0) left = term_length - static_cast<uint64_t>(entry.position) % term_length;
    while (at < entry.length) {
        uint64_t word0 = 0;
        if (entry.length - at >= header_length) std::memcpy(&word0, bytes + at, sizeof word0);
        const int32_t length = frame_length(word0);
        const uint64_t step = align_frame(static_cast<uint32_t>(length));
        if (length < static_cast<int32_t>(header_length) || step > entry.length - at || step > left ||
            frame_type(word0) > static_cast<uint16_t>(FrameType::data))
            return at;
        visit(word0, at);
        at += step;
        left -= step;
        if (left == 0) left = term_length;
    }
    return at;
}

// What is wrong with a block, and which bytes of its segment are concerned.
struct BlockDamage {
    uint64_t offset, length;
    std::string what;
};

inline BlockDamage describe_wrong_sum(const uint8_t *bytes, const IndexEntry &entry, uint32_t found, uint64_t offset) {
    BlockDamage damage{offset, entry.length,
                       "the checksum of the block at position " + std::to_string(entry.position) + " is wrong"};
    ByteError error;
    if (find_byte_error(found, entry.block_crc, entry.length, error)) {
        damage.offset = offset + error.offset;
        damage.length = 1;
        damage.what += ": byte " + std::to_string(damage.offset) + " alone explains it (it is " +
                       std::to_string(bytes[error.offset]) + ", was " + std::to_string(bytes[error.offset] ^ error.change) + ")";
    }
    return damage;
}

// Walks the block at `offset` of its segment: nothing if every byte is what was written. `visit`: as of walk_frames; what it was
// told counts only if nothing is wrong.
template <class Visit>
std::optional<BlockDamage> check_block(const uint8_t *bytes, const IndexEntry &entry, uint64_t offset, uint32_t term_length,
                                       Visit &&visit) {
    const uint32_t found = crc32c(bytes, entry.length);
    if (found != entry.block_crc) return describe_wrong_sum(bytes, entry, found, offset);
    const uint64_t walked = walk_frames(bytes, entry, term_length, visit);
    if (walked == entry.length) return std::nullopt;
    return BlockDamage{offset, entry.length,
                       "no frame begins at byte " + std::to_string(offset + walked) + " (position " +
                           std::to_string(static_cast<uint64_t>(entry.position) + walked) + ")"};
}

} // namespace penstock
