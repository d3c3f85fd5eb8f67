// The header of a channel's file: how its creator fills it and how an opener checks it. Only the numbers copied here are
// trusted afterwards, never the header again. The kind's layout fills and checks the kind's own words.
#pragma once

#include "ground/error.hpp"
#include "ground/files/channel_header.hpp"
#include "ground/files/mapping.hpp"

#include <cstdint>
#include <cstring>
#include <string>

namespace penstock {

// The parts of a header that all kinds share, beside its sizes.
struct OpenedChannel {
    std::string metadata;
    int64_t created_ns;
    uint32_t creator_pid;
    uint8_t boot_id[16];
};

// A new file that no other process can open yet, or an open one that is decided, with its full, allocated, zeroed size: the words
// of its header that every kind has, but for the magic of a new file, which its caller stores last.
inline Header *begin_header(const Mapping &map, Kind kind, const std::string &metadata, const uint8_t boot_id[16],
                            int64_t created_ns) {
    if (metadata.size() > metadata_max)
        throw Error(Code::invalid, "the channel's metadata takes " + std::to_string(metadata.size()) + " bytes; at most " +
                                       std::to_string(metadata_max) + " fit");
    auto *header = reinterpret_cast<Header *>(map.bytes());
    if (header->magic.relaxed() != magic) { // an open channel has them already, and others read them
        header->layout_version = layout_version;
        header->kind = static_cast<uint32_t>(kind);
    }
    header->file_size = map.size();
    std::memcpy(header->boot_id, boot_id, 16);
    header->created_ns = created_ns;
    header->creator_pid = static_cast<uint32_t>(getpid());
    header->metadata_length = static_cast<uint32_t>(metadata.size());
    std::memcpy(header->metadata, metadata.data(), metadata.size());
    return header;
}

inline const char *kind_name(uint32_t kind) {
    static constexpr const char *names[] = {"unknown", "log", "ring", "sync", "pipe", "frames", "endpoint"};
    return names[kind < sizeof names / sizeof *names ? kind : 0];
}

// The header of a channel of this kind, or an error that names what the file is.
inline const Header *find_header(const uint8_t *bytes, uint64_t size, const std::string &where, Kind wanted) {
    if (size < slots_offset)
        throw Error(Code::corrupt, where + " holds " + std::to_string(size) + " bytes: too few for a channel");
    const auto *header = reinterpret_cast<const Header *>(bytes);
    // SYNC 0: pairs with format_log, format_ring, format_frames, format_pipe, format_endpoint, format_open; forbids reading the
    // header before the magic, which its maker stores last
    if (header->magic.acquire() != magic) throw Error(Code::corrupt, where + " is not a Penstock channel");
    const uint32_t version = header->layout_version, kind = header->kind;
    if (version != layout_version)
        throw Error(Code::mismatch, where + " has layout version " + std::to_string(version) + "; this library knows version " +
                                        std::to_string(layout_version) +
                                        ": run all its programs with one version of Penstock, or remove it");
    if (kind != static_cast<uint32_t>(wanted))
        throw Error(Code::mismatch, where + " is a channel of kind " + std::to_string(kind) + " (" + kind_name(kind) +
                                        "), not a " + kind_name(static_cast<uint32_t>(wanted)));
    return header;
}

// Whether the channel is still open. Until it is decided the rest of its header means nothing.
inline bool still_open(const Header *header, const std::string &where) {
    const uint32_t state = header->state.acquire(); // SYNC 24: pairs with decided; forbids reading the header before the state
    if (state > static_cast<uint32_t>(ChannelState::open))
        throw Error(Code::corrupt, where + ": its header is damaged: its state is " + std::to_string(state));
    return state == static_cast<uint32_t>(ChannelState::open);
}
inline void refuse_open(const Header *header, const std::string &where) {
    if (still_open(header, where)) throw Error(Code::busy, where + " is open: it has no first publication yet");
    read(&header->file_size, offsetof(Header, metadata) - offsetof(Header, file_size));
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

// `check` throws as it would for the creator; for an opener that means that the header was overwritten.
template <class Check> void check_header(const std::string &where, Check &&check) {
    try {
        check();
    } catch (const Error &error) {
        throw Error(Code::corrupt, where + ": its header is damaged: " + error.what());
    }
}

} // namespace penstock
