// The participants of a channel: a table of slots in its file, one for each member, and the kernel's lock on a slot's first byte
// says whether its owner lives. Taking a slot, leaving, forking, freeing the slots of the dead, and the lock for rare work are
// written here, once for all kinds. It knows the words `identity.state` and `identity.generation`; its kind knows the rest of a
// slot, and the repair after a dead owner. Argument and crash table: docs/design/channel_file.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/files/channel_header.hpp"
#include "ground/liveness.hpp"
#include "ground/members/robust_lock.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace penstock {

// A participant: the owner of a slot in one of its generations. Never 0.
constexpr uint64_t participant_id(uint32_t generation, uint32_t slot) { return uint64_t{generation} << 32 | (slot + 1); }
constexpr uint32_t generation_of(uint64_t id) { return static_cast<uint32_t>(id >> 32); }
constexpr uint32_t slot_of(uint64_t id) { return static_cast<uint32_t>(id) - 1; } // of 0: beyond every table

// The word in which a slot counts its owners. The slots of a kind without a lock need none.
template <class Slot>
concept CountsOwners = requires(Slot &slot) { slot.identity.generation; };

// One handle's view of the table: at most one slot of it is its own. `Slot`: the kind's. One thread at a time.
template <class Slot> class Participants {
  public:
    static constexpr int64_t patience_to_join_ns = 1'000'000'000; // for one living holder of the lock
    static constexpr int64_t patience_to_work_ns = 50'000;        // rare work can be tried again later

    // Borrows `fd` for the call. `file`: the channel's bytes in memory, at least up to the end of `count` slots.
    // `each`: how many slots a member takes.
    Participants(int fd, std::string path, uint8_t *file, uint32_t count, uint32_t each = 1)
        : locks_(fd, std::move(path)), slots_(table_in(file)), count_(count), each_(each),
          fork_generation_(ForkGuard::generation()) {}
    // The same participant in the same slot, of a file that has grown in place.
    Participants(Participants &&before, uint8_t *file, uint32_t count)
        : locks_(std::move(before.locks_)), slots_(table_in(file)), count_(count), each_(before.each_), mine_(before.mine_),
          generation_(before.generation_), fork_generation_(before.fork_generation_),
          attached_(std::exchange(before.attached_, false)) {}
    Participants(const Participants &) = delete;
    Participants &operator=(const Participants &) = delete;

    const std::string &path() const { return locks_.path(); }
    const std::string &where() const { return locks_.where(); } // for errors
    ByteLocks &locks() { return locks_; }
    const ByteLocks &locks() const { return locks_; }
    uint32_t count() const { return count_; }
    Slot &slot(uint32_t index) const { return slots_[index]; }
    Slot &me() const { return slots_[mine_]; }
    uint32_t mine() const { return mine_; }
    uint64_t id() const { return participant_id(generation_, mine_); }
    bool attached() const { return attached_; }
    bool forked() const { return fork_generation_ != ForkGuard::generation(); }
    static constexpr uint64_t byte_of(uint32_t index) { return slots_offset + uint64_t{index} * sizeof(Slot); }

    // ---- joining ----

    // Takes a slot that no living process holds. The caller clears what the last owner left there. If joining fails before
    // joined(), the caller gives the slot back.
    void take_any_slot() {
        for (uint32_t i = 0; i < count_; ++i) {
            if (!locks_.try_take(byte_of(i))) continue;
            mine_ = i;
            if constexpr (CountsOwners<Slot>) {
                Atomic<uint32_t> &generation = slot(i).identity.generation;
                generation_ = generation.acquire() + 1; // SYNC -: the kernel's lock on the byte has ordered the owner before us
                // The dead owner may have died with the lock for rare work. A participant that finds this new owner takes the
                // lock without asking the kernel, so this store must pass on what the kernel's lock ordered. SYNC 4: pairs with
                // Participants::holder_lives; forbids the new generation being visible before all that the dead owner did under
                // the lock
                generation.release(generation_);
            }
            return;
        }
        if (errno != EAGAIN && errno != EACCES) fail_system(where() + ": cannot lock a slot");
        const std::string most = std::to_string(count_ / each_);
        throw Error(Code::busy, where() + ": it has " + most + " members, and takes no more (max_members=" + most +
                                    "): let one close, or make the channel with a larger max_members");
    }
    void give_slot_back() { locks_.give_back(byte_of(mine_)); }
    // The slot is this participant's, its words too: it is counted from now on. Before `state` says that it is there.
    void enter() { locks_.enter(byte_of(mine_)); }
    // From here on detach is due. Also for a member without a slot, whose lock is on a byte of another kind.
    void joined() {
        attached_ = true;
        fork_generation_ = ForkGuard::generation();
    }
    // Takes a slot, and does `fill` under the lock. If that throws, there is no slot.
    template <class Fill> void join(Atomic<uint64_t> &lock, Fill &&fill) {
        take_any_slot();
        try {
            if (!acquire_lock(lock, patience_to_join_ns))
                throw Error(Code::busy, where() + ": a participant holds the channel's lock and does not run (stopped?)");
            const RobustLockGuard held(lock);
            fill();
        } catch (...) {
            give_slot_back();
            throw;
        }
        joined();
    }

    // ---- going ----

    // Whether there is something to leave, once: in a forked child the slot is its parent's.
    bool begin_to_leave() { return std::exchange(attached_, false) && !forked(); }
    // Does `clear` under the lock and frees the slot. Without the lock the slot looks as a dead owner's does: others clear it.
    template <class Clear> void leave(Atomic<uint64_t> &lock, Clear &&clear) {
        if (acquire_lock(lock, patience_to_join_ns)) {
            const RobustLockGuard held(lock);
            clear();
        }
        leave();
    }
    void leave() { locks_.leave(); } // the kernel's locks go with it
    // As a killed process would: everything else stays for the living to repair.
    void crash_for_test() {
        attached_ = false;
        leave();
    }
    void forget() { attached_ = false; } // in a forked child: the slot stays its parent's
    void return_after_fork() { locks_.return_after_fork(); }

    // ---- liveness ----

    // Whether a participant other than this one holds the slot, by the kernel's word.
    bool lives_elsewhere(uint32_t index) { return locks_.taken_by_other(byte_of(index)); }

    // Whether `is_there(slot)` is true of a participant that lives, this one included. Both answers are of one owner: if the slot
    // has changed hands between them, both are asked again.
    template <class IsThere> bool lives(uint32_t index, IsThere &&is_there) const {
        if (index == mine_) return attached_ && is_there(slot(index));
        for (int attempt = 0; attempt < 4; ++attempt) { // each owner has its generation, so damaged memory alone needs more
            const uint32_t generation = generation_at(index);
            if (!is_there(slot(index))) return false;
            const bool there = locks_.member_at(byte_of(index));
            if (generation_at(index) == generation) return there && is_there(slot(index));
        }
        return false;
    }

    // Does `clear` for a slot that no living process holds, while its byte is ours, so that no other process does or takes the
    // slot. False: a living process is in it, or it is this participant's own.
    template <class Clear> bool reap(uint32_t index, Clear &&clear) {
        if (index == mine_ || !locks_.try_take(byte_of(index))) return false;
        clear();
        locks_.give_back(byte_of(index));
        return true;
    }
    // The same for each slot that says that it has an owner: `has_owner(slot)`, `clear(index)`. True if any was freed.
    template <class HasOwner, class Clear> bool reap_all(HasOwner &&has_owner, Clear &&clear) {
        bool freed = false;
        for (uint32_t i = 0; i < count_; ++i)
            if (i != mine_ && has_owner(slot(i))) freed |= reap(i, [&] { clear(i); });
        return freed;
    }

    // ---- the lock for rare work: members come and go, what is shared is repaired ----

    // False when a living participant kept it for longer than `patience_ns`. The time is the machine's, never a test's: it bounds
    // this thread's own waiting for a process that may be stopped.
    bool acquire_lock(Atomic<uint64_t> &lock, int64_t patience_ns) {
        return acquire_robust_lock(lock, id(), patience_ns, [&](uint64_t holder) { return holder_lives(holder); }, monotonic_ns);
    }

  private:
    static constexpr uint32_t nowhere = ~0u - 1; // one more is still not 0: a thread without a slot can hold the lock

    uint32_t generation_at(uint32_t index) const {
        if constexpr (CountsOwners<Slot>) return slot(index).identity.generation.relaxed();
        else return 0;
    }
    static Slot *table_in(uint8_t *file) { return reinterpret_cast<Slot *>(file + slots_offset); }
    bool holder_lives(uint64_t holder) {
        const uint32_t index = slot_of(holder);
        if (index >= count_ || index == mine_) return false; // not written by us, or by my predecessor
        // SYNC 4: pairs with Participants::take_any_slot; forbids work under the lock before what its dead holder did is visible
        if (slot(index).identity.generation.acquire() != generation_of(holder)) return false;
        return lives_elsewhere(index);
    }

    ByteLocks locks_;
    Slot *const slots_;
    const uint32_t count_, each_;
    uint32_t mine_ = nowhere, generation_ = 0, fork_generation_;
    bool attached_ = false;
};

} // namespace penstock
