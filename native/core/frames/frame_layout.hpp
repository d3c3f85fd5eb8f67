// Byte layout of a frames channel's file: a ring of notes, one word per buffer, what each member leases, the buffers.
// docs/design/frame_pool.md draws it.
#pragma once

#include "ring/ring_layout.hpp"

namespace penstock {

inline constexpr uint32_t buffer_count_max = 1024;
inline constexpr uint64_t frame_bytes_max = uint64_t{1} << 36;
inline constexpr uint32_t lease_words = buffer_count_max / 64;

//     page 0       Header, with FrameWords
//     4096 …       a ring of notes: RingControl, RingSlot × slot_count, its circle
//     128-aligned  FrameBuffer × buffer_count
//     next page    FrameLeases × slot_count
//     page + 128   buffer_count buffers, whole pages apart
//     next page    LatencySlot × slot_count
//
// A subscription writes its slot, its leases and its latencies. It maps the pages of the rest to be read only.

// ---- the header's own words of a frames channel; the creator ----
struct FrameWords {
    RingWords ring;        // 0: of the ring of notes
    uint64_t buffer_bytes; // 16: of one frame
    uint32_t buffer_count; // 24
    uint32_t unused;       // 28
};
static_assert(sizeof(FrameWords) == 32 && offsetof(FrameWords, buffer_bytes) == 16 && offsetof(FrameWords, buffer_count) == 24);

// Whether publications wait for a subscription until it has received a frame: the word `waits` of its slot. The last two are
// waited for only by a publication that waits: one that was opened so, or one that waits for another subscription.
inline constexpr uint32_t waits_never = 0, waits_always = 1;
inline constexpr uint32_t waits_with_others = 2;  // a recorder: when the publication waits for anybody
inline constexpr uint32_t waits_where_opened = 3; // one that reads every frame: when the publication was opened to wait

// A buffer's content. The publication that has the turn writes it.
struct alignas(cache_line) FrameBuffer {
    Atomic<uint64_t> stamp;    // 0: the number of its frame, shifted, with the lowest bit set; 0 while it holds none
    Atomic<uint64_t> position; // 8: where the stream ended before the frame's note
};
constexpr uint64_t frame_stamp(uint64_t sequence) { return sequence << 1 | 1; }

// The buffers that one subscription leases, or one publication has open, a bit each. Written by the slot's owner, and by a
// participant that frees a dead owner's slot.
struct alignas(cache_pair) FrameLeases {
    Atomic<uint64_t> words[lease_words];
};
static_assert(sizeof(FrameBuffer) == 64 && offsetof(FrameBuffer, position) == 8 && sizeof(FrameLeases) == 128);

// A message of the ring: the buffer that holds the frame, and the frame's description. Behind it: of a frame with a shape of its
// own its bytes and its sizes, a word each; then the publisher's header, if the channel has one, and its fields as JSON.
struct FrameNote {
    uint16_t buffer = 0;
    uint8_t dtype = 0;      // which of the channel's
    uint8_t dimensions = 0; // of this frame; 0: it has the channel's shape, and fills its buffer
    uint32_t rest_length = 0;
    uint64_t id = 0;      // the publisher's own
    int64_t start_ns = 0; // of the exposure, in the publisher's clock; 0: not given
    int64_t end_ns = 0;

