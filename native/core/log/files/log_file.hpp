// A log channel's file: its creator's options, how the file is filled, how an opener checks it.
#pragma once

#include "ground/files/channel_file.hpp"
#include "ground/files/open_channel.hpp"
#include "ground/messages/frame_header.hpp"
#include "log/files/log_layout.hpp"

namespace penstock {

// The creator's options; for an opener the same, read from the file and checked.
struct LogGeometry {
    uint32_t term_length = 8 << 20;
    uint32_t window = 8 << 20;
    uint32_t slot_count = 64;
    int32_t initial_term_id = 0;
    int32_t stream = 1;
    uint64_t start_position = 0;
    uint64_t epoch = 0;
    uint32_t max_frame = 0; // longest frame, header included. For a creator 0 means a quarter term
    LastShape last{};       // of last values; no keys: none are kept
};

inline void check_geometry(const LogGeometry &g, Code code) {
    auto need = [&](bool fine, const std::string &what) {
        if (!fine) throw Error(code, what);
    };
    need(g.term_length >= term_length_min && g.term_length <= term_length_max && (g.term_length & (g.term_length - 1)) == 0,
         "term_length is " + std::to_string(g.term_length) + ": it must be a power of two from 65536 to 1073741824");
    need(g.window >= g.term_length / 2 && g.window <= g.term_length && g.window % frame_alignment == 0,
         "capacity is " + std::to_string(g.window) + ": it must be " + std::to_string(g.term_length / 2) + " to " +
             std::to_string(g.term_length) + " with term_length " + std::to_string(g.term_length) + ", a multiple of 32");
    need(g.slot_count >= 2 && g.slot_count <= slot_count_max,
         "max_members is " + std::to_string(g.slot_count) + ": it must be from 2 to 1024");
    need(g.max_frame == 0 ||
             (g.max_frame > header_length && g.max_frame <= g.term_length / 4 && g.max_frame % frame_alignment == 0),
         "max_frame is " + std::to_string(g.max_frame) + ": it must be a multiple of 32 from 64 to a quarter term");
    need(g.last.keys <= last_keys_max, "last_keys is " + std::to_string(g.last.keys) + ": it must be from 1 to 1048576");
    need(g.last.max <= (g.max_frame == 0 ? g.term_length / 4 : g.max_frame) - header_length,
         "last_max is " + std::to_string(g.last.max) + ": it must be at most " +
             std::to_string(g.term_length / 4 - header_length) + " with term_length " + std::to_string(g.term_length));
    need(g.start_position % g.term_length == 0 && g.start_position < (uint64_t{1} << 63) - 16 * uint64_t{term_length_max},
         "start_position is " + std::to_string(g.start_position) + ": it must be a multiple of the term length below 2^63");
}

// The number of the first publication.
inline uint32_t first_session(const LogGeometry &g) { return static_cast<uint32_t>(g.epoch) | 1; }

// The words of a log's header and control page. The decider calls it.
inline void fill_log(const Mapping &map, Header *header, const LogGeometry &g) {
    auto *control = reinterpret_cast<Control *>(map.bytes() + control_offset);
    header->epoch = g.epoch;
    header->slot_count = g.slot_count;
    header->start_position = static_cast<int64_t>(g.start_position);
    own_words<LogWords>(header) = {.term_length = g.term_length,
                                   .capacity = g.window,
                                   .max_frame = g.max_frame == 0 ? g.term_length / 4 : g.max_frame,
                                   .initial_term_id = g.initial_term_id,
                                   .stream = g.stream,
                                   .last_keys = g.last.keys,
                                   .last_max = g.last.max};
    control->tail.value.relaxed(g.start_position);
    control->limit.value.relaxed(g.start_position);
    control->sessions.value.relaxed(first_session(g));
}

// Fills a new file that no other process can open yet. The file must have its full, allocated, zeroed size.
inline void format_log(int fd, const LogGeometry &g, const std::string &metadata, const uint8_t boot_id[16], int64_t created_ns,
                       Kind kind = Kind::log) {
    check_geometry(g, Code::invalid);
    const uint64_t size = log_file_size(g.slot_count, g.term_length, kind, g.last);
    if (size_of_file(fd) != size) throw Error(Code::invalid, "the new file has the wrong size");
    const Mapping map(fd, size, true);
    Header *header = begin_header(map, kind, metadata, boot_id, created_ns);
    fill_log(map, header, g);
    header->magic.release(magic); // SYNC 0: pairs with find_header; forbids the magic being visible before the rest
}

inline uint64_t terms_end(const LogGeometry &g) { return terms_offset(g.slot_count) + terms * uint64_t{g.term_length}; }

struct OpenedLog : OpenedChannel {
    LogGeometry geometry;
};

// Reads each header word once and believes none of it unchecked. Changes nothing.
// `kind`: log, or sync, whose bytes are a log's.
inline OpenedLog read_header(const uint8_t *bytes, uint64_t size, const std::string &where, Kind kind = Kind::log) {
    const Header *header = find_header(bytes, size, where, kind);
    refuse_open(header, where);
    OpenedLog log;
    LogGeometry &g = log.geometry;
    const LogWords own = own_words<LogWords>(header);
    g.term_length = own.term_length;
    g.window = own.capacity;
    g.max_frame = own.max_frame;
    g.initial_term_id = own.initial_term_id;
    g.stream = own.stream;
    g.last = {own.last_keys, own.last_max};
    g.slot_count = header->slot_count;
    g.start_position = static_cast<uint64_t>(header->start_position);
    g.epoch = header->epoch;
    check_header(where, [&] {
        check_geometry(g, Code::corrupt);
        if (g.max_frame == 0) throw Error(Code::corrupt, "max_frame is 0");
    });
    check_size(header, log_file_size(g.slot_count, g.term_length, kind, g.last), size, where);
    read_common(header, where, log);
    return log;
}

inline void decide_log(const Mapping &map, const OpenPart &part, const LogGeometry &g, const std::string &metadata,
                       const uint8_t boot_id[16], int64_t created_ns) {
    clear_behind(map, part, g.slot_count);
    Header *header = begin_header(map, part.kind.number, metadata, boot_id, created_ns);
    fill_log(map, header, g);
    for (uint32_t i = 0; i < g.slot_count; ++i) {
        auto *slot = reinterpret_cast<Slot *>(map.bytes() + slots_offset + size_t{i} * sizeof(Slot));
        slot->reader.position.relaxed(g.start_position);
    }
    decided(map);
    auto *control = reinterpret_cast<Control *>(map.bytes() + control_offset);
    event_notify(control->data.value);
}

} // namespace penstock
