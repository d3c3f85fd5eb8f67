// A channel's own status, as dictionaries that status.py understands; and what making one needs.
#pragma once

#include "bind/ground/bind.hpp"

#include "ground/files/open_channel.hpp"
#include "ground/messages/frame_header.hpp"
#include "status/channel_status.hpp"

namespace penstock::bind {

// The words of every kind. A ring's capacity is what a term is to a log: recordings count terms by it.
inline void describe_common(nb::dict about, const OpenedChannel &channel, uint32_t term_length, uint32_t slots, uint64_t start,
                            uint64_t epoch, uint32_t max_frame) {
    about["term_length"] = term_length;
    about["slots"] = slots;
    about["max_members"] = slots; // of most kinds: a member of a sync queue takes two
    about["start_position"] = start;
    about["epoch"] = epoch;
    about["created_ns"] = channel.created_ns;
    about["creator_pid"] = channel.creator_pid;
    about["metadata"] = nb::bytes(channel.metadata.data(), channel.metadata.size());
    about["boot_id"] = nb::bytes(channel.boot_id, 16);
    about["max_payload"] = max_frame - header_length;
}

// A member's name as Python's text, which keeps bytes that are no UTF-8 as surrogate escapes.
inline nb::object name_text(const std::string &name) {
    nb::object text = nb::steal(PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape"));
    if (!text.is_valid()) throw nb::python_error();
    return text;
}

// Latencies as the words that latency.py reads.
inline nb::bytes latency_words(const Latencies &sum) { return nb::bytes(&sum, sizeof sum); }

template <class Value> nb::object or_none(const std::optional<Value> &value) { return value ? nb::cast(*value) : nb::none(); }

// Members and the dead as status.py has them.
inline nb::list members_list(const std::vector<MemberStatus> &found) {
    nb::list members;
    for (const MemberStatus &one : found) {
        nb::dict member;
        member["slot"] = one.slot;
        member["role"] = one.role;
        member["dropped"] = one.dropped;
        member["pid"] = one.pid;
        member["session"] = one.session;
        member["joined_ns"] = one.joined_ns;
        member["position"] = or_none(one.position);
        member["messages"] = one.messages;
        member["bytes"] = one.bytes;
        member["back_pressure"] = one.back_pressure;
        member["bytes_lost"] = one.bytes_lost;
        member["messages_lost"] = or_none(one.messages_lost);
        member["name"] = one.name ? name_text(*one.name) : nb::none();
        member["lag"] = or_none(one.lag);
        member["latency"] = one.latency ? nb::object(latency_words(*one.latency)) : nb::none();
        members.append(member);
    }
    return members;
}
inline nb::list dead_list(const std::vector<DeadMember> &found) {
    nb::list dead;
    for (const DeadMember &one : found) {
        nb::dict member;
        member["role"] = one.role;
        member["pid"] = one.pid;
        member["joined_ns"] = one.joined_ns;
        dead.append(member);
    }
    return dead;
}

// What a channel's file says, added to the words of its header.
inline void describe_status(nb::dict about, const ChannelStatus &status) {
    const ChannelTotals &t = status.totals;
    nb::dict totals;
    totals["messages_sent"] = t.messages_sent;
    totals["bytes_sent"] = t.bytes_sent;
    totals["messages_received"] = t.messages_received;
    totals["bytes_received"] = t.bytes_received;
    totals["back_pressure"] = t.back_pressure;
    totals["bytes_lost"] = t.bytes_lost;
    totals["messages_lost"] = or_none(t.messages_lost);
    totals["repaired"] = t.repaired;
    totals["dropped"] = t.dropped;
    totals["reaped"] = t.reaped;
    totals["restarts"] = t.restarts;
    totals["conflated"] = t.conflated;
    about["totals"] = totals;
    about["capacity"] = status.capacity;
    about["position"] = status.position;
    about["latency"] = latency_words(status.latency);
    about["members"] = members_list(status.members);
    about["dead"] = dead_list(status.dead);
}

inline std::string text_of(const nb::bytes &metadata) { return std::string(metadata.c_str(), metadata.size()); }
inline const uint8_t *boot_of(const nb::bytes &boot_id) {
    if (boot_id.size() != 16) throw Error(Code::invalid, "a boot id has 16 bytes");
    return static_cast<const uint8_t *>(boot_id.data());
}

} // namespace penstock::bind
