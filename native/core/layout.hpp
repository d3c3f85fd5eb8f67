// Byte layout of a log channel's file: header, control words, slots, three terms. docs/design/term_log.md draws it.
// Every offset is asserted here; nothing else in the library spells one.
#pragma once

#include "atomics.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr size_t cache_line = 64;              // fixed by the format: files outlive the compiler's opinion
inline constexpr size_t cache_pair = 128;             // the adjacent-line prefetcher moves pairs
inline constexpr uint64_t magic = 0x4b434f54534e4550; // "PENSTOCK", little-endian
inline constexpr uint32_t layout_version = 1;

enum class Kind : uint32_t { log = 1, ring = 2, sync = 3, pipe = 4, frames = 5 };

// ---- frame header: 32 bytes, the same in the log, on the wire and in a recording (Aeron's data frame) ----
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
inline constexpr uint8_t flag_end_of_stream = 0x20;
inline constexpr uint8_t flags_whole = flag_begin | flag_end;
enum class FrameType : uint16_t { pad = 0, data = 1 };

constexpr uint64_t align_frame(uint64_t length) { return (length + frame_alignment - 1) & ~uint64_t{frame_alignment - 1}; }
constexpr uint64_t pack_word0(uint32_t length, uint8_t flags, FrameType type) {
    return uint64_t{length} | uint64_t{flags} << 40 | uint64_t{static_cast<uint16_t>(type)} << 48;
}
constexpr int32_t frame_length(uint64_t word0) { return static_cast<int32_t>(word0); }
constexpr uint8_t frame_flags(uint64_t word0) { return static_cast<uint8_t>(word0 >> 40); }
constexpr uint8_t frame_version(uint64_t word0) { return static_cast<uint8_t>(word0 >> 32); }
constexpr uint16_t frame_type(uint64_t word0) { return static_cast<uint16_t>(word0 >> 48); }

// ---- page 0: written once by the creator, before the file has a name ----
struct Header {
    Atomic<uint64_t> magic;   // 0: stored last, with release
    uint32_t layout_version;  // 8
    uint32_t kind;            // 12
    uint64_t file_size;       // 16
    uint64_t epoch;           // 24: random; a channel made anew under the same name has another
    uint8_t boot_id[16];      // 32
    uint32_t term_length;     // 48
    uint32_t window;          // 52
    int32_t initial_term_id;  // 56
    int32_t stream;           // 60
    uint32_t slot_count;      // 64
    uint32_t max_frame;       // 68: longest frame, header included
    int64_t start_position;   // 72: a multiple of term_length
    int64_t created_ns;       // 80
    uint32_t creator_pid;     // 88
    uint32_t metadata_length; // 92
    uint64_t start_sequence;  // 96: rings: the number of the first message
    uint64_t frame_bytes;     // 104: frames: bytes of one buffer
    uint32_t buffer_count;    // 112: frames
    uint8_t spare[140];       // 116
    char metadata[3840];      // 256: UTF-8 JSON
};
inline constexpr size_t metadata_max = 3840;
static_assert(sizeof(Header) == 4096 && offsetof(Header, metadata) == 256 && offsetof(Header, start_position) == 72);

template <class T> struct alignas(cache_pair) Paired {
    T value;
};

// ---- page 1: the words that everybody shares, a line pair each ----
struct Control {
    Paired<Atomic<uint64_t>> tail;      // 0: next free position; publications, by compare-and-swap
    Paired<Atomic<uint64_t>> limit;     // 128: claims end here; the holder of `lock`
    Paired<Atomic<uint64_t>> lock;      // 256: generation << 32 | slot + 1 of its holder, or 0
    Paired<Atomic<uint32_t>> data;      // 384: event: something was committed
    Paired<Atomic<uint32_t>> space;     // 512: event: a subscription moved on
    Paired<Atomic<uint32_t>> sessions;  // 640: next session id
    struct alignas(cache_pair) Totals { // 768: of slots already given back; the holder of `lock`
        Atomic<uint64_t> messages_sent, bytes_sent, messages_received, bytes_received, back_pressure, bytes_lost, repaired,
            dropped, reaped;
    } totals;
    uint8_t spare[4096 - 896];
};
static_assert(sizeof(Control) == 4096 && offsetof(Control, limit) == 128 && offsetof(Control, space) == 512);
static_assert(offsetof(Control, totals) == 768);
inline constexpr uint64_t refuses_to_wait = UINT64_MAX; // a subscription's drop_after_ns: writers fail instead of waiting for it

// ---- one participant: whoever holds the kernel lock on this slot's byte owns the slot ----
inline constexpr size_t claims_per_slot = 8;
inline constexpr uint64_t claim_idle = 0;
inline constexpr uint64_t claiming = 1;    // between deciding to claim and knowing where
inline constexpr uint64_t claim_taken = 2; // | position

enum class Role : uint32_t { none = 0, publication = 1, exclusive = 2, subscription = 3 };
enum class State : uint32_t { free = 0, active = 1, dropped = 2 };

struct Claim {
    Atomic<uint64_t> where;  // claim_idle, claiming, or position | claim_taken
    Atomic<uint64_t> length; // aligned bytes, valid while `where` names a position
};

struct Slot {
    struct alignas(cache_pair) Identity { // 0: the owner on attach; `state` also the holder of `lock`
        Atomic<uint32_t> state;
        Atomic<uint32_t> role;
        Atomic<uint32_t> generation; // grows with each owner, never goes down
        Atomic<uint32_t> pid;
        Atomic<uint32_t> session;
        Atomic<uint32_t> departed; // the owner in abandon(): stands for the order that the kernel's lock gives
        Atomic<uint64_t> joined_ns;
        Atomic<uint64_t> drop_after_ns; // 0: writers wait for this subscription
        Atomic<uint64_t> blocked_since; // the holder of `lock`: since when writers wait for it, ns
        Atomic<uint64_t> blocked_at;    // the holder of `lock`: its position then
        Atomic<uint64_t> name[8];       // sync queues: who it is, filled up with zeros; the owner on attach
    } identity;
    struct alignas(cache_pair) Reader { // 128: the owner
        Atomic<uint64_t> position;      // everything below may be cleaned
    } reader;
    struct alignas(cache_pair) Writer { // 256: the owner
        Claim claims[claims_per_slot];
    } writer;
    struct alignas(cache_pair) Counters { // 384: the owner; anyone may look
        Atomic<uint64_t> messages, bytes, back_pressure, bytes_lost, aborted, fragments;
    } counters;
};
static_assert(sizeof(Slot) == 512 && offsetof(Slot, reader) == 128 && offsetof(Slot, writer) == 256);
static_assert(offsetof(Slot, counters) == 384 && sizeof(Slot::Writer) == 128);

inline constexpr size_t control_offset = sizeof(Header);
inline constexpr size_t slots_offset = control_offset + sizeof(Control);
inline constexpr uint32_t term_length_min = platform::term_length_min;
inline constexpr uint32_t term_length_max = 1u << 30;
inline constexpr uint32_t slot_count_max = 1024;
inline constexpr uint32_t terms = 3;

constexpr uint64_t terms_offset(uint64_t slot_count) {
    return (slots_offset + slot_count * sizeof(Slot) + 4095) & ~uint64_t{4095};
}
constexpr uint64_t log_file_size(uint64_t slot_count, uint64_t term_length) {
    return terms_offset(slot_count) + terms * term_length;
}

} // namespace penstock
