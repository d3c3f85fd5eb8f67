// The members of a log: publications and subscriptions, each in a slot of its own. It knows roles, names, counts and shown
// positions. It does not know the claims of a dead publication: callers give `undo`, which gets each slot before it is cleared.
// docs/design/term_log.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/counts.hpp"
#include "ground/member_name.hpp"
#include "ground/participants.hpp"
#include "log/log_layout.hpp"

#include <string>

namespace penstock {

class LogMembers : public Participants<Slot> {
  public:
    LogMembers(int fd, const std::string &path, uint8_t *file, uint32_t count)
        : Participants(fd, path, file, count), control_(*reinterpret_cast<Control *>(file + control_offset)) {}
    LogMembers(LogMembers &&before, uint8_t *file, uint32_t count)
        : Participants(std::move(before), file, count), control_(*reinterpret_cast<Control *>(file + control_offset)) {}

    // ---- coming and going ----

    // Takes a slot. A publication gets a session; `start` sets a subscription's position. `name`: of a member of a sync queue.
    template <class Undo, class Start>
    void attach(Role role, uint64_t drop_after_ns, const std::string &name, Undo &&undo, Start &&start) {
        join(control_.lock.value, [&] {
            if (me().identity.state.relaxed() != static_cast<uint32_t>(State::free)) control_.totals.reaped.bump(1); // it died
            clear_slot(mine(), undo);
            refuse_conflict(role, undo);
            Slot::Identity &identity = me().identity;
            identity.pid.relaxed(static_cast<uint32_t>(getpid()));
            identity.session.relaxed(
                role == Role::subscription ? 0 : control_.sessions.value.add(1)); // SYNC -: under the lock; only its value counts
            identity.drop_after_ns.relaxed(drop_after_ns);
            identity.blocked_since.relaxed(0);
            write_name(identity, name, static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
            start();
            // SYNC -: looked at under the lock, which orders it (SYNC 6); a look without the lock only guesses
            identity.role.release(static_cast<uint32_t>(role));
            identity.state.release(static_cast<uint32_t>(State::active)); // SYNC -: the same
        });
    }
    template <class Undo> void detach(Undo &&undo) {
        leave(control_.lock.value, [&] { clear_slot(mine(), undo); });
    }
    // Leaves as a killed process would: the kernel lock goes, everything else stays for the living to repair.
    void abandon() {
        // SYNC -: for ThreadSanitizer, which does not see that the kernel's lock orders a slot's owners
        me().identity.departed.release(generation_of(id()));
        Participants::abandon();
    }

    // Under the lock: frees the slots of the dead. True if there was one.
    template <class Undo> bool reap(Undo &&undo) {
        // SYNC -: under the lock, which orders it (SYNC 6)
        return reap_all([](const Slot &s) { return s.identity.state.acquire() != static_cast<uint32_t>(State::free); },
                        [&](uint32_t index) {
                            clear_slot(index, undo);
                            control_.totals.reaped.bump(1);
                        });
    }

    // ---- who is there ----

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
    bool somebody_publishes() {
        if (publishes(slot(publisher_))) return true; // the one found last
        for (uint32_t i = 0; i < count(); ++i)
            if (publishes(slot(i))) return publisher_ = i, true;
        return false;
    }
    // The same with `ask_kernel`: and lives. For a thread that has no slot here; changes nothing.
    bool seems_published(bool ask_kernel) {
        for (uint32_t i = 0; i < count(); ++i)
            if (publishes(slot(i)) && (!ask_kernel || lives_elsewhere(i))) return true;
        return false;
    }

    // Where the subscriptions that writers wait for are: words to look at, nothing more.
    template <class Each> void positions(Each &&each) const {
        for (uint32_t i = 0; i < count(); ++i)
            if (slot(i).identity.state.relaxed() == static_cast<uint32_t>(State::active) &&
                slot(i).identity.role.relaxed() == static_cast<uint32_t>(Role::subscription))
                each(slot(i).reader.position);
    }
    // The position of the slowest subscription, or `otherwise`, if none is below that. Under the lock: nobody joins meanwhile.
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
    // The active subscription whose shown position is the lowest: its process, and that position. False if there is none.
    bool slowest(uint32_t &pid, uint64_t &position) const {
        bool found = false;
        for (uint32_t i = 0; i < count(); ++i) {
            const Slot &s = slot(i);
            if (!is_active(s, Role::subscription)) continue; // SYNC -: for an error's text; nothing is cleaned by it
            const uint64_t shown = s.reader.position.relaxed();
            if (found && shown >= position) continue;
            found = true;
            position = shown;
            pid = s.identity.pid.relaxed();
        }
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
            throw Error(Code::busy, where() + ": process " + std::to_string(slot(found).identity.pid.relaxed()) +
                                        (role == Role::exclusive ? " already publishes here" : " publishes here exclusively"));
        }
    }

    // Under the lock, and with the slot's byte held: undoes the last owner's claims, keeps its counts, frees the slot.
    template <class Undo> void clear_slot(uint32_t index, Undo &&undo) {
        Slot &s = slot(index);
        s.identity.departed.acquire(); // SYNC -: for ThreadSanitizer, as in abandon()
        undo(s);
        Control::Totals &totals = control_.totals;
        Slot::Counters &counts = s.counters;
        const bool reads = s.identity.role.relaxed() == static_cast<uint32_t>(Role::subscription);
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
    uint32_t publisher_ = 0; // where one was found last
};

} // namespace penstock
