// The members of a log: publications and subscriptions, each in its own slot. It knows roles, names, counts and shown
// positions. It does not know the claims of a dead publication: callers give `undo`, which gets each slot before it is cleared.
// docs/design/term_log.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/files/counts.hpp"
#include "ground/members/member_name.hpp"
#include "ground/members/participants.hpp"
#include "ground/members/process_name.hpp"
#include "log/files/log_layout.hpp"
#include "log/member_events.hpp"

#include <string>

namespace penstock {

class LogMembers : public Participants<Slot> {
  public:
    // `events`: a sync queue's; null elsewhere, and while the channel is open.
    LogMembers(int fd, const std::string &path, uint8_t *file, uint32_t count, uint32_t each, MemberEvents *events)
        : Participants(fd, path, file, count, each), control_(*reinterpret_cast<Control *>(file + control_offset)),
          events_(events) {}
    LogMembers(LogMembers &&before, uint8_t *file, uint32_t count, MemberEvents *events)
        : Participants(std::move(before), file, count), control_(*reinterpret_cast<Control *>(file + control_offset)),
          events_(events) {}
    const MemberEvents *events() const { return events_; }

    // ---- joining and leaving ----

    // Takes a slot. A publication gets a session; `start` sets a subscription's position. `name`: of a member of a sync queue.
    template <class Undo, class Start>
    void attach(Role role, uint64_t drop_after_ns, const MemberName &name, Undo &&undo, Start &&start) {
        join(control_.lock.value, [&] {
            if (me().identity.state.relaxed() != static_cast<uint32_t>(State::free)) count_death(me().counters.deaths);
            clear_slot(mine(), undo);
            refuse_conflict(role, undo);
            if (name.is_own()) refuse_namesake(role, name.now(), undo);
            Slot::Identity &identity = me().identity;
            identity.pid.relaxed(static_cast<uint32_t>(getpid()));
            identity.session.relaxed(
                role == Role::subscription ? 0 : control_.sessions.value.add(1)); // SYNC -: under the lock; only its value counts
            identity.drop_after_ns.relaxed(drop_after_ns);
            identity.blocked_since.relaxed(0);
            me().counters.wait.relaxed(0);
            write_name(identity, name.now(), static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
            start();
            if (events_ != nullptr && role == Role::subscription) add_event(*events_, true, mine(), identity);
            enter();
            begin_owner(me().counters.deaths);
            // SYNC -: looked at under the lock, which orders it (SYNC 6); a look without the lock only guesses
            identity.role.release(static_cast<uint32_t>(role));
            identity.state.release(static_cast<uint32_t>(State::active)); // SYNC -: the same
        });
    }
    template <class Undo> void detach(Undo &&undo) {
        leave(control_.lock.value, [&] { clear_slot(mine(), undo); });
    }
    // Leaves as a killed process would: the kernel lock goes, everything else stays for the living to repair.
    void crash_for_test() {
        // SYNC -: for ThreadSanitizer, which does not see that the kernel's lock orders a slot's owners
        me().identity.departed.release(generation_of(id()));
        Participants::crash_for_test();
    }

    // Under the lock: frees the slots of the dead. True if there was one.
    template <class Undo> bool reap(Undo &&undo) {
        // SYNC -: under the lock, which orders it (SYNC 6)
        return reap_all([](const Slot &s) { return s.identity.state.acquire() != static_cast<uint32_t>(State::free); },
                        [&](uint32_t index) {
                            count_death(slot(index).counters.deaths);
                            clear_slot(index, undo);
                        });
    }

    // ---- present members ----

    static bool is_active(const Slot &s, Role role) {
        // SYNC -: decisions are made under the lock, which orders it (SYNC 6); a look without the lock only guesses
        return s.identity.state.acquire() == static_cast<uint32_t>(State::active) &&
               s.identity.role.acquire() == static_cast<uint32_t>(role); // SYNC -: the same
    }
    static bool publishes(const Slot &s) { return is_active(s, Role::publication) || is_active(s, Role::exclusive); }

    template <class Visit> void each_publication(Visit &&visit) const {
        for (uint32_t i = 0; i < count(); ++i)
            if (publishes(slot(i))) visit(slot(i));
    }
    bool has_publisher() {
        if (publishes(slot(publisher_))) return true; // the one found last
        for (uint32_t i = 0; i < count(); ++i)
            if (publishes(slot(i))) return publisher_ = i, true;
        return false;
    }
    // The same with `check_kernel`: and lives. For a thread that has no slot here; changes nothing.
    bool may_have_publisher(bool check_kernel) {
        for (uint32_t i = 0; i < count(); ++i)
            if (publishes(slot(i)) && (!check_kernel || lives_elsewhere(i))) return true;
        return false;
    }

    // Where the subscriptions that writers wait for are: words to look at, nothing more.
    template <class Each> void positions(Each &&each) const {
        for (uint32_t i = 0; i < count(); ++i)
            if (slot(i).identity.state.relaxed() == static_cast<uint32_t>(State::active) &&
                slot(i).identity.role.relaxed() == static_cast<uint32_t>(Role::subscription))
                each(slot(i).reader.position);
    }
    // The subscriptions that live, by the kernel's word; `visit` gets their slots. For people and for waits: nothing is cleaned
    // by it.
    template <class Visit> void each_reader(Visit &&visit) {
        for (uint32_t i = 0; i < count(); ++i)
            if (lives(i, [](const Slot &s) { return is_active(s, Role::subscription); })) visit(slot(i));
    }

    // The position of the slowest subscription, or `otherwise`, if none is below that. Under the lock: no member joins meanwhile.
    uint64_t slowest(uint64_t otherwise) const {
        for (uint32_t i = 0; i < count(); ++i) {
            if (!is_active(slot(i), Role::subscription)) continue;
            // SYNC 3: pairs with LogReader::show_position; forbids cleaning a frame before its reader's last look at it
            otherwise = std::min(otherwise, slot(i).reader.position.acquire());
        }
        return otherwise;
    }
    // How many subscriptions there are whose shown position is as asked.
    template <class Which> uint32_t subscriptions(Which &&which) const {
        uint32_t found = 0;
        for (uint32_t i = 0; i < count(); ++i)
            // SYNC -: for a count; nothing is cleaned by it
            if (is_active(slot(i), Role::subscription) && which(slot(i).reader.position.acquire())) ++found;
        return found;
    }
    // The living subscription whose shown position is the lowest: its process, and that position. False if there is none.
    bool slowest(uint32_t &pid, uint64_t &position) {
        bool found = false;
        each_reader([&](const Slot &s) {
            const uint64_t shown = s.reader.position.relaxed();
            if (found && shown >= position) return;
            found = true;
            position = shown;
            pid = s.identity.pid.relaxed();
        });
        return found;
    }
    // Whether a living subscription that refuses to make writers wait shows a position below `needed`; its name.
    bool refused(uint64_t needed, uint64_t window, std::string &name) const {
        for (uint32_t i = 0; i < count(); ++i) {
            const Slot &s = slot(i);
            if (!is_active(s, Role::subscription) || s.identity.drop_after_ns.relaxed() != refuses_to_wait) continue;
            // SYNC -: names the one that refuses; nothing is cleaned by it
            if (s.reader.position.acquire() + window >= needed) continue;
            name = read_name(s.identity);
            return true;
        }
        return false;
    }

  private:
    template <class Undo> void refuse_conflict(Role role, Undo &&undo) {
        if (role == Role::subscription) return;
        for (int attempt = 0; attempt < 2; ++attempt) {
            uint32_t found = count();
            for (uint32_t i = 0; i < count(); ++i)
                if (i != mine() && (role == Role::exclusive ? publishes(slot(i)) : is_active(slot(i), Role::exclusive)))
                    found = i;
            if (found == count()) return;
            if (attempt == 0 && reap(undo)) continue;
            throw Error(Code::busy, where() + ": " + process_name(slot(found).identity.pid.relaxed(), locks().descriptor()) +
                                        (role == Role::exclusive ? " already publishes here" : " publishes here exclusively"));
        }
    }

    // A given name has one living reader and one living writer: both may belong to the same member.
    template <class Undo> void refuse_namesake(Role role, const std::string &name, Undo &&undo) {
        const bool reads = role == Role::subscription;
        for (uint32_t i = 0; i < count(); ++i) {
            const Slot &s = slot(i);
            if (i == mine() || (reads ? !is_active(s, role) : !publishes(s)) || read_name(s.identity) != name) continue;
            const uint32_t pid = s.identity.pid.relaxed();
            if (reap(undo) && !is_active(s, role) && !publishes(s)) continue; // it has died
            throw_name_taken(where(), name, process_name(pid, locks().descriptor()));
        }
    }

    // Under the lock, and with the slot's byte held: undoes the last owner's claims, keeps its counts, frees the slot.
    template <class Undo> void clear_slot(uint32_t index, Undo &&undo) {
        Slot &s = slot(index);
        s.identity.departed.acquire(); // SYNC -: for ThreadSanitizer, as in crash_for_test()
        undo(s);
        Control::Totals &totals = control_.totals;
        Slot::Counters &counts = s.counters;
        const bool reads = s.identity.role.relaxed() == static_cast<uint32_t>(Role::subscription);
        if (events_ != nullptr && reads) add_event(*events_, false, index, s.identity);
        move_count(counts.messages, reads ? totals.messages_received : totals.messages_sent);
        move_count(counts.bytes, reads ? totals.bytes_received : totals.bytes_sent);
        move_count(counts.back_pressure, totals.back_pressure);
        move_count(counts.bytes_lost, totals.bytes_lost);
        counts.aborted.relaxed(0);
        counts.fragments.relaxed(0);
        // SYNC -: under the lock, which orders it (SYNC 6)
        s.identity.role.release(static_cast<uint32_t>(Role::none));
        s.identity.state.release(static_cast<uint32_t>(State::free)); // SYNC -: the same
    }

    Control &control_;
    MemberEvents *const events_;
    uint32_t publisher_ = 0; // where one was found last
};

} // namespace penstock
