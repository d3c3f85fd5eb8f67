// What the file of a channel without a first publication says: who is there.
#pragma once

#include "log/files/log_file.hpp"
#include "pipe/files/pipe_file.hpp"
#include "ring/ring_layout.hpp"
#include "status/channel_status.hpp"

namespace penstock {

// The member whose slot is at `at`. One that joins or leaves at this moment may be shown with another owner's words.
inline std::optional<MemberStatus> read_open_member(Kind kind, uint32_t index, const uint8_t *at) {
    MemberStatus member{index, "subscription"};
    const auto who = [&](const auto &identity) {
        member.pid = identity.pid.relaxed();
        member.joined_ns = identity.joined_ns.relaxed();
    };
    if (kind == Kind::ring) {
        const auto &s = *reinterpret_cast<const RingSlot *>(at);
        // SYNC -: for people; nothing is decided by it
        if (s.identity.state.acquire() != 1) return std::nullopt;
        who(s.identity);
    } else if (kind == Kind::pipe) {
        const auto &s = *reinterpret_cast<const PeerSlot *>(at);
        // SYNC -: for people; nothing is decided by it
        if (s.identity.state.acquire() != 1) return std::nullopt;
        who(s.identity);
        member.role = role_name(static_cast<PeerRole>(s.identity.role.relaxed()));
        member.name = read_name(s.identity);
    } else {
        const auto &s = *reinterpret_cast<const Slot *>(at);
        // SYNC -: for people; nothing is decided by it
        if (s.identity.state.acquire() == 0 || s.identity.role.acquire() == 0) return std::nullopt;
        who(s.identity);
        if (kind == Kind::sync) member.name = read_name(s.identity);
    }
    if (kind != Kind::pipe) member.position = 0;
    if (kind == Kind::ring || kind == Kind::pipe) member.messages_lost = 0;
    return member;
}

inline ChannelStatus read_open_status(int fd, const OpenChannel &file) {
    const auto *header = reinterpret_cast<const Header *>(file.map->bytes());
    const KindLayout &kind = file.part.kind;
    ChannelStatus status;
    status.open = true;
    status.size = size_of_file(fd);
    status.created_ns = header->created_ns;
    status.totals.messages_lost = 0;
    status.max_members = kind.number == Kind::sync ? file.part.slots / 2 : file.part.slots;
    for (uint32_t i = 0; i < file.part.slots; ++i) {
        const uint64_t at = slots_offset + i * kind.slot_size;
        if (!holds_member(fd, at)) continue;
        if (auto member = read_open_member(kind.number, i, file.map->bytes() + at)) status.members.push_back(std::move(*member));
    }
    return status;
}

} // namespace penstock
