// The peers of a pipe channel: this peer's slot in the table, and which others live. Peers that attach, detach, or find
// another one dead change the table under one robust lock, which alone orders it (SYNC 6). A look without the lock is only a
// guess. Knows no pipe. docs/design/patterns.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/members/member_name.hpp"
#include "ground/members/participants.hpp"
#include "ground/members/process_name.hpp"
#include "pipe/files/pipe_file.hpp"
#include "pipe/table/peer_counters.hpp"

namespace penstock {

enum class WhenFull : uint32_t { wait = 0, drop_newest = 1, drop_oldest = 2 };
inline constexpr const char *when_full_name[] = {"wait", "drop_newest", "drop_oldest"};

class PeerTable {
  public:
    PeerTable(const PipeFile &file, int fd, const std::string &path, PeerRole role, MemberName name, WhenFull when_full)
        : control_(&file.control()), role_(role), when_full_(when_full), name_(std::move(name)),
          members_(fd, path, file.mapping()->bytes(), file.geometry().max_members) {}
    // The same peer, in the same slot, once the channel is decided.
    PeerTable(const PipeFile &file, PeerTable &&before)
        : control_(&file.control()), role_(before.role_), when_full_(before.when_full_), name_(before.name_),
          members_(std::move(before.members_), file.mapping()->bytes(), file.geometry().max_members),
          seen_changes_(control_->changes.value.relaxed() - 1) {}
    PeerTable(const PeerTable &) = delete;
    PeerTable &operator=(const PeerTable &) = delete;

    // ---- this peer ----

    const std::string &path() const { return members_.path(); }
    const std::string &where() const { return members_.where(); } // for errors
    const ByteLocks &locks() const { return members_.locks(); }
    bool forked() const { return members_.forked(); }
    uint64_t id() const { return members_.id(); }
    uint32_t mine() const { return members_.mine(); }
    PeerSlot &me() const { return members_.me(); }
    Atomic<uint32_t> &bell() const { return me().bell.event; }
    PeerCounters counters() const { return PeerCounters(me()); }
    PeerRole role() const { return role_; }
    WhenFull when_full() const { return when_full_; }

    // Takes a slot. `connect` makes this peer's pipes. `attached` runs after all peers were notified. Both run under the lock.
    template <class Connect, class Attached> void attach(Connect &&connect, Attached &&attached) {
        members_.join(control_->lock.value, [&] {
            try {
                reap();
                fill_slot();
                connect();
            } catch (...) {
                clear_slot(mine());
                publish_change();
                throw;
            }
            publish_change();
            attached();
        });
    }
    // Gives the slot back. `close` runs first, without the lock; `repair` under it, once the slot is free.
    template <class Close, class Repair> void detach(Close &&close, Repair &&repair) {
        if (!members_.begin_to_leave()) return;
        close();
        members_.leave(control_->lock.value, [&] {
            clear_slot(mine());
            repair();
            publish_change();
        });
    }
    void crash_for_test() { members_.crash_for_test(); } // detaches as a killed process would; for tests
    void forget() { members_.forget(); }                 // in a forked child: the slot stays its parent's
    void return_after_fork() { members_.return_after_fork(); }

    // ---- the others: guesses, which any thread may make without the lock ----

    uint32_t count() const { return members_.count(); }
    PeerSlot &slot(uint32_t index) const { return members_.slot(index); }
    bool present(uint32_t index) const { return slot(index).identity.state.relaxed() == 1; }
    PeerRole role_of(uint32_t index) const { return static_cast<PeerRole>(slot(index).identity.role.relaxed()); }
    bool alive(uint64_t id) const {
        const uint32_t index = slot_of(id);
        if (index >= count()) return false; // also for 0: no peer
        return present(index) && slot(index).identity.generation.relaxed() == generation_of(id);
    }
    std::string name_of(uint64_t id) const {
        const uint32_t index = slot_of(id);
        if (index >= count()) return {};
        const PeerSlot::Identity &identity = slot(index).identity;
        const std::string name = read_name(identity);
        return identity.generation.relaxed() == generation_of(id) ? name : std::string();
    }
    // Living peers that this one sends to. One that has never looked for a message may have no pipe.
    uint32_t readers() const {
        uint32_t found = 0;
        for (uint32_t i = 0; i < count(); ++i)
            found += i != mine() && members_.lives(i, [&](const PeerSlot &s) {
                const auto role = static_cast<PeerRole>(s.identity.role.relaxed());
                return s.identity.state.relaxed() == 1 && role != PeerRole::tap && sends_to(role_, role);
            });
        return found;
    }
    // Whether there has been a peer that sends to this one. Pushed messages wait for pullers, so there any puller's counts.
    bool ever_written() const { return (role_ == PeerRole::pull ? control_->pushed.value : me().identity.met).relaxed() == 1; }
    bool has_writer() {                        // only this peer's own thread
        if (writes_here(writer_)) return true; // the one found last
        for (uint32_t i = 0; i < count(); ++i)
            if (writes_here(i)) return writer_ = i, true;
        return false;
    }
    // The same for any thread; with `check_kernel`, those that died do not count.
    bool may_have_writer(bool check_kernel) {
        for (uint32_t i = 0; i < count(); ++i)
            if (writes_here(i) && (!check_kernel || members_.lives_elsewhere(i))) return true;
        return false;
    }

