// Byte layout of a log channel's file: its words of the header, control words, slots, three terms. docs/design/term_log.md.
// Every offset is asserted here; nothing else in the library spells one.
#pragma once

#include "ground/cache_line.hpp"
#include "ground/files/channel_header.hpp"
#include "ground/files/latency.hpp"
#include "ground/members/deaths.hpp"
#include "log/files/last_layout.hpp"

namespace penstock {

//     page 0       Header, with LogWords
//     4096         Control
//     8192         Slot × slot_count
//     next page    three terms of term_length bytes; position p lies in term p / term_length mod 3
//     behind them  a sync queue's: MemberEvents; of a log that keeps last values: LastWords, last_layout.hpp
//     at the end   LatencySlot × slot_count

// ---- the header's own words of a log, or of a sync queue; the decider ----
struct LogWords {
    uint32_t term_length;    // 0
    uint32_t capacity;       // 4: bytes that writers may be ahead of the slowest subscription
    uint32_t max_frame;      // 8: longest frame, header included; messages that do not fit go out in fragments
    int32_t initial_term_id; // 12
    int32_t stream;          // 16
    uint32_t last_keys;      // 20: of last values at most; 0: none are kept
    uint32_t last_max;       // 24: bytes of a kept message at most
};
static_assert(sizeof(LogWords) == 28 && offsetof(LogWords, capacity) == 4 && offsetof(LogWords, max_frame) == 8);
static_assert(offsetof(LogWords, initial_term_id) == 12 && offsetof(LogWords, stream) == 16);
static_assert(offsetof(LogWords, last_keys) == 20 && offsetof(LogWords, last_max) == 24);

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
            dropped;
    } totals;
    Paired<Atomic<uint64_t>> session_end; // 896: where its session ends, and how; of an image the owner of its socket
    uint8_t spare[4096 - 1024];
};
static_assert(sizeof(Control) == 4096 && offsetof(Control, limit) == 128 && offsetof(Control, space) == 512);
static_assert(offsetof(Control, totals) == 768 && offsetof(Control, session_end) == 896);
// The end of a session on the network: a position, and how it ended in the bits that a position does not use.
struct SessionEnd {
    enum class How : uint64_t { open = 0, closed = 1, lost = 2 }; // closed: its sender said so. lost: it fell silent before
    How how = How::open;
    uint64_t position = 0; // of no meaning while it is open

    static const char *name_of(How how) { return how == How::open ? "open" : how == How::closed ? "closed" : "lost"; }
    uint64_t word() const { return how == How::open ? 0 : position | static_cast<uint64_t>(how); }
    static SessionEnd of(uint64_t word) { return {static_cast<How>(word & 3), word & ~uint64_t{frame_alignment - 1}}; }
};
inline constexpr uint64_t refuses_to_wait = UINT64_MAX; // a subscription's drop_after_ns: writers fail instead of waiting for it

// ---- one participant: the holder of the kernel lock on this slot's byte owns the slot ----
inline constexpr size_t claims_per_slot = 8;
inline constexpr uint64_t claim_idle = 0;
inline constexpr uint64_t claiming = 1;    // between deciding to claim and knowing where
inline constexpr uint64_t claim_taken = 2; // | position

enum class Role : uint32_t { none = 0, publication = 1, exclusive = 2, subscription = 3 };
enum class State : uint32_t { free = 0, active = 1, dropped = 2 };

struct ClaimRecord {
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
        Atomic<uint32_t> departed; // the owner in crash_for_test(): stands for the order that the kernel's lock gives
        Atomic<uint64_t> joined_ns;
        Atomic<uint64_t> drop_after_ns; // 0: writers wait for this subscription
        Atomic<uint64_t> blocked_since; // the holder of `lock`: since when writers wait for it, ns
        Atomic<uint64_t> blocked_at;    // the holder of `lock`: its position then
        Atomic<uint64_t> name[8];       // sync queues: the member's name, filled up with zeros; the owner on attach
    } identity;
    struct alignas(cache_pair) Reader { // 128: the owner
        Atomic<uint64_t> position;      // everything below may be cleaned
    } reader;
    struct alignas(cache_pair) Writer { // 256: the owner
        ClaimRecord claims[claims_per_slot];
    } writer;
    struct alignas(cache_pair) Counters { // 384: the owner; anyone may look
        Atomic<uint64_t> messages, bytes, back_pressure, bytes_lost, aborted, fragments;
        Deaths deaths;         // of all owners; the holder of the slot's byte
        Atomic<uint64_t> wait; // a WaitNote
    } counters;
};
static_assert(sizeof(Slot) == 512 && offsetof(Slot, reader) == 128 && offsetof(Slot, writer) == 256);
static_assert(offsetof(Slot, counters) == 384 && sizeof(Slot::Writer) == 128 && offsetof(Slot, counters.wait) == 440);
inline constexpr KindLayout log_kind{Kind::log, sizeof(Slot), 1}, sync_kind{Kind::sync, sizeof(Slot), 2};

namespace lock_byte {
inline constexpr uint64_t life = 8; // sync: shared by processes that join, exclusive to one that removes the file
} // namespace lock_byte

// ---- a sync queue's: the members that read and came or went last; the holder of `lock` ----
inline constexpr uint32_t member_events_max = 256;
struct MemberEvent {
    Atomic<uint64_t> words[10]; // a MemberChange
};
template <uint32_t N> struct MemberEventTable {
    Paired<Atomic<uint64_t>> count; // of all events that there were; the next one goes to last[count % N]
    MemberEvent last[N];            // 128
};
using MemberEvents = MemberEventTable<member_events_max>;
static_assert(sizeof(MemberEvent) == 80 && offsetof(MemberEvents, last) == 128);
static_assert(sizeof(MemberEvents) == 128 + 80 * member_events_max);

inline constexpr uint32_t term_length_min = platform::term_length_min;
inline constexpr uint32_t term_length_max = 1u << 30;
inline constexpr uint32_t terms = 3;

constexpr uint64_t terms_offset(uint64_t slot_count) {
    return (slots_offset + slot_count * sizeof(Slot) + 4095) & ~uint64_t{4095};
}
// Whole pages, and nothing else is in them: a subscription maps them to be read only.
static_assert(terms_offset(2) % 4096 == 0 && terms_offset(slot_count_max) % 4096 == 0);
static_assert(terms * uint64_t{64 * 1024} % 4096 == 0);
constexpr uint64_t events_offset(uint64_t slot_count, uint64_t term_length) {
    return terms_offset(slot_count) + terms * term_length;
}
constexpr uint64_t log_file_size(uint64_t slot_count, uint64_t term_length, Kind kind = Kind::log, LastShape last = {}) {
    return events_offset(slot_count, term_length) + (kind == Kind::sync ? sizeof(MemberEvents) : last.size()) +
           latency_size(slot_count);
}

} // namespace penstock
