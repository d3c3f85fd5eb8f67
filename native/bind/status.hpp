// What a channel's file says of itself, as dictionaries that status.py understands; and what making one needs.
#pragma once

#include "bind.hpp"

#include "../core/counts.hpp"
#include "../core/mapping.hpp"

#include <array>
#include <fcntl.h>

namespace penstock::bind {

// What every kind says. A ring's capacity is what a term is to a log: recordings count terms by it.
inline void describe_common(nb::dict about, const OpenedChannel &channel, uint32_t term_length, uint32_t slots, uint64_t start,
                            uint64_t epoch, uint32_t max_frame) {
    about["term_length"] = term_length;
    about["slots"] = slots;
    about["start_position"] = start;
    about["epoch"] = epoch;
    about["created_ns"] = channel.created_ns;
    about["creator_pid"] = channel.creator_pid;
    about["metadata"] = nb::bytes(channel.metadata.data(), channel.metadata.size());
    about["boot_id"] = nb::bytes(channel.boot_id, 16);
    about["max_payload"] = max_frame - header_length;
}

// One publication or subscription, as `Member` in status.py has it.
inline void add_member(nb::list &members, uint32_t slot, const char *role, bool dropped, uint32_t pid, int32_t session,
                       uint64_t joined_ns, nb::object position, uint64_t messages, uint64_t bytes, uint64_t back_pressure,
                       uint64_t bytes_lost, nb::object messages_lost) {
    nb::dict member;
    member["slot"] = slot;
    member["role"] = role;
    member["dropped"] = dropped;
    member["pid"] = pid;
    member["session"] = session;
    member["joined_ns"] = joined_ns;
    member["position"] = position;
    member["messages"] = messages;
    member["bytes"] = bytes;
    member["back_pressure"] = back_pressure;
    member["bytes_lost"] = bytes_lost;
    member["messages_lost"] = messages_lost;
    members.append(member);
}

// Whether somebody holds this byte of the file, as every participant that lives does.
inline bool lives(int fd, uint64_t byte) {
    struct flock range = {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(byte);
    range.l_len = 1;
    return fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

inline std::string text_of(const nb::bytes &metadata) { return std::string(metadata.c_str(), metadata.size()); }
inline const uint8_t *boot_of(const nb::bytes &boot_id) {
    if (boot_id.size() != 16) throw Error(Code::invalid, "a boot id has 16 bytes");
    return static_cast<const uint8_t *>(boot_id.data());
}

} // namespace penstock::bind