    // ---- changes of the table; if the peer that makes one dies, another peer begins it again ----

    // Whether the table has changed since this peer read it. A hint: the table is read under its lock.
    bool changed() const { return control_->changes.value.relaxed() != seen_changes_; }
    void mark_changes_seen() { seen_changes_ = control_->changes.value.relaxed(); }
    const Atomic<uint32_t> &changes() const { return control_->changes.value; }
    uint32_t seen_changes() const { return seen_changes_; }

    // Does `work` under the table's lock. False: another peer keeps the lock, and nothing was done.
    template <class Work> bool under_lock(Work &&work) { return under_lock(members_.patience_to_work_ns, work); }
    template <class Work> bool under_lock(int64_t patience_ns, Work &&work) {
        if (!members_.acquire_lock(control_->lock.value, patience_ns)) return false;
        const RobustLockGuard held(control_->lock.value);
        work();
        return true;
    }
    // Frees the slots of the dead. True if there was one. Under the lock.
    bool reap() {
        return members_.reap_all([](const PeerSlot &s) { return s.identity.state.relaxed() == 1; },
                                 [&](uint32_t index) {
                                     count_death(slot(index).counters.deaths);
                                     clear_slot(index);
                                 });
    }
    // Makes every peer read the table again. Under the lock.
    void publish_change() {
        control_->changes.value.add(1); // SYNC -: only a hint; a peer that sees it reads the table under its lock
        for (uint32_t i = 0; i < count(); ++i)
            if (present(i)) event_notify(slot(i).bell.event);
    }
    // Wakes the peer that `whom` returns. It is called behind the fence: a pipe may have another reader by then, and that one
    // must be woken.
    template <class Whom> void notify(Whom &&whom) {
        light_fence(); // SYNC 7: pairs with event_announced; forbids reading the pipe's reader, or its bit, before the tail is
                       // visible
        const uint32_t index = slot_of(whom());
        if (index < count()) event_notify_fenced(slot(index).bell.event);
    }

  private:
    // Whether the peer in that slot is another one that sends to this one.
    bool writes_here(uint32_t index) const { return index != mine() && present(index) && sends_to(role_of(index), role_); }

    void fill_slot() {
        PeerSlot::Identity &identity = me().identity;
        if (identity.state.relaxed() == 1) count_death(me().counters.deaths);
        clear_slot(mine());
        identity.met.relaxed(0);
        identity.begun.relaxed(0);
        me().counters.wait.relaxed(0);
        write_name(identity, name_.now(), static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
        identity.pid.relaxed(static_cast<uint32_t>(getpid()));
        identity.role.relaxed(static_cast<uint32_t>(role_));
        identity.lossy.relaxed(role_ == PeerRole::tap ? when_full_ != WhenFull::wait : when_full_ == WhenFull::drop_oldest);
        check_others();
        if (role_ == PeerRole::push) control_->pushed.value.relaxed(1);
        members_.enter();
        begin_owner(me().counters.deaths);
        identity.state.relaxed(1);
    }
    // Throws if this peer cannot be on a channel with those that are there.
    void check_others() const {
        uint32_t pairs = 0;
        for (uint32_t i = 0; i < count(); ++i) {
            if (i == mine() || !present(i)) continue;
            const PeerRole role = role_of(i);
            if (!are_compatible(role_, role))
                throw Error(Code::invalid, where() + ": role '" + role_name(role_) +
                                               "' cannot join a channel with a member of role '" + role_name(role) +
                                               "': use another channel");
            pairs += role == PeerRole::pair;
            if (name_.is_own() && role != PeerRole::tap && read_name(slot(i).identity) == name_.now())
                throw_name_taken(where(), name_.now(), process_name(slot(i).identity.pid.relaxed(), locks().descriptor()));
        }
        if (pairs > 1) throw Error(Code::busy, where() + ": a pair has two peers, and both are here");
    }
    void clear_slot(uint32_t index) {
        if (!present(index)) return;
        PeerCounters(slot(index)).move_to(control_->totals);
        slot(index).identity.state.relaxed(0);
    }

    PipeControl *const control_;
    const PeerRole role_;
    const WhenFull when_full_;
    const MemberName name_;
    Participants<PeerSlot> members_;
    uint32_t seen_changes_ = 0;
    uint32_t writer_ = 0; // the slot where one that sends to this peer was found last
};

} // namespace penstock
