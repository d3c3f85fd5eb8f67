// Page 0 of a channel's file, whatever its kind, and where the pages behind it begin. Words with one meaning for all kinds; a
// kind's own words are in an area that its layout file describes.
#pragma once

#include "ground/atomics.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock {

//   byte   0       4       8       12      16      20      24      28
//          +-------+-------+-------+-------+-------+-------+-------+-------+
//        0 | magic         |version| kind  | state |o_slots| open_size     |
//          +-------+-------+-------+-------+-------+-------+-------+-------+
//       32 | boot_id                       | created_ns    |  pid  |md_len |
//          +-------+-------+-------+-------+-------+-------+-------+-------+
//       64 | file_size     | epoch         | start_position| slots | 0     |
//          +-------+-------+-------+-------+-------+-------+-------+-------+
//       96 | 0                                                             |
//          +-------+-------+-------+-------+-------+-------+-------+-------+
//      128 | the kind's own words: LogWords, RingWords, FrameWords, PipeWords, …
//          +-------+-------+-------+-------+-------+-------+-------+-------+
//      256 | metadata: UTF-8 JSON, 3840 bytes
//          +---------------------------------------------------------------+
//     4096 | page 1: the kind's control words; its last 3088 bytes: Notes of an open channel
//          +---------------------------------------------------------------+
//     8192 | slots, each of the kind's size; behind them what the kind holds
//          +---------------------------------------------------------------+
//      end | LatencySlot x slots: latency.hpp
//
// Words from `file_size` to the end of the metadata mean nothing while `state` is open.

inline constexpr uint64_t magic = 0x4b434f54534e4550; // "PENSTOCK", little-endian
inline constexpr uint32_t layout_version = 4;

// The format's list of numbers. Nothing in this folder depends on which one a channel has: a kind's sizes are in its layout file.
enum class Kind : uint32_t { log = 1, ring = 2, sync = 3, pipe = 4, frames = 5, endpoint = 6 };

// A channel is open until its first publication decides it: open_channel.hpp.
enum class ChannelState : uint32_t { decided = 0, open = 1 };

// "Maker": the process that makes the file. "Decider": the maker of a decided file, or the first publication of an open one.
struct Header {
    Atomic<uint64_t> magic;   // 0: the maker, last, with release
    uint32_t layout_version;  // 8: the maker
    uint32_t kind;            // 12: the maker
    Atomic<uint32_t> state;   // 16: ChannelState; the decider, last, with release
    uint32_t open_slots;      // 20: slots that may be taken while it is open; the holder of the byte `opening`
    uint64_t open_size;       // 24: where the file ends while it is open; the maker
    uint8_t boot_id[16];      // 32: the decider
    int64_t created_ns;       // 48: the decider
    uint32_t creator_pid;     // 56: the decider
    uint32_t metadata_length; // 60: the decider
    uint64_t file_size;       // 64: the decider
    uint64_t epoch;           // 72: random; a channel made again under the same name has another; the decider
    int64_t start_position;   // 80: of the first message; the decider
    uint32_t slot_count;      // 88: participants at most; the decider
    uint8_t spare[36];        // 92
    uint8_t own[128];         // 128: the kind's own words; the decider
    char metadata[3840];      // 256: the decider
};
inline constexpr size_t metadata_max = sizeof(Header::metadata);
static_assert(sizeof(Header) == 4096 && alignof(Header) == 8);
static_assert(offsetof(Header, layout_version) == 8 && offsetof(Header, kind) == 12 && offsetof(Header, state) == 16);
static_assert(offsetof(Header, open_slots) == 20 && offsetof(Header, open_size) == 24 && offsetof(Header, boot_id) == 32);
static_assert(offsetof(Header, created_ns) == 48 && offsetof(Header, creator_pid) == 56);
static_assert(offsetof(Header, metadata_length) == 60 && offsetof(Header, file_size) == 64 && offsetof(Header, epoch) == 72);
static_assert(offsetof(Header, start_position) == 80 && offsetof(Header, slot_count) == 88 && offsetof(Header, own) == 128);
static_assert(offsetof(Header, metadata) == 256);

// The kind's own words in this header.
template <class Words> Words &own_words(Header *header) {
    static_assert(sizeof(Words) <= sizeof(Header::own) && alignof(Words) <= 8);
    return *reinterpret_cast<Words *>(header->own);
}
template <class Words> const Words &own_words(const Header *header) {
    static_assert(sizeof(Words) <= sizeof(Header::own) && alignof(Words) <= 8);
    return *reinterpret_cast<const Words *>(header->own);
}

inline constexpr size_t control_offset = sizeof(Header);
inline constexpr size_t slots_offset = control_offset + 4096;
inline constexpr uint32_t slot_count_max = 1024;

// What an open channel needs to know of its kind: open_channel.hpp. Each kind that may be open has one in its layout file.
struct KindLayout {
    Kind number;
    uint64_t slot_size;        // bytes of one participant's slot
    uint32_t slots_per_member; // 2: a member reads and writes
};

// Bytes of the file that processes hold kernel locks on, whatever the bytes say. The kernel frees a lock when its holder ends.
// The first byte of each slot belongs to the slot's owner. A kind's own lock bytes are in its layout file.
namespace lock_byte {
inline constexpr uint64_t opening = 16; // joining, leaving or deciding an open channel
} // namespace lock_byte

} // namespace penstock
