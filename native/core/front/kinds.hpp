// What opening a channel needs to know of its kind: its options and their defaults, how its file is filled, decided and read.
#pragma once

#include "front/files/files.hpp"

#include "status/frame_status.hpp"
#include "status/log_status.hpp"
#include "status/open_status.hpp"
#include "status/pipe_status.hpp"
#include "status/ring_status.hpp"

#include <map>
#include <vector>

namespace penstock {

using NamedOptions = std::map<std::string, int64_t, std::less<>>;

// What a new header has beside the options.
struct HeaderWords {
    std::string metadata;
    uint64_t epoch = random_epoch();
    BootId boot;
    int64_t created_ns = system_ns(CLOCK_REALTIME);
};

struct KindActions {
    const char *name;
    const KindLayout *layout; // null: its channels are never open
    bool takes_one;           // of the slots: a publication
    std::vector<std::string_view> options;
    uint64_t (*file_size)(const NamedOptions &); // checks the options: throws `invalid`
    uint32_t (*slots)(const NamedOptions &);
    void (*format)(int, const NamedOptions &, const HeaderWords &);
    void (*decide)(const Mapping &, const OpenPart &, const NamedOptions &, const HeaderWords &);
    NamedOptions (*read)(const Mapping &, const std::string &, std::string &); // options and metadata of a channel that exists
    ChannelStatus (*status)(int, const Mapping &, const std::string &);
};

inline int64_t option_or(const NamedOptions &options, std::string_view name, int64_t otherwise) {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : found->second;
}
// The same for words of 32 bits.
inline uint32_t option_word(const NamedOptions &options, std::string_view name, uint32_t otherwise) {
    const int64_t value = option_or(options, name, otherwise);
    if (value < 0 || value > UINT32_MAX)
        throw Error(Code::invalid, std::string(name) + " is " + std::to_string(value) + ": it must be " +
                                       (value < 0 ? "above 0" : "below 2^32"));
    return static_cast<uint32_t>(value);
}

namespace kinds {

inline LogGeometry log_of(const NamedOptions &options) {
    LogGeometry g;
    const bool sized = options.find("capacity") != options.end();
    const uint32_t capacity = option_word(options, "capacity", 0);
    if (capacity > term_length_max)
        throw Error(Code::invalid, "capacity is " + std::to_string(capacity) + ": it must be at most 1073741824");
    uint32_t smallest = term_length_min;
    while (smallest < capacity) smallest *= 2;
    g.term_length = option_word(options, "term_length", sized ? smallest : 8u << 20);
    g.window = sized ? capacity : g.term_length;
    g.slot_count = option_word(options, "max_members", 64);
    const int64_t stream = option_or(options, "stream_id", 1);
    if (stream < INT32_MIN || stream > INT32_MAX)
        throw Error(Code::invalid, "stream_id is " + std::to_string(stream) + ": it must be a number of 32 bits");
    g.stream = static_cast<int32_t>(stream);
    g.initial_term_id = static_cast<int32_t>(option_or(options, "initial_term_id", 0));
    g.start_position = static_cast<uint64_t>(option_or(options, "start_position", 0));
    check_geometry(g, Code::invalid);
    return g;
}
// A queue's capacity is its term; each member has two of the slots.
inline LogGeometry sync_of(const NamedOptions &options) {
    const int64_t members = option_or(options, "max_members", 32);
    if (members < 1 || members > 512)
        throw Error(Code::invalid, "max_members is " + std::to_string(members) + ": it must be from 1 to 512");
    const int64_t capacity = option_or(options, "capacity", 1 << 20);
    if (capacity < term_length_min || capacity > term_length_max || (capacity & (capacity - 1)) != 0)
        throw Error(Code::invalid, "capacity is " + std::to_string(capacity) + ": it must be a power of two from " +
                                       std::to_string(term_length_min) + " to " + std::to_string(term_length_max));
    return log_of(
        {{"term_length", capacity}, {"max_members", 2 * members}, {"start_position", option_or(options, "start_position", 0)}});
}
template <Kind kind> LogGeometry geometry_of(const NamedOptions &options) {
    return kind == Kind::sync ? sync_of(options) : log_of(options);
}
template <Kind kind> LogGeometry geometry_of(const NamedOptions &options, const HeaderWords &words) {
    LogGeometry g = geometry_of<kind>(options);
    g.epoch = words.epoch;
    return g;
}
template <Kind kind> NamedOptions read_log(const Mapping &map, const std::string &where, std::string &metadata) {
    const OpenedLog log = read_header(map.bytes(), map.size(), where, kind);
    metadata = log.metadata;
    const LogGeometry &g = log.geometry;
    return {{"capacity", g.window},
            {"term_length", g.term_length},
            {"max_members", g.slot_count / (kind == Kind::sync ? 2 : 1)},
            {"stream_id", g.stream},
            {"initial_term_id", g.initial_term_id},
            {"start_position", static_cast<int64_t>(g.start_position)}};
}
template <Kind kind> KindActions log_actions() {
    const bool sync = kind == Kind::sync;
    return {sync ? "sync" : "log",
            sync ? &sync_kind : &log_kind,
            true,
            sync ? std::vector<std::string_view>{"capacity", "max_members"}
                 : std::vector<std::string_view>{"capacity", "term_length", "max_members", "stream_id"},
            [](const NamedOptions &options) {
                const LogGeometry g = geometry_of<kind>(options);
                return log_file_size(g.slot_count, g.term_length, kind);
            },
            [](const NamedOptions &options) { return geometry_of<kind>(options).slot_count; },
            [](int fd, const NamedOptions &options, const HeaderWords &words) {
                format_log(fd, geometry_of<kind>(options, words), words.metadata, words.boot.bytes, words.created_ns, kind);
            },
            [](const Mapping &map, const OpenPart &part, const NamedOptions &options, const HeaderWords &words) {
                decide_log(map, part, geometry_of<kind>(options, words), words.metadata, words.boot.bytes, words.created_ns);
            },
            read_log<kind>,
            [](int fd, const Mapping &map, const std::string &where) {
                return read_log_status(fd, map, read_header(map.bytes(), map.size(), where, kind), kind == Kind::sync);
            }};
}

inline RingGeometry ring_of(const NamedOptions &options) {
    RingGeometry g;
    g.capacity = option_word(options, "capacity", g.capacity);
    g.slot_count = option_word(options, "max_members", g.slot_count);
    g.start_position = static_cast<uint64_t>(option_or(options, "start_position", 0));
    g.start_sequence = static_cast<uint64_t>(option_or(options, "start_sequence", 0));
    check_geometry(g, Code::invalid);
    return g;
}
inline RingGeometry ring_of(const NamedOptions &options, const HeaderWords &words) {
    RingGeometry g = ring_of(options);
    g.epoch = words.epoch;
    return g;
}
inline KindActions ring_actions() {
    return {"ring",
            &ring_kind,
            false,
            {"capacity", "max_members"},
            [](const NamedOptions &options) {
                const RingGeometry g = ring_of(options);
                return ring_file_size(g.slot_count, g.capacity);
            },
            [](const NamedOptions &options) { return ring_of(options).slot_count; },
            [](int fd, const NamedOptions &options, const HeaderWords &words) {
                format_ring(fd, ring_of(options, words), words.metadata, words.boot.bytes, words.created_ns);
            },
            [](const Mapping &map, const OpenPart &part, const NamedOptions &options, const HeaderWords &words) {
                decide_ring(map, part, ring_of(options, words), words.metadata, words.boot.bytes, words.created_ns);
            },
            [](const Mapping &map, const std::string &where, std::string &metadata) -> NamedOptions {
                const OpenedRing ring = read_ring_header(map.bytes(), map.size(), where);
                metadata = ring.metadata;
                return {{"capacity", ring.geometry.capacity},
                        {"max_members", ring.geometry.slot_count},
                        {"start_position", static_cast<int64_t>(ring.geometry.start_position)},
                        {"start_sequence", static_cast<int64_t>(ring.geometry.start_sequence)}};
            },
            [](int fd, const Mapping &map, const std::string &where) {
                return read_ring_status(fd, map, read_ring_header(map.bytes(), map.size(), where));
            }};
}

inline PipeGeometry pipe_of(const NamedOptions &options) {
    PipeGeometry g;
    g.capacity = option_word(options, "capacity", g.capacity);
    g.max_members = option_word(options, "max_members", g.max_members);
    g.max_pipes = option_word(options, "max_pipes", g.max_pipes);
    g.max_messages = option_word(options, "max_messages", g.max_messages);
    g.start_position = static_cast<uint64_t>(option_or(options, "start_position", 0));
    check_geometry(g, Code::invalid);
    return g;
}
inline PipeGeometry pipe_of(const NamedOptions &options, const HeaderWords &words) {
    PipeGeometry g = pipe_of(options);
    g.epoch = words.epoch;
    return g;
}
inline KindActions pipe_actions() {
    return {"pipe",
            &pipe_kind,
            true,
            {"capacity", "max_members", "max_pipes", "max_messages"},
            [](const NamedOptions &options) { return pipe_of(options).file_size(); },
            [](const NamedOptions &options) { return pipe_of(options).max_members; },
            [](int fd, const NamedOptions &options, const HeaderWords &words) {
                format_pipe(fd, pipe_of(options, words), words.metadata, words.boot.bytes, words.created_ns);
            },
            [](const Mapping &map, const OpenPart &part, const NamedOptions &options, const HeaderWords &words) {
                decide_pipe(map, part, pipe_of(options, words), words.metadata, words.boot.bytes, words.created_ns);
            },
            [](const Mapping &map, const std::string &where, std::string &metadata) -> NamedOptions {
                const OpenedPipe pipe = read_pipe_header(map.bytes(), map.size(), where);
                metadata = pipe.metadata;
                return {{"capacity", pipe.geometry.capacity},
                        {"max_members", pipe.geometry.max_members},
                        {"max_pipes", pipe.geometry.max_pipes},
                        {"max_messages", pipe.geometry.max_messages},
                        {"start_position", static_cast<int64_t>(pipe.geometry.start_position)}};
            },
            [](int fd, const Mapping &map, const std::string &where) {
                return read_pipe_status(fd, map, read_pipe_header(map.bytes(), map.size(), where));
            }};
}

// A pool of frames. `frame_bytes` and `fields` are no options of a program: they follow from shape, types and header.
inline PoolGeometry frames_of(const NamedOptions &options) {
    PoolGeometry g;
    g.buffers = option_word(options, "buffers", g.buffers);
    g.ring.slot_count = option_word(options, "max_members", g.ring.slot_count);
    g.frame_bytes = static_cast<uint64_t>(option_or(options, "frame_bytes", 0));
    g.ring.capacity = 64 * 1024; // two notes of 4 KiB for each buffer
    while (g.ring.capacity < uint64_t{g.buffers} * 8192 && g.ring.capacity < ring_capacity_max) g.ring.capacity *= 2;
    check_geometry(g, Code::invalid);
    check_fields(g, static_cast<uint64_t>(option_or(options, "fields", 0)));
    return g;
}
inline KindActions frames_actions() {
    return {"frames",
            nullptr,
            false,
            {"buffers", "max_members", "frame_bytes", "fields"},
            [](const NamedOptions &options) { return frames_of(options).file_size(); },
            nullptr,
            [](int fd, const NamedOptions &options, const HeaderWords &words) {
                PoolGeometry g = frames_of(options);
                g.ring.epoch = words.epoch;
                format_frames(fd, g, words.metadata, words.boot.bytes, words.created_ns);
            },
            nullptr,
            [](const Mapping &map, const std::string &where, std::string &metadata) -> NamedOptions {
                const OpenedFrames frames = read_frames_header(map.bytes(), map.size(), where);
                metadata = frames.metadata;
                return {{"buffers", frames.pool.buffers},
                        {"max_members", frames.geometry.slot_count},
                        {"frame_bytes", static_cast<int64_t>(frames.pool.frame_bytes)}};
            },
            [](int fd, const Mapping &map, const std::string &where) {
                return read_frame_status(fd, map, read_frames_header(map.bytes(), map.size(), where));
            }};
}

} // namespace kinds

inline const KindActions &kind_named(std::string_view name) {
    static const KindActions all[] = {kinds::log_actions<Kind::log>(), kinds::ring_actions(), kinds::pipe_actions(),
                                      kinds::log_actions<Kind::sync>(), kinds::frames_actions()};
    for (const KindActions &kind : all)
        if (kind.name == name) return kind;
    throw Error(Code::invalid, "there is no kind '" + std::string(name) + "'");
}

} // namespace penstock