    uint32_t shape_length() const {
        return dimensions == 0 ? 0 : (1u + dimensions) * uint32_t{sizeof(uint64_t)};
    } // bytes, then sizes
};
static_assert(sizeof(FrameNote) == 32 && buffer_count_max <= UINT16_MAX);
inline constexpr uint32_t dimensions_max = 32;

struct PoolGeometry {
    RingGeometry ring;
    uint32_t buffers = 8;
    uint64_t frame_bytes = 0;
    // The longest fields of a frame. The notes of all buffers, a pad and what the ring claims ahead then fit in the circle: a
    // subscription that has yet to read all those frames is not lapped.
    uint32_t fields_max() const {
        return (ring.capacity / (2 * buffers) & ~(frame_alignment - 1)) - header_length -
               static_cast<uint32_t>(sizeof(FrameNote));
    }
    // Bytes that each frame takes in a recording with its pixels: its header, note and fields as well.
    uint64_t cell() const { return align_frame(header_length + sizeof(FrameNote) + fields_max() + frame_bytes); }
    uint64_t stride() const { return align(frame_bytes, platform::buffer_alignment); }
    uint64_t words_offset() const { return align(ring_data_offset(ring.slot_count) + ring.capacity, cache_pair); }
    uint64_t leases_offset() const { return align(words_offset() + buffers * sizeof(FrameBuffer), platform::buffer_alignment); }
    // Not at a page's begin: an array that is copied out begins 16 bytes behind one, for which see copy_bytes.
    uint64_t buffers_offset() const { return buffers_page() + cache_pair; }
    uint64_t buffers_page() const {
        return align(leases_offset() + ring.slot_count * sizeof(FrameLeases), platform::buffer_alignment);
    }
    uint64_t buffers_end() const { return align(buffers_offset() + buffers * stride(), platform::buffer_alignment); }
    uint64_t file_size() const { return buffers_end() + latency_size(ring.slot_count); }

  private:
    static uint64_t align(uint64_t value, uint64_t to) { return (value + to - 1) & ~(to - 1); }
};

inline void check_geometry(const PoolGeometry &g, Code code) {
    check_geometry(g.ring, code);
    if (g.ring.slot_count < 2)
        throw Error(code, "max_members is 1: it must be from 2 to 1024, for a publication and a subscription");
    if (g.buffers < 2 || g.buffers > buffer_count_max)
        throw Error(code, "buffers is " + std::to_string(g.buffers) + ": it must be from 2 to 1024");
    if (g.ring.capacity / (2 * g.buffers) < header_length + sizeof(FrameNote))
        throw Error(code, "buffers is " + std::to_string(g.buffers) +
                              ": the notes of so many frames do not fit in the circle of " + std::to_string(g.ring.capacity) +
                              " bytes");
    if (g.frame_bytes < 1 || g.frame_bytes > frame_bytes_max)
        throw Error(code, "a frame takes " + std::to_string(g.frame_bytes) + " bytes: it must be from 1 to " +
                              std::to_string(frame_bytes_max));
}

// Throws `too_large` unless a frame's header and sizes, of so many bytes, fit in its note.
inline void check_fields(const PoolGeometry &g, uint64_t bytes) {
    if (bytes > g.fields_max())
        throw Error(Code::too_large, "a frame's header and sizes take " + std::to_string(bytes) + " bytes, and with " +
                                         std::to_string(g.buffers) + " buffers up to " + std::to_string(g.fields_max()) +
                                         " fit: make the header smaller, or give fewer buffers");
}

// Fills a new file that no other process can open yet. The file must have its full, allocated, zeroed size.
inline void format_frames(int fd, const PoolGeometry &g, const std::string &metadata, const uint8_t boot_id[16],
                          int64_t created_ns) {
    check_geometry(g, Code::invalid);
    if (size_of_file(fd) != g.file_size()) throw Error(Code::invalid, "the new file has the wrong size");
    const Mapping map(fd, g.file_size(), true);
    Header *header = begin_header(map, Kind::frames, metadata, boot_id, created_ns);
    fill_ring(map, header, g.ring);
    auto &own = own_words<FrameWords>(header);
    own.buffer_bytes = g.frame_bytes;
    own.buffer_count = g.buffers;
    header->magic.release(magic); // SYNC 0: pairs with find_header; forbids the magic being visible before the rest
}

struct OpenedFrames : OpenedRing {
    PoolGeometry pool;
};

// Reads each header word once and believes none of it unchecked. Changes nothing.
inline OpenedFrames read_frames_header(const uint8_t *bytes, uint64_t size, const std::string &where) {
    const Header *header = find_header(bytes, size, where, Kind::frames);
    OpenedFrames frames;
    PoolGeometry &g = frames.pool;
    g.ring = frames.geometry = read_geometry(header, where);
    const auto &own = own_words<FrameWords>(header);
    g.frame_bytes = own.buffer_bytes;
    g.buffers = own.buffer_count;
    check_header(where, [&] { check_geometry(g, Code::corrupt); });
    check_size(header, g.file_size(), size, where);
    read_common(header, where, frames);
    return frames;
}

} // namespace penstock
