// Waits in a pipe channel.
#include "bind/why/wait_facts.hpp"

#include "pipe/files/pipe_layout.hpp"

namespace penstock::bind {

namespace {

class PipeWaits {
  public:
    PipeWaits(int fd, const Mapping &map, const PipeGeometry &geometry)
        : slots_(fd, map, geometry.max_members), count_(geometry.max_members), links_max_(geometry.max_pipes),
          links_(reinterpret_cast<const PipeLink *>(map.bytes() + geometry.links_offset())),
          control_(*reinterpret_cast<const PipeControl *>(map.bytes() + control_offset)) {}

    nb::list all() const {
        WaitFacts facts;
        for (uint32_t i = 0; i < count_; ++i) {
            const PeerSlot &s = slots_[i];
            const bool lives = s.identity.state.relaxed() == 1 && slots_.held(i);
            if (!lives && !died(i)) continue;
            facts.add({i,
                       role_name(role(i)),
                       s.identity.pid.relaxed(),
                       s.identity.joined_ns.relaxed(),
                       !lives,
                       read_name(s.identity),
                       {}},
                      s.counters.wait, [&](WaitsFor what) {
                          if (what == WaitsFor::readers) return WaitReasons{};
                          return what == WaitsFor::room ? for_room(i) : for_messages(i);
                      });
        }
        return facts.members();
    }

  private:
    PeerRole role(uint32_t i) const { return static_cast<PeerRole>(slots_[i].identity.role.relaxed()); }
    uint64_t id(uint32_t i) const { return participant_id(slots_[i].identity.generation.relaxed(), i); }
    bool died(uint32_t i) const {
        return !slots_.held(i) && (slots_[i].identity.state.relaxed() == 1 || slots_[i].counters.deaths.relaxed() % 2 == 1);
    }
    template <class Each> void each_link_from(uint64_t from, Each &&each) const {
        for (uint32_t k = 0; k < links_max_; ++k) {
            const PipeLink &link = links_[k];
            if (link.ends.state.relaxed() != 1 || link.ends.from.relaxed() != from) continue;
            const uint32_t to = slot_of(link.ends.to.relaxed());
            if (to < count_) each(to, link);
        }
    }

    // The peers that send to this one. A requester waits for the servers that have its requests, if it can be seen which.
    WaitReasons for_messages(uint32_t reader) const {
        WaitReasons reasons;
        if (role(reader) == PeerRole::request)
            each_link_from(id(reader), [&](uint32_t to, const PipeLink &link) {
                uint64_t answered = 0;
                each_link_from(id(to), [&](uint32_t back, const PipeLink &replies) {
                    if (back == reader) answered += replies.writer.messages.relaxed();
                });
                const uint64_t sent = link.writer.messages.relaxed();
                if (sent > answered && role(to) == PeerRole::reply) reasons.on.push_back({to, "answers", sent - answered});
            });
        for (const bool dead : {false, true})
            for (uint32_t i = 0; i < count_ && (reasons.on.empty() || reasons.on.back().how[0] == 'w'); ++i)
                if (i != reader && (dead ? died(i) : slots_.held(i)) && sends_to(role(i), role(reader)))
                    reasons.on.push_back({i, "writes", 0});
        return reasons;
    }
    // The peers whose pipes hold messages of this one. A tap's copy is written with the message itself.
    WaitReasons for_room(uint32_t writer) const {
        WaitReasons reasons;
        each_link_from(id(writer), [&](uint32_t to, const PipeLink &link) {
            const uint64_t there = link.writer.messages.relaxed(), read = link.reader.messages.relaxed();
            if (there > read) reasons.on.push_back({to, "full", there - read});
        });
        add_lock_holder(reasons, control_.lock.value, count_, writer);
        return reasons;
    }

    const SlotTable<PeerSlot> slots_;
    const uint32_t count_, links_max_;
    const PipeLink *links_;
    const PipeControl &control_;
};

} // namespace

nb::list pipe_waits(int fd, const std::string &path) {
    const Mapping map(fd, size_of_file(fd), false);
    return PipeWaits(fd, map, read_pipe_header(map.bytes(), map.size(), path).geometry).all();
}

} // namespace penstock::bind
