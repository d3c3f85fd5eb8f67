// A channel's own status, as dictionaries that status.py understands; and what making one needs.
#pragma once

#include "bind/ground/bind.hpp"

#include "ground/channel_file.hpp"
#include "ground/counts.hpp"
#include "ground/deaths.hpp"
#include "ground/frame_header.hpp"
#include "ground/latency.hpp"
#include "ground/liveness.hpp"
#include "ground/open_channel.hpp"

#include <array>

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

// The latencies in a channel's file, as the words that latency.py reads.
class LatencyTable {
  public:
    LatencyTable(const Mapping &map, uint32_t slots) : table_(latency_of(map.bytes(), map.size(), slots, 0)), slots_(slots) {}
    // Of the present owner of a slot, which joined at that time.
    nb::object of(uint32_t slot, uint64_t joined_ns) const { return words(own_latencies(table_[slot], joined_ns)); }
    // Of all subscriptions that the channel has had.
    nb::object all() const {
        Latencies sum;
        for (uint32_t i = 0; i < slots_; ++i) add_latencies(sum, table_[i]);
        return words(sum);
    }

  private:
    static nb::object words(const Latencies &sum) { return nb::bytes(&sum, sizeof sum); }

    const LatencySlot *table_;
    const uint32_t slots_;
};

// One publication or subscription, as `Member` in status.py has it. `latency`: None of one that only writes.
inline void add_member(nb::list &members, uint32_t slot, const char *role, bool dropped, uint32_t pid, int32_t session,
                       uint64_t joined_ns, nb::object position, uint64_t messages, uint64_t bytes, uint64_t back_pressure,
                       uint64_t bytes_lost, nb::object messages_lost, nb::object latency) {
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
    member["latency"] = latency;
    members.append(member);
}

// One that died without closing, whose slot nobody has cleared yet. It is no member any more.
inline void add_dead(nb::list &dead, const char *role, uint32_t pid, uint64_t joined_ns) {
    nb::dict found;
    found["role"] = role;
    found["pid"] = pid;
    found["joined_ns"] = joined_ns;
    dead.append(found);
}

// What a channel has counted, as `Totals` in status.py has it. `messages_lost`: None where only the bytes are known.
inline nb::dict totals_dict(uint64_t messages_sent, uint64_t bytes_sent, uint64_t messages_received, uint64_t bytes_received,
                            uint64_t back_pressure, uint64_t bytes_lost, nb::object messages_lost, uint64_t repaired,
                            uint64_t dropped, uint64_t reaped) {
    nb::dict totals;
    totals["messages_sent"] = messages_sent;
    totals["bytes_sent"] = bytes_sent;
    totals["messages_received"] = messages_received;
    totals["bytes_received"] = bytes_received;
    totals["back_pressure"] = back_pressure;
    totals["bytes_lost"] = bytes_lost;
    totals["messages_lost"] = messages_lost;
    totals["repaired"] = repaired;
    totals["dropped"] = dropped;
    totals["reaped"] = reaped;
    return totals;
}

// The slots of a channel's file.
template <class Slot> class SlotTable {
  public:
    SlotTable(int fd, const Mapping &map, uint32_t count)
        : slots_(reinterpret_cast<const Slot *>(map.bytes() + slots_offset)), fd_(fd), count_(count) {}
    const Slot &operator[](uint32_t i) const { return slots_[i]; }
    bool held(uint32_t i) const { return holds_member(fd_, slots_offset + uint64_t{i} * sizeof(Slot)); } // the kernel's word
    // How many owners died. `deaths(slot)`: their count; `is_there(slot)`: whether it says that it has an owner.
    template <class DeathsIn, class IsThere> uint64_t died(DeathsIn &&deaths, IsThere &&is_there) const {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < count_; ++i)
            sum += deaths_of(
                deaths(slots_[i]), slots_[i].identity.joined_ns, [&] { return is_there(slots_[i]); }, [&] { return held(i); });
        return sum;
    }

  private:
    const Slot *slots_;
    const int fd_;
    const uint32_t count_;
};

inline std::string text_of(const nb::bytes &metadata) { return std::string(metadata.c_str(), metadata.size()); }
inline const uint8_t *boot_of(const nb::bytes &boot_id) {
    if (boot_id.size() != 16) throw Error(Code::invalid, "a boot id has 16 bytes");
    return static_cast<const uint8_t *>(boot_id.data());
}

} // namespace penstock::bind
