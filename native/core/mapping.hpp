// A channel's file in memory. Checks on the way in that the file is what its header says; afterwards only the numbers
// copied here are trusted, never the header again.
#pragma once

#include "error.hpp"
#include "layout.hpp"

#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>

namespace penstock {

// Pages that nobody may touch lie before and after it: what runs out of it stops there, and in nobody else's memory.
class Mapping {
  public:
    Mapping(int fd, uint64_t size, bool writable) : size_(size) {
        void *around = mmap(nullptr, reserved(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (around == MAP_FAILED) fail_system("cannot reserve " + std::to_string(size) + " bytes of address space");
        bytes_ = static_cast<uint8_t *>(around) + guard;
        const int allowed = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        if (mmap(bytes_, size, allowed, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            const int number = errno;
            munmap(around, reserved());
            fail_system("cannot map " + std::to_string(size) + " bytes", number);
        }
    }
    ~Mapping() { munmap(bytes_ - guard, reserved()); }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    // Brings all of it into memory now, so that no later access faults. False where the kernel cannot (before 5.14).
    bool populate() const {
        constexpr int populate_write = 23; // MADV_POPULATE_WRITE
        return madvise(bytes_, size_, populate_write) == 0;
    }
    uint8_t *bytes() const { return bytes_; }
    uint64_t size() const { return size_; }

  private:
    static constexpr uint64_t guard = 64 * 1024; // a page of any machine
    uint64_t reserved() const { return ((size_ + guard - 1) & ~(guard - 1)) + 2 * guard; }

    uint8_t *bytes_;
    uint64_t size_;
};

inline uint64_t size_of_file(int fd) {
    struct stat about;
    if (fstat(fd, &about) != 0) fail_system("cannot read the size of a channel's file");
    return static_cast<uint64_t>(about.st_size);
}

// What the creator chose; also what an opener found, checked.
struct LogGeometry {
    uint32_t term_length = 8 << 20;
    uint32_t window = 8 << 20;
    uint32_t slot_count = 64;
    int32_t initial_term_id = 0;
    int32_t stream = 1;
    uint64_t start_position = 0;
    uint64_t epoch = 0;
    uint32_t max_frame() const { return term_length / 4; }
    int32_t term_id(uint64_t position) const { // wraps, as on the wire
        return static_cast<int32_t>(static_cast<uint32_t>(initial_term_id) + static_cast<uint32_t>(position / term_length));
    }
};

inline void check_geometry(const LogGeometry &g, Code code) {
    auto need = [&](bool fine, const std::string &what) {
        if (!fine) throw Error(code, what);
    };
    need(g.term_length >= term_length_min && g.term_length <= term_length_max && (g.term_length & (g.term_length - 1)) == 0,
         "term_length is " + std::to_string(g.term_length) + ": it must be a power of two from 65536 to 1073741824");
    need(g.window >= g.term_length / 2 && g.window <= g.term_length && g.window % frame_alignment == 0,
         "window is " + std::to_string(g.window) + ": it must be a multiple of 32 from half a term to a term");
    need(g.slot_count >= 2 && g.slot_count <= slot_count_max,
         "slots is " + std::to_string(g.slot_count) + ": it must be from 2 to 1024");
    need(g.start_position % g.term_length == 0 && g.start_position < (uint64_t{1} << 63) - 16 * uint64_t{term_length_max},
         "start_position is " + std::to_string(g.start_position) + ": it must be a multiple of the term length below 2^63");
}

// What every kind's header says beside its sizes.
struct OpenedChannel {
    std::string metadata;
    int64_t created_ns;
    uint32_t creator_pid;
    uint8_t boot_id[16];
};

// A new file that nobody else can open yet, with its full, allocated, zeroed size: the words of its header that every kind
// has, but for the magic, which its caller stores last.
inline Header *begin_header(const Mapping &map, Kind kind, const std::string &metadata, const uint8_t boot_id[16],
                            int64_t created_ns) {
    if (metadata.size() > metadata_max)
        throw Error(Code::invalid, "the channel's metadata takes " + std::to_string(metadata.size()) + " bytes; at most " +
                                       std::to_string(metadata_max) + " fit");
    auto *header = reinterpret_cast<Header *>(map.bytes());
    header->layout_version = layout_version;
    header->kind = static_cast<uint32_t>(kind);
    header->file_size = map.size();
    std::memcpy(header->boot_id, boot_id, 16);
    header->created_ns = created_ns;
    header->creator_pid = static_cast<uint32_t>(getpid());
    header->metadata_length = static_cast<uint32_t>(metadata.size());
    std::memcpy(header->metadata, metadata.data(), metadata.size());
    return header;
}

inline const char *kind_name(uint32_t kind) {
    static constexpr const char *names[] = {"unknown", "log", "ring", "sync", "pipe", "frames"};
    return names[kind < sizeof names / sizeof *names ? kind : 0];
}

// The header of a channel of this kind, or an error that says what the file is instead.
inline const Header *find_header(const uint8_t *bytes, uint64_t size, const std::string &where, Kind wanted) {
    if (size < slots_offset)
        throw Error(Code::corrupt, where + " holds " + std::to_string(size) + " bytes: too few for a channel");
    const auto *header = reinterpret_cast<const Header *>(bytes);
    if (header->magic.acquire() != magic) throw Error(Code::corrupt, where + " is not a Penstock channel"); // SYNC 0
    const uint32_t version = header->layout_version, kind = header->kind;
    if (version != layout_version)
        throw Error(Code::mismatch, where + " has layout version " + std::to_string(version) + "; this library knows version " +
                                        std::to_string(layout_version));
    if (kind != static_cast<uint32_t>(wanted))
        throw Error(Code::mismatch, where + " is a channel of kind " + std::to_string(kind) + " (" + kind_name(kind) +
                                        "), not a " + kind_name(static_cast<uint32_t>(wanted)));
    return header;
}

inline void check_size(const Header *header, uint64_t expected, uint64_t size, const std::string &where) {
    const uint64_t stated = header->file_size;
    if (expected != size || stated != size)
        throw Error(Code::corrupt, where + " holds " + std::to_string(size) + " bytes; its header means " +
                                       std::to_string(expected) + " and says " + std::to_string(stated));
}

inline void read_common(const Header *header, const std::string &where, OpenedChannel &channel) {
    const uint32_t length = header->metadata_length;
    if (length > metadata_max) throw Error(Code::corrupt, where + ": its metadata length is " + std::to_string(length));
    channel.metadata.assign(header->metadata, length);
    channel.created_ns = header->created_ns;
    channel.creator_pid = header->creator_pid;
    std::memcpy(channel.boot_id, header->boot_id, 16);
}

// `check` throws what it would for its creator; here that means that the header was overwritten.
template <class Check> void check_header(const std::string &where, Check &&check) {
    try {
        check();
    } catch (const Error &error) {
        throw Error(Code::corrupt, where + ": its header is damaged: " + error.what());
    }
}

// ---- the log's header ----

// Fills a new file that nobody else can open yet. The file must have its full, allocated, zeroed size.
inline void format_log(int fd, const LogGeometry &g, const std::string &metadata, const uint8_t boot_id[16], int64_t created_ns,
                       Kind kind = Kind::log) {
    check_geometry(g, Code::invalid);
    const uint64_t size = log_file_size(g.slot_count, g.term_length);
    if (size_of_file(fd) != size) throw Error(Code::invalid, "the new file has the wrong size");
    const Mapping map(fd, size, true);
    Header *header = begin_header(map, kind, metadata, boot_id, created_ns);
    auto *control = reinterpret_cast<Control *>(map.bytes() + control_offset);
    header->epoch = g.epoch;
    header->term_length = g.term_length;
    header->window = g.window;
    header->initial_term_id = g.initial_term_id;
    header->stream = g.stream;
    header->slot_count = g.slot_count;
    header->max_frame = g.max_frame();
    header->start_position = static_cast<int64_t>(g.start_position);
    control->tail.value.relaxed(g.start_position);
    control->limit.value.relaxed(g.start_position);
    control->sessions.value.relaxed(static_cast<uint32_t>(g.epoch) | 1);
    header->magic.release(magic); // SYNC 0: pairs with find_header; forbids seeing the magic before the rest
}

struct OpenedLog : OpenedChannel {
    LogGeometry geometry;
};

// Reads each header word once and believes none of it unchecked. Changes nothing.
// `kind`: log, or sync, whose bytes are a log's.
inline OpenedLog read_header(const uint8_t *bytes, uint64_t size, const std::string &where, Kind kind = Kind::log) {
    const Header *header = find_header(bytes, size, where, kind);
    OpenedLog log;
    LogGeometry &g = log.geometry;
    g.term_length = header->term_length;
    g.window = header->window;
    g.slot_count = header->slot_count;
    g.initial_term_id = header->initial_term_id;
    g.stream = header->stream;
    g.start_position = static_cast<uint64_t>(header->start_position);
    g.epoch = header->epoch;
    check_header(where, [&] { check_geometry(g, Code::corrupt); });
    check_size(header, log_file_size(g.slot_count, g.term_length), size, where);
    read_common(header, where, log);
    return log;
}

} // namespace penstock
