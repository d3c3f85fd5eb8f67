// Waits in a log, in the log under a sync queue, and at an endpoint of the network log.
#include "bind/why/wait_facts.hpp"

#include "log/files/log_file.hpp"
#include "log/log_members.hpp"
#include "log/term_buffer.hpp"
#include "net/receive/files/endpoint_members.hpp"

namespace penstock::bind {

namespace {

// The participants of one log, by their words: guesses, for people.
class LogWaits {
  public:
    LogWaits(int fd, const Mapping &map, const OpenedLog &log, bool sync)
        : slots_(fd, map, log.geometry.slot_count), count_(log.geometry.slot_count), window_(log.geometry.window), sync_(sync),
          control_(*reinterpret_cast<const Control *>(map.bytes() + control_offset)),
          buffer_(map.bytes() + terms_offset(count_), log.geometry.term_length, log.geometry.max_frame,
                  log.geometry.initial_term_id, log.geometry.stream) {}

    nb::list all() const {
        WaitFacts facts;
        for (uint32_t i = 0; i < count_; ++i) {
            const Slot &s = slots_[i];
            const bool there = s.identity.state.relaxed() != 0, lives = there && slots_.held(i);
            if (!lives && !died(i)) continue;
            const bool reads = role(s) == Role::subscription || (!there && s.identity.session.relaxed() == 0);
            WaitMember member{i,
                              reads ? "subscription" : "publication",
                              s.identity.pid.relaxed(),
                              s.identity.joined_ns.relaxed(),
                              !lives,
                              sync_ ? read_name(s.identity) : std::string(),
                              {}};
            if (lives) each_claim(s, [&](uint64_t, uint64_t length) { member.holds.emplace_back("claim", length); });
            facts.add(member, s.counters.wait, [&](WaitsFor what) {
                if (what == WaitsFor::readers) return WaitReasons{};
                return reads ? for_messages(i) : for_room(i);
            });
        }
        return facts.members();
    }

  private:
    static Role role(const Slot &s) { return static_cast<Role>(s.identity.role.relaxed()); }
    static bool publishes(const Slot &s) { return role(s) == Role::publication || role(s) == Role::exclusive; }
    // Whether the slot's last owner died, and nobody has the slot now.
    bool died(uint32_t i) const {
        const Slot &s = slots_[i];
        return !slots_.held(i) && (s.identity.state.relaxed() != 0 || s.counters.deaths.relaxed() % 2 == 1);
    }
    template <class Each> static void each_claim(const Slot &s, Each &&each) {
        for (const ClaimRecord &claim : s.writer.claims) {
            const uint64_t where = claim.where.relaxed();
            if ((where & claim_taken) != 0) each(where & ~uint64_t{frame_alignment - 1}, claim.length.relaxed());
        }
    }
    // A member of a sync queue has two slots, and does not get its own messages.
    bool is_own(const Slot &reader, const Slot &writer) const {
        return sync_ && reader.identity.pid.relaxed() == writer.identity.pid.relaxed() &&
               read_name(reader.identity) == read_name(writer.identity);
    }

    WaitReasons for_messages(uint32_t reader) const {
        const uint64_t tail = control_.tail.value.relaxed();
        const uint64_t position = slots_[reader].reader.position.relaxed() & ~uint64_t{frame_alignment - 1};
        WaitReasons reasons;
        if (position < tail && tail - position <= buffer_.size() && frame_length(buffer_.frame(position)->word0.relaxed()) <= 0) {
            for (uint32_t i = 0; i < count_; ++i)
                each_claim(slots_[i], [&](uint64_t at, uint64_t length) {
                    if (at == position) reasons.on.push_back({i, "claim", length});
                });
            if (!reasons.on.empty()) return reasons;
        }
        for (uint32_t i = 0; i < count_; ++i)
            if (publishes(slots_[i]) && slots_.held(i) && !is_own(slots_[reader], slots_[i]))
                reasons.on.push_back({i, "writes", 0});
        if (!reasons.on.empty()) return reasons;
        for (uint32_t i = 0; i < count_; ++i)
            if (died(i) && role(slots_[i]) != Role::subscription && slots_[i].identity.session.relaxed() != 0)
                reasons.on.push_back({i, "writes", 0});
        return reasons;
    }
    // Every subscription that leaves no room for the shortest message; if each leaves some, the slowest.
    WaitReasons for_room(uint32_t writer) const {
        const uint64_t tail = control_.tail.value.relaxed();
        uint64_t slowest = UINT64_MAX;
        each_reader([&](uint32_t, uint64_t position) { slowest = std::min(slowest, position); });
        WaitReasons reasons{{}, false};
        each_reader([&](uint32_t i, uint64_t position) {
            if (position < tail && (position == slowest || position + window_ < tail + header_length + frame_alignment))
                reasons.on.push_back({i, "behind", tail - position});
        });
        add_lock_holder(reasons, control_.lock.value, count_, writer);
        return reasons;
    }
    template <class Each> void each_reader(Each &&each) const {
        for (uint32_t i = 0; i < count_; ++i)
            if (role(slots_[i]) == Role::subscription &&
                slots_[i].identity.state.relaxed() == static_cast<uint32_t>(State::active))
                each(i, slots_[i].reader.position.relaxed());
    }

    const SlotTable<Slot> slots_;
    const uint32_t count_;
    const uint64_t window_;
    const bool sync_;
    const Control &control_;
    const TermBuffer buffer_;
};

} // namespace

nb::list log_waits(int fd, const std::string &path, bool sync) {
    const Mapping map(fd, size_of_file(fd), false);
    return LogWaits(fd, map, read_header(map.bytes(), map.size(), path, sync ? Kind::sync : Kind::log), sync).all();
}

// What its subscriptions wait for is on other machines: the sessions say where.
nb::list endpoint_waits(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    const OpenedEndpoint endpoint = read_endpoint(map.bytes(), map.size(), path);
    const SlotTable<EndpointSlot> slots(fd, map, endpoint.options.slot_count);
    WaitFacts facts;
    for (uint32_t i = 0; i < endpoint.options.slot_count; ++i) {
        const EndpointSlot &s = slots[i];
        if (!EndpointMembers::subscribes(s) || !slots.held(i)) continue;
        facts.add({i, "subscription", s.identity.pid.relaxed(), s.identity.joined_ns.relaxed(), false, {}, {}}, s.subscriber.wait,
                  [](WaitsFor) { return WaitReasons{}; });
    }
    return facts.members();
}

} // namespace penstock::bind
