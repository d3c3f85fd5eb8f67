// A channel seen from outside: totals, members, latencies, as its file says at one moment. Read without locks, and for people:
// nothing is decided by it. Each kind reads its own file in its *_status.hpp.
#pragma once

#include "ground/files/channel_file.hpp"
#include "ground/files/counts.hpp"
#include "ground/files/latency.hpp"
#include "ground/liveness.hpp"
#include "ground/members/deaths.hpp"
#include "ground/members/member_name.hpp"

#include <array>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock {

// One publication or subscription. Positions in bytes, times in nanoseconds since 1970. Counts are its own.
struct MemberStatus {
    uint32_t slot = 0;
    const char *role = ""; // "publication", "exclusive", "subscription"; of a pipe its role there
    bool dropped = false;  // a subscription that was too slow
    uint32_t pid = 0;
    int32_t session = 0;
    uint64_t joined_ns = 0;
    std::optional<uint64_t> position{}; // of one that reads
    uint64_t messages = 0, bytes = 0, back_pressure = 0, bytes_lost = 0;
    std::optional<uint64_t> messages_lost{}; // none: only bytes are known
    std::optional<std::string> name{};       // sync, pipe
    std::optional<uint64_t> lag{};           // pipe: bytes that wait for it
    std::optional<Latencies> latency{};      // of one that reads

    bool reads() const {
        const std::string_view its(role);
        return its != "publication" && its != "exclusive" && its != "push";
    }
    bool writes() const {
        const std::string_view its(role);
        return its != "subscription" && its != "pull" && its != "tap";
    }
};

// One that died without closing, whose slot nobody has cleared yet. It is no member any more.
struct DeadMember {
    const char *role;
    uint32_t pid;
    uint64_t joined_ns;
};

// Counts over a channel's life, of present and former members. A message counts as sent once, as received once per subscription.
struct ChannelTotals {
    uint64_t messages_sent = 0, bytes_sent = 0, messages_received = 0, bytes_received = 0;
    uint64_t back_pressure = 0;              // sends that found no room
    uint64_t bytes_lost = 0;                 //
    std::optional<uint64_t> messages_lost{}; // none: only bytes are known
    uint64_t repaired = 0;                   // claims of dead writers that were padded
    uint64_t dropped = 0;                    // slow subscriptions that were disconnected
    uint64_t reaped = 0;                     // members that died without closing
    uint64_t restarts = 0;                   // publications that took over, as each subscription saw it
    uint64_t conflated = 0;                  // messages that were passed over on purpose
};

struct ChannelStatus {
    bool open = false;           // it has no publication yet: the options, the position and the totals are 0
    uint64_t size = 0;           // bytes of shared memory
    int64_t created_ns = 0;      //
    uint64_t capacity = 0;       // bytes by which writers may be ahead of a slow reader
    uint32_t max_members = 0;    // at once
    uint64_t position = 0;       // the end of the stream, in bytes
    uint64_t limit = 0;          // log, ring: the position that writers may not pass now
    uint32_t slots_taken = 0;    // log: by the dead, too
    uint32_t buffers_leased = 0; // frames: that readers hold
    uint64_t pipes = 0, messages_unread = 0, messages_redelivered = 0, pipes_taken_over = 0; // pipe
    ChannelTotals totals;
    std::vector<MemberStatus> members;
    std::vector<DeadMember> dead;
    Latencies latency; // of the messages of all subscriptions that there were

    // Bytes by which the slowest reader is behind. Readers show their positions from time to time: it may be less by now.
    uint64_t lag() const {
        uint64_t most = 0;
        for (const MemberStatus &member : members)
            if (member.position && !member.dropped)
                most = std::max(most, member.lag.value_or(position > *member.position ? position - *member.position : 0));
        return most;
    }
    size_t writers() const {
        return static_cast<size_t>(
            std::count_if(members.begin(), members.end(), [](const MemberStatus &m) { return m.writes(); }));
    }
    size_t readers() const {
        return static_cast<size_t>(
            std::count_if(members.begin(), members.end(), [](const MemberStatus &m) { return m.reads(); }));
    }
};

// The latencies in a channel's file.
class LatencyTable {
  public:
    LatencyTable(const Mapping &map, uint32_t slots) : table_(latency_of(map.bytes(), map.size(), slots, 0)), slots_(slots) {}
    // Of the present owner of a slot, which joined at that time.
    Latencies of(uint32_t slot, uint64_t joined_ns) const { return own_latencies(table_[slot], joined_ns); }
    // Of all subscriptions that the channel has had.
    Latencies all() const {
        Latencies sum;
        for (uint32_t i = 0; i < slots_; ++i) add_latencies(sum, table_[i]);
        return sum;
    }

  private:
    const LatencySlot *table_;
    const uint32_t slots_;
};

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

} // namespace penstock
