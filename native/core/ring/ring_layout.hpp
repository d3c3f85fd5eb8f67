// Byte layout of a ring channel's file: header, control words, slots, one circle of frames. docs/design/ring.md draws it.
#pragma once

#include "ground/cache_line.hpp"
#include "ground/files/channel_file.hpp"
#include "ground/files/latency.hpp"
#include "ground/files/open_channel.hpp"
#include "ground/members/deaths.hpp"
#include "ground/messages/frame_header.hpp"

namespace penstock {

//     page 0       Header, with RingWords (a frames channel: FrameWords)
//     4096         RingControl
//     8192         RingSlot × slot_count
//     next page    the circle, `capacity` bytes of RingFrames and payloads; position p lies at p mod capacity
//     behind it    LatencySlot × slot_count

// ---- the header's own words of a ring; the decider ----
struct RingWords {
    uint32_t capacity;       // 0: bytes of the circle
    uint32_t unused;         // 4
    uint64_t start_sequence; // 8: the number of the first message
};
static_assert(sizeof(RingWords) == 16 && offsetof(RingWords, start_sequence) == 8);

// ---- frame header: 32 bytes. Every word may be overwritten while it is read, so every word is atomic ----
struct RingFrame {
    Atomic<uint64_t> word0;    // 0: as FrameHeader::word0; 0 while nothing is here; the commit word
    Atomic<uint64_t> sequence; // 8: messages before this one; written before the frame can be reached
    Atomic<int64_t> time_ns;   // 16: send time
    Atomic<uint64_t> origin;   // 24: session << 32 | the low half of position / 32
};
static_assert(sizeof(RingFrame) == 32 && offsetof(RingFrame, origin) == 24);

constexpr uint64_t ring_origin(uint32_t session, uint64_t position) {
    return uint64_t{session} << 32 | static_cast<uint32_t>(position / frame_alignment);
}

inline constexpr uint32_t ring_parts = 32; // of the circle; the publication claims one of them ahead

// ---- page 1 ----
struct RingControl {
    struct alignas(cache_pair) Writer { // 0: the publication
        Atomic<uint64_t> write;         // 0: where the next message goes: a lap counter and an offset in one word
        Atomic<uint64_t> newest;        // 8: where the newest message is
        Atomic<uint64_t> bytes_sent;    // 16
        Atomic<uint64_t> joined_ns;     // 24: of the present publication
        Atomic<uint32_t> session;       // 32: its number, one more than its predecessor's
        Atomic<uint32_t> pid;           // 36
        Atomic<uint32_t> state;         // 40: 1 while it is attached
        Deaths deaths;                  // 48: of all publications; the holder of the writer's byte
        Atomic<uint64_t> wait;          // 56: a WaitNote
    } writer;
    Paired<Atomic<uint64_t>> claimed;   // 128: bytes more than the capacity below this may be overwritten; the publication
    Paired<Atomic<uint32_t>> data;      // 256: event: something was committed
    Paired<Atomic<uint32_t>> members;   // 384: event: a subscription joined
    Paired<Atomic<uint32_t>> room;      // 512: event: frames: a lease was given back
    Paired<Atomic<uint32_t>> used;      // 640: frames: only slots below this were ever used; grows
    struct alignas(cache_pair) Starts { // 768: positions where a frame begins, in each part of the circle; the publication
        Atomic<uint64_t> positions[ring_parts];
    } starts;
    struct alignas(cache_pair) Turn { // 1024: frames: which publication works on the words above, the circle and the stamps
        Atomic<uint64_t> lock;        // 1024: its id; 0: none does
        Atomic<uint64_t> last;        // 1032: the id of the one that did last; the holder of the lock
    } turn;
    uint8_t spare[4096 - 1152];
};
static_assert(sizeof(RingControl) == 4096 && offsetof(RingControl, claimed) == 128 && offsetof(RingControl, writer.wait) == 56);
static_assert(offsetof(RingControl, room) == 512 && offsetof(RingControl, used) == 640 && offsetof(RingControl, starts) == 768);
static_assert(offsetof(RingControl, turn) == 1024 && offsetof(RingControl, turn.last) == 1032);

// ---- one subscription, or one publication of frames: the holder of the kernel lock on this slot's byte owns the slot ----
inline constexpr uint32_t slot_reads = 1, slot_writes = 2; // its state
struct RingCounts { // they only grow, over all owners: nothing has to be moved when one of them dies
    Atomic<uint64_t> messages, bytes, lost_messages, lost_bytes, conflated, restarts;
};
struct RingSlot {
    struct alignas(cache_pair) Identity { // 0: the owner as it joins
        Atomic<uint32_t> state;           // slot_reads or slot_writes while it is attached
        Atomic<uint32_t> pid;
        Atomic<uint64_t> joined_ns;
        RingCounts before;           // the counts of the owners before
        Deaths deaths;               // of all owners; the holder of the slot's byte
        Atomic<uint32_t> waits;      // frames: whether publications wait for it: waits_*
        Atomic<uint32_t> generation; // its owners so far
    } identity;
    struct alignas(cache_pair) Reader { // 128: the owner
        Atomic<uint64_t> position;      // everything before was read or lost
        RingCounts counts;
        Atomic<uint64_t> wait;                      // a WaitNote
        Atomic<uint64_t> sent_messages, sent_bytes; // of a publication; since it joined
        Atomic<uint32_t> session;                   // of a publication
    } reader;
};
static_assert(sizeof(RingSlot) == 256 && offsetof(RingSlot, reader) == 128 && offsetof(RingSlot, reader.wait) == 184);
static_assert(offsetof(RingSlot, identity.deaths) == 64 && offsetof(RingSlot, identity.waits) == 72);
inline constexpr KindLayout ring_kind{Kind::ring, sizeof(RingSlot), 1};
namespace lock_byte {
inline constexpr uint64_t writer = control_offset; // ring: the publication
} // namespace lock_byte

inline constexpr uint32_t ring_capacity_max = 1u << 30;

constexpr uint64_t ring_data_offset(uint64_t slot_count) {
    return (slots_offset + slot_count * sizeof(RingSlot) + 4095) & ~uint64_t{4095};
}
constexpr uint64_t ring_file_size(uint64_t slot_count, uint64_t capacity) {
    return ring_data_offset(slot_count) + capacity + latency_size(slot_count);
}

// The creator's options; for an opener the same, read from the file and checked.
struct RingGeometry {
    uint32_t capacity = 8 << 20;
    uint32_t slot_count = 64;
    uint64_t start_position = 0;
    uint64_t start_sequence = 0;
    uint64_t epoch = 0;
    uint32_t max_frame() const { return capacity / 4; }
};

inline void check_geometry(const RingGeometry &g, Code code) {
    auto need = [&](bool fine, const std::string &what) {
        if (!fine) throw Error(code, what);
    };
    need(g.capacity >= platform::term_length_min && g.capacity <= ring_capacity_max && (g.capacity & (g.capacity - 1)) == 0,
         "capacity is " + std::to_string(g.capacity) + ": it must be a power of two from 65536 to 1073741824");
    need(g.slot_count >= 1 && g.slot_count <= slot_count_max,
         "max_members is " + std::to_string(g.slot_count) + ": it must be from 1 to 1024");
    need(g.start_position % g.capacity == 0 && g.start_position < (uint64_t{1} << 63) - 16 * uint64_t{ring_capacity_max},
         "start_position is " + std::to_string(g.start_position) + ": it must be a multiple of the capacity below 2^63");
}

// The words of a ring's header and control page, for its creator.
inline void fill_ring(const Mapping &map, Header *header, const RingGeometry &g) {
    auto *control = reinterpret_cast<RingControl *>(map.bytes() + control_offset);
    header->epoch = g.epoch;
    header->slot_count = g.slot_count;
    header->start_position = static_cast<int64_t>(g.start_position);
    own_words<RingWords>(header) = {.capacity = g.capacity, .unused = 0, .start_sequence = g.start_sequence};
    control->writer.write.relaxed(g.start_position);
    control->writer.newest.relaxed(g.start_position);
    control->claimed.value.relaxed(g.start_position);
    reinterpret_cast<RingFrame *>(map.bytes() + ring_data_offset(g.slot_count))->sequence.relaxed(g.start_sequence);
}

// Fills a new file that no other process can open yet. The file must have its full, allocated, zeroed size.
inline void format_ring(int fd, const RingGeometry &g, const std::string &metadata, const uint8_t boot_id[16],
                        int64_t created_ns) {
    check_geometry(g, Code::invalid);
    const uint64_t size = ring_file_size(g.slot_count, g.capacity);
    if (size_of_file(fd) != size) throw Error(Code::invalid, "the new file has the wrong size");
    const Mapping map(fd, size, true);
    Header *header = begin_header(map, Kind::ring, metadata, boot_id, created_ns);
    fill_ring(map, header, g);
    header->magic.release(magic); // SYNC 0: pairs with find_header; forbids the magic being visible before the rest
}

struct OpenedRing : OpenedChannel {
    RingGeometry geometry;
};

// Reads each header word once and believes none of it unchecked. Changes nothing.
inline RingGeometry read_geometry(const Header *header, const std::string &where) {
    RingGeometry g;
    const RingWords own = own_words<RingWords>(header);
    g.capacity = own.capacity;
    g.start_sequence = own.start_sequence;
    g.slot_count = header->slot_count;
    g.start_position = static_cast<uint64_t>(header->start_position);
    g.epoch = header->epoch;
    check_header(where, [&] { check_geometry(g, Code::corrupt); });
    return g;
}

inline OpenedRing read_ring_header(const uint8_t *bytes, uint64_t size, const std::string &where) {
    const Header *header = find_header(bytes, size, where, Kind::ring);
    refuse_open(header, where);
    OpenedRing ring;
    const RingGeometry &g = ring.geometry = read_geometry(header, where);
    check_size(header, ring_file_size(g.slot_count, g.capacity), size, where);
    read_common(header, where, ring);
    return ring;
}

inline void decide_ring(const Mapping &map, const OpenPart &part, const RingGeometry &g, const std::string &metadata,
                        const uint8_t boot_id[16], int64_t created_ns) {
    clear_behind(map, part, g.slot_count);
    Header *header = begin_header(map, part.kind.number, metadata, boot_id, created_ns);
    fill_ring(map, header, g);
    for (uint32_t i = 0; i < g.slot_count; ++i) {
        auto *slot = reinterpret_cast<RingSlot *>(map.bytes() + slots_offset + size_t{i} * sizeof(RingSlot));
        slot->reader.position.relaxed(g.start_position);
    }
    decided(map);
    auto *control = reinterpret_cast<RingControl *>(map.bytes() + control_offset);
    event_notify(control->data.value);
}

} // namespace penstock
