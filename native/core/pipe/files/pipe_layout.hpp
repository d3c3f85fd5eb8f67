// Byte layout of a pipe channel's file: the peers, the pipes between them, their bytes. docs/design/shm_pipe.md draws it.
#pragma once

#include "ground/cache_line.hpp"
#include "ground/files/channel_file.hpp"
#include "ground/files/latency.hpp"
#include "ground/files/open_channel.hpp"
#include "ground/members/deaths.hpp"
#include "ground/messages/frame_header.hpp"

namespace penstock {

//     page 0       Header, with PipeWords; slot_count is the number of peers at most
//     4096         PipeControl
//     8192         PeerSlot × slot_count
//     behind them  PipeLink × max_pipes
//     next page    the pipes' circles, `capacity` bytes each
//     behind them  LatencySlot × slot_count

// ---- the header's own words of a pipe channel; the decider ----
struct PipeWords {
    uint32_t capacity;     // 0: bytes of one pipe
    uint32_t max_messages; // 4: messages that one pipe holds at most: the high-water mark
    uint32_t max_pipes;    // 8: pipes at most
};
static_assert(sizeof(PipeWords) == 12 && offsetof(PipeWords, max_messages) == 4 && offsetof(PipeWords, max_pipes) == 8);

// ---- page 1 ----
struct PipeControl {
    Paired<Atomic<uint64_t>> lock;      // 0: the peer that changes the table: generation << 32 | slot + 1, or 0
    Paired<Atomic<uint32_t>> changes;   // 128: grows when peers or pipes appear, disappear or change owner; the holder of `lock`
    struct alignas(cache_pair) Totals { // 256: of peers that are gone; the holder of `lock`
        Atomic<uint64_t> messages_sent, bytes_sent, messages_received, bytes_received, back_pressure, messages_dropped,
            messages_lost, returned;
        Atomic<uint64_t> written, read; // bytes of pipes, as positions count them
        Atomic<uint64_t> bytes_dropped, bytes_lost, redelivered;
    } totals;
    Paired<Atomic<uint32_t>> pushed; // 384: 1 once a peer has joined to push; the holder of `lock`
    uint8_t spare[4096 - 512];
};
static_assert(sizeof(PipeControl) == 4096 && offsetof(PipeControl, changes) == 128 && offsetof(PipeControl, totals) == 256);
static_assert(offsetof(PipeControl, pushed) == 384);

enum class PeerRole : uint32_t {
    none = 0,
    push = 1,
    pull = 2,
    pair = 3,
    request = 4,
    reply = 5,
    dealer = 6,
    router = 7,
    tap = 8
};

// Whether one of the first role sends to one of the second.
constexpr bool sends_to(PeerRole from, PeerRole to) {
    if (to == PeerRole::tap) return from != PeerRole::none && from != PeerRole::pull && from != PeerRole::tap;
    switch (from) {
    case PeerRole::push:
        return to == PeerRole::pull;
    case PeerRole::pair:
        return to == PeerRole::pair;
    case PeerRole::request:
        return to == PeerRole::reply;
    case PeerRole::reply:
        return to == PeerRole::request;
    case PeerRole::dealer:
        return to == PeerRole::router;
    case PeerRole::router:
        return to == PeerRole::dealer;
    default:
        return false;
    }
}

// Whether peers of that role end when all that could answer have left. Servers and pushers wait for the next peer.
constexpr bool ends_with_partner(PeerRole role) {
    return role == PeerRole::pair || role == PeerRole::dealer || role == PeerRole::request;
}

// Whether the two can be on one channel.
constexpr bool are_compatible(PeerRole one, PeerRole other) {
    return one == other || one == PeerRole::tap || other == PeerRole::tap || sends_to(one, other) || sends_to(other, one);
}
constexpr bool reads_only(PeerRole role) { return role == PeerRole::pull || role == PeerRole::tap; }
constexpr const char *role_name(PeerRole role) {
    constexpr const char *names[] = {"none", "push", "pull", "pair", "request", "reply", "dealer", "router", "tap"};
    return names[static_cast<uint32_t>(role) < 9 ? static_cast<uint32_t>(role) : 0];
}

// A peer's participant_id in 32 bits, for messages; reused after a million owners.
constexpr int32_t session_of(uint64_t peer) { return static_cast<int32_t>((peer >> 32 & 0xfffff) << 11 | (peer & 0x7ff)); }

// ---- one peer: the holder of the kernel lock on this slot's byte owns the slot ----
struct PeerSlot {
    struct alignas(cache_pair) Identity { // 0: the owner as it joins; `state` also the holder of `lock`
        Atomic<uint32_t> state;           // 1 while it is there
        Atomic<uint32_t> role;
        Atomic<uint32_t> generation; // grows with each owner
        Atomic<uint32_t> pid;
        Atomic<uint64_t> joined_ns;
        Atomic<uint64_t> name[8]; // filled up with zeros
        Atomic<uint32_t> lossy;   // its messages may be dropped, the oldest first; a tap: writers do not wait for it
        Atomic<uint32_t> met;     // 1 once a peer that it exchanges messages with has been there; the holder of `lock`
        Atomic<uint32_t> begun;   // a puller: 1 once it has looked for a message; the holder of `lock`
    } identity;
    struct alignas(cache_pair) Bell { // 128: any peer that has news for the owner
        Atomic<uint32_t> event;
    } bell;
    struct alignas(cache_pair) Counters { // 256: the owner; anyone may look
        Atomic<uint64_t> messages_sent, bytes_sent, messages_received, bytes_received, back_pressure, messages_dropped,
            redelivered;
        Atomic<uint64_t> written, read; // bytes of pipes: the positions of the owner's two handles
        Atomic<uint64_t> bytes_dropped; // bytes of the frames of dropped messages
        Deaths deaths;                  // of all owners; the holder of the slot's byte
        Atomic<uint64_t> wait;          // a WaitNote
    } counters;
    uint8_t spare[cache_pair];
};
static_assert(sizeof(PeerSlot) == 512 && offsetof(PeerSlot, bell) == 128 && offsetof(PeerSlot, counters) == 256 &&
              offsetof(PeerSlot, counters.wait) == 344);
inline constexpr KindLayout pipe_kind{Kind::pipe, sizeof(PeerSlot), 1};

// ---- one pipe: one writer, one reader ----
struct PipeLink {
    struct alignas(cache_pair) Ends { // 0: the holder of `lock`
        Atomic<uint32_t> state;       // 1 while it is a pipe
        Atomic<uint32_t> pattern;     // the writer's role; tap: copies of what it writes, for a recorder
        Atomic<uint64_t> from, to;    // generation << 32 | slot + 1; 0: none yet
        Atomic<uint64_t> held;        // messages before this position were given to a reader that died with them
        Atomic<uint32_t> lossy;       // the writer drops the oldest: so the reader claims each message
        Atomic<uint32_t> role;        // the writer's
        Atomic<uint64_t> name[8];     // the writer's, filled up with zeros
    } ends;
    struct alignas(cache_pair) Writer { // 128: the writer
        Atomic<uint64_t> tail;          // everything before it may be read
        Atomic<uint64_t> messages;      // messages in these bytes
        Atomic<uint64_t> dropped;       // messages, the oldest, dropped unread
        Atomic<uint32_t> closed;        // 1: there will be no more
        Atomic<uint64_t> refused;       // messages that were dropped before they were written: the reader held all room
    } writer;
    struct alignas(cache_pair) Reader { // 256: the reader
        Atomic<uint64_t> acked;         // everything before it may be overwritten
        Atomic<uint64_t> messages;      // messages in these bytes
        Atomic<uint64_t> read;          // everything before it was given to the reader's owner; a lossy writer moves it too
    } reader;
    uint8_t spare[cache_pair];
};
static_assert(sizeof(PipeLink) == 512 && offsetof(PipeLink, writer) == 128 && offsetof(PipeLink, reader) == 256);

// Bytes that a message takes in a pipe, and by which it moves positions.
inline uint64_t frame_bytes(uint64_t length) { return align_frame(length + header_length); }

// Bytes in a pipe that its reader's owner has not received, if that is this peer.
inline uint64_t unread_in(const PipeLink &link, uint64_t reader) {
    if (link.ends.state.relaxed() != 1 || link.ends.to.relaxed() != reader) return 0;
    const uint64_t read = link.reader.read.relaxed(), tail = link.writer.tail.relaxed();
    return tail > read ? tail - read : 0;
}

// Messages in a pipe that its reader has not acknowledged. A guess while its ends move.
inline uint64_t unread_messages_in(const PipeLink &link) {
    const uint64_t read = link.reader.messages.relaxed(), there = link.writer.messages.relaxed();
    return there > read ? there - read : 0;
}

inline constexpr uint32_t peer_count_max = 1024;
inline constexpr uint32_t link_count_max = 4096;
inline constexpr uint32_t pipe_capacity_max = 1u << 30;

struct PipeGeometry {
    uint32_t capacity = 512 * 1024; // bytes of one pipe
    uint32_t max_members = 32, max_pipes = 64;
    uint32_t max_messages = 1000; // messages that one pipe holds at most: the high-water mark
    uint64_t start_position = 0;
    uint64_t epoch = 0;
    uint64_t links_offset() const { return slots_offset + uint64_t{max_members} * sizeof(PeerSlot); }
    uint64_t data_offset() const { return (links_offset() + uint64_t{max_pipes} * sizeof(PipeLink) + 4095) & ~uint64_t{4095}; }
    uint64_t file_size() const { return data_offset() + uint64_t{max_pipes} * capacity + latency_size(max_members); }
    uint32_t max_frame() const { return capacity / 2; }
};

inline void check_geometry(const PipeGeometry &g, Code code) {
    auto need = [&](bool fine, const std::string &what) {
        if (!fine) throw Error(code, what);
    };
    need(g.capacity >= platform::pipe_capacity_min && g.capacity <= pipe_capacity_max && (g.capacity & (g.capacity - 1)) == 0,
         "capacity is " + std::to_string(g.capacity) + ": it must be a power of two from " +
             std::to_string(platform::pipe_capacity_min) + " to 1073741824");
    need(g.max_members >= 2 && g.max_members <= peer_count_max,
         "max_members is " + std::to_string(g.max_members) + ": it must be from 2 to 1024");
    need(g.max_pipes >= 1 && g.max_pipes <= link_count_max,
         "max_pipes is " + std::to_string(g.max_pipes) + ": it must be from 1 to 4096");
    need(g.max_messages >= 1, "max_messages is 0: a pipe has to hold at least 1 message");
    need(g.start_position % g.capacity == 0 && g.start_position < (uint64_t{1} << 63) - 16 * uint64_t{pipe_capacity_max},
         "start_position is " + std::to_string(g.start_position) + ": it must be a multiple of the capacity below 2^63");
}

// The words of a pipe channel's header. The decider calls it.
inline void fill_pipe(Header *header, const PipeGeometry &g) {
    header->epoch = g.epoch;
    header->slot_count = g.max_members;
    header->start_position = static_cast<int64_t>(g.start_position);
    own_words<PipeWords>(header) = {.capacity = g.capacity, .max_messages = g.max_messages, .max_pipes = g.max_pipes};
}

// Fills a new file that no other process can open yet. The file must have its full, allocated, zeroed size.
inline void format_pipe(int fd, const PipeGeometry &g, const std::string &metadata, const uint8_t boot_id[16],
                        int64_t created_ns) {
    check_geometry(g, Code::invalid);
    if (size_of_file(fd) != g.file_size()) throw Error(Code::invalid, "the new file has the wrong size");
    const Mapping map(fd, g.file_size(), true);
    Header *header = begin_header(map, Kind::pipe, metadata, boot_id, created_ns);
    fill_pipe(header, g);
    header->magic.release(magic); // SYNC 0: pairs with find_header; forbids the magic being visible before the rest
}

struct OpenedPipe : OpenedChannel {
    PipeGeometry geometry;
};

// Reads each header word once and believes none of it unchecked. Changes nothing.
inline OpenedPipe read_pipe_header(const uint8_t *bytes, uint64_t size, const std::string &where) {
    const Header *header = find_header(bytes, size, where, Kind::pipe);
    refuse_open(header, where);
    OpenedPipe pipe;
    PipeGeometry &g = pipe.geometry;
    const PipeWords own = own_words<PipeWords>(header);
    g.capacity = own.capacity;
    g.max_messages = own.max_messages;
    g.max_pipes = own.max_pipes;
    g.max_members = header->slot_count;
    g.start_position = static_cast<uint64_t>(header->start_position);
    g.epoch = header->epoch;
    check_header(where, [&] { check_geometry(g, Code::corrupt); });
    check_size(header, g.file_size(), size, where);
    read_common(header, where, pipe);
    return pipe;
}

inline void decide_pipe(const Mapping &map, const OpenPart &part, const PipeGeometry &g, const std::string &metadata,
                        const uint8_t boot_id[16], int64_t created_ns) {
    clear_behind(map, part, g.max_members);
    Header *header = begin_header(map, part.kind.number, metadata, boot_id, created_ns);
    fill_pipe(header, g);
    decided(map);
    for (uint32_t i = 0; i < g.max_members; ++i) {
        auto *slot = reinterpret_cast<PeerSlot *>(map.bytes() + slots_offset + size_t{i} * sizeof(PeerSlot));
        event_notify(slot->bell.event);
    }
}

} // namespace penstock
