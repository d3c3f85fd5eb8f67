// What a channel's file says of its waits, as Python reads it: participants, their notes, and for whom each of them would wait.
// Changes nothing and takes no slot.
#pragma once

#include "bind/ground/status.hpp"

#include "ground/members/member_name.hpp"
#include "ground/members/participants.hpp"
#include "ground/wait_note.hpp"

#include <string>
#include <utility>
#include <vector>

namespace penstock::bind {

// A participant that keeps another one waiting. `how`: "writes", "behind", "claim", "leases", "unread", "fills", "full",
// "answers", "locks"; `amount`: bytes, frames or messages of that.
struct WaitsOn {
    uint32_t slot;
    const char *how;
    uint64_t amount;
};
// `any`: one of them suffices to end the wait; if not, each of them has to move.
struct WaitReasons {
    std::vector<WaitsOn> on;
    bool any = true;
};

// One participant. `dead`: it died, and nobody else has its slot yet.
struct WaitMember {
    uint32_t slot;
    const char *role;
    uint32_t pid;
    uint64_t joined_ns;
    bool dead;
    std::string name;
    std::vector<std::pair<const char *, uint64_t>> holds; // "claim" with its bytes, "frames" with their number
};

class WaitFacts {
  public:
    // `note`: the participant's. `reasons(what)`: for whom it waits; asked only if it notes a wait. The note is read before and
    // after: a wait that ended meanwhile is none.
    template <class Reasons> void add(const WaitMember &member, const Atomic<uint64_t> &note, Reasons &&reasons) {
        const uint64_t before = member.dead ? 0 : note.relaxed();
        WaitNote wait = WaitNote::of(before);
        WaitReasons found;
        if (wait.what != WaitsFor::nothing) found = reasons(wait.what);
        acquire_fence(); // SYNC -: for people; the note is read again behind the words that belong to it
        if (!member.dead && note.relaxed() != before) wait = {};
        nb::dict about;
        about["slot"] = member.slot;
        about["role"] = member.role;
        about["pid"] = member.pid;
        about["joined_ns"] = member.joined_ns;
        about["dead"] = member.dead;
        about["name"] = name_text(member.name);
        nb::list holds, on;
        for (const auto &[what, amount] : member.holds) holds.append(nb::make_tuple(what, amount));
        about["holds"] = holds;
        about["wait"] = nb::none();
        if (wait.what != WaitsFor::nothing) {
            constexpr const char *names[] = {"nothing", "messages", "room", "readers"};
            for (const WaitsOn &one : found.on) on.append(nb::make_tuple(one.slot, one.how, one.amount));
            about["wait"] =
                nb::make_tuple(names[static_cast<size_t>(wait.what)], wait.timed, wait.thread, wait.since_ns, wait.alone);
        }
        about["on"] = on;
        about["any"] = found.any;
        members_.append(about);
    }
    nb::list members() const { return members_; }

  private:
    nb::list members_;
};

// The participant that holds the lock for rare work, if another one waits for it: it may not run.
inline void add_lock_holder(WaitReasons &reasons, const Atomic<uint64_t> &lock, uint32_t slots, uint32_t waiter) {
    const uint64_t holder = lock.relaxed();
    const uint32_t slot = slot_of(holder);
    if (holder != 0 && slot < slots && slot != waiter) reasons.on.push_back({slot, "locks", 0});
}

nb::list log_waits(int fd, const std::string &path, bool sync);
nb::list ring_waits(int fd, const std::string &path);
nb::list frames_waits(int fd, const std::string &path);
nb::list pipe_waits(int fd, const std::string &path);
nb::list endpoint_waits(int fd, const std::string &path);

} // namespace penstock::bind
