// The term log: one total order of frames over three terms of shared memory, no driver process. This file puts its parts together
// under the log's lock: the terms (term_buffer.hpp), the members (log_members.hpp), the limit of claims (log_room.hpp), and
// repairs after deaths (log_repair.hpp). log_writer.hpp and log_reader.hpp use it.
// After Aeron's log buffers. Layout, orders and crash table: docs/design/term_log.md.
#pragma once

#include "ground/files/second_mapping.hpp"
#include "log/files/log_file.hpp"
#include "log/log_members.hpp"
#include "log/log_repair.hpp"
#include "log/log_room.hpp"
#include "log/term_buffer.hpp"

#include <memory>

namespace penstock {

class TermLog {
  public:
    // Borrows `fd` for the call. `map`: a mapping to share with other handles of this process, instead of a separate one.
    // `clock`: decides how long a slow subscription is waited for, and how often dead members are looked for.
    TermLog(int fd, const std::string &path, std::shared_ptr<Mapping> map = nullptr, Kind kind = Kind::log,
            MonotonicClock clock = MonotonicClock())
        : map_(map ? std::move(map) : std::make_shared<Mapping>(fd, size_of_file(fd), true)),
          opened_(read_header(map_->bytes(), map_->size(), path, kind)), geometry_(opened_.geometry),
          buffer_(buffer_in(map_->bytes() + terms_offset(geometry_.slot_count), geometry_)),
          members_(fd, path, map_->bytes(), geometry_.slot_count, (kind == Kind::sync ? sync_kind : log_kind).slots_per_member,
                   events_in(*map_, geometry_)),
          clock_(std::move(clock)) {}
    // While the channel is open: no terms yet, only members. `map`: its short part.
    TermLog(int fd, const std::string &path, std::shared_ptr<Mapping> map, const OpenPart &part)
        : map_(std::move(map)), geometry_(while_open(part)), buffer_(buffer_in(nullptr, geometry_)),
          members_(fd, path, map_->bytes(), part.slots, part.kind.slots_per_member, nullptr) {}
    // The same member, in the same slot, once the channel is decided. `opened`: what `map`, the whole of it, says.
    TermLog(TermLog &&before, std::shared_ptr<Mapping> map, OpenedLog opened)
        : map_(std::move(map)), opened_(std::move(opened)), geometry_(opened_.geometry),
          buffer_(buffer_in(map_->bytes() + terms_offset(geometry_.slot_count), geometry_)),
          members_(std::move(before.members_), map_->bytes(), geometry_.slot_count, events_in(*map_, geometry_)),
          clock_(std::move(before.clock_)) {}
    ~TermLog() { detach(); }

    const LogGeometry &geometry() const { return geometry_; }
    const OpenedLog &opened() const { return opened_; }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    const std::string &path() const { return members_.path(); }
    const std::string &where() const { return members_.where(); } // for errors
    const ByteLocks &locks() const { return members_.locks(); }
    Control &control() { return control_; }
    uint64_t tail() const { return room_.tail(); }
    uint64_t check_aligned(uint64_t position) const { return room_.check_aligned(position); }
    uint64_t limit() const { return room_.limit(); }
    Slot &slot(uint32_t index) const { return members_.slot(index); }
    const MemberEvents *events() const { return members_.events(); } // a sync queue's; null elsewhere
    Slot &me() const { return members_.me(); }
    uint32_t mine() const { return members_.mine(); }
    bool attached() const { return members_.attached(); }
    bool forked() const { return members_.forked(); }

    // A subscription's: its mapping only reads the terms from now on. Its repairs write through a separate mapping.
    void make_read_only() { map_->protect(terms_offset(geometry_.slot_count), terms_end(geometry_)); }

    const TermBuffer &buffer() const { return buffer_; }
    FrameHeader *frame(uint64_t position) const { return buffer_.frame(position); }
    uint64_t left_in_term(uint64_t position) const { return buffer_.left_in_term(position); }
    void write_header(FrameHeader *at, uint64_t position, int32_t session, int64_t time_ns) const {
        buffer_.write_header(at, position, session, time_ns);
    }
    // The oldest position that is kept. Stable while the lock is held.
    uint64_t earliest() const { return buffer_.oldest_kept(geometry_.start_position, limit() + header_length); }

    // ---- the lock for rare work: joining, leaving, moving the limit, filling holes ----

    // False when a living participant kept it for longer than `patience_ns`.
    bool acquire_lock(int64_t patience_ns) { return members_.acquire_lock(control_.lock.value, patience_ns); }
    // The same of another word that this log's members take: of its last values.
    bool acquire_lock_of(Atomic<uint64_t> &word, int64_t patience_ns) { return members_.acquire_lock(word, patience_ns); }
    void release_lock() { release_robust_lock(control_.lock.value); }

    // Makes claims up to `end` possible if the slowest subscription allows it. Never blocks for long.
    bool make_room(uint64_t end) {
        if (!acquire_lock(members_.patience_to_work_ns)) return limit() >= end;
        const RobustLockGuard held(control_.lock.value);
        return room_.make_room(end, clock_, undo());
    }
    // Frees the slots of the dead, at most once a millisecond. True if there was one.
    bool reap() {
        if (!room_.reap_is_due(clock_.now_ns()) || !acquire_lock(members_.patience_to_work_ns)) return false;
        const RobustLockGuard held(control_.lock.value);
        return members_.reap(undo());
    }
    // Fills the hole at `position` if its claimant is dead. True when the frame there is complete now.
    bool unblock(uint64_t position) {
        if (!acquire_lock(members_.patience_to_work_ns)) return false;
        const RobustLockGuard held(control_.lock.value);
        return repair_.unblock(position, tail(), members_, undo());
    }

    // ---- members ----

    // Takes a slot. A publication gets a session; a subscription's position is set by `start`, under the same lock.
    // `name`: of a member of a sync queue.
    template <class Start> void attach(Role role, uint64_t drop_after_ns, Start start, const MemberName &name = {}) {
        members_.attach(role, drop_after_ns, name, undo(), start);
        if (role == Role::subscription) event_notify(control_.space.value); // a thread may wait for it
    }
    void detach() {
        if (!members_.begin_to_leave()) return;
        const bool published = LogMembers::publishes(me());
        members_.detach(undo());
        event_notify(control_.space.value);
        if (published) event_notify(control_.data.value); // perhaps it was the last: a reader waits for the end
    }
    void crash_for_test() { members_.crash_for_test(); } // leaves as a killed process would
    void forget_slot() { members_.forget(); }            // in a forked child: the slot stays its parent's
    void return_after_fork() { members_.return_after_fork(); }

    // ---- for an image, which has no claims: its owner calls, under the lock ----

    uint64_t slowest(uint64_t otherwise) const { return members_.slowest(otherwise); }
    // Frees the dead, and lets subscriptions go whose `drop_after` is over, if they show a position so far back that nothing may
    // be written up to `end`.
    bool drop_slow(uint64_t end) { return room_.drop_slow(end, clock_.now_ns(), undo()); }

    template <class Each> void positions(Each &&each) const { members_.positions(each); }
    template <class Which> uint32_t subscriptions(Which &&which) const { return members_.subscriptions(which); }
    template <class Visit> void each_reader(Visit &&visit) { members_.each_reader(visit); }
    bool slowest(uint32_t &pid, uint64_t &position) { return members_.slowest(pid, position); }
    // Whether a living subscription that refuses to make writers wait blocks a claim of that many bytes; its name.
    // A look without the lock may mix the words of a slot's old and new owner, or see a dead one: so it is confirmed under the
    // lock.
    bool refused(uint64_t length, std::string &name) {
        if (!members_.refused(tail() + length, geometry_.window, name)) return false;
        if (!acquire_lock(members_.patience_to_work_ns)) return false;
        const RobustLockGuard held(control_.lock.value);
        members_.reap(undo());
        return members_.refused(tail() + length, geometry_.window, name);
    }

    // ---- the end of the stream: there has been a publication, none is left, and no frame is left from a position on ----

    // Decided under the lock, so that no member joins meanwhile. Checks only now and then whether publications live.
    bool ended(uint64_t position) {
        if (!has_been_published()) return false;
        const int64_t now = clock_.now_ns();
        if (now - ended_look_ns_ < end_interval_ns && members_.has_publisher()) return false;
        ended_look_ns_ = now;
        if (!acquire_lock(members_.patience_to_work_ns)) return false;
        const RobustLockGuard held(control_.lock.value);
        members_.reap(undo());
        if (members_.has_publisher()) return false;
        if (tail() == position) return true;
        repair_.unblock(position, tail(), members_,
                        undo()); // unread bytes of a dead publication; a hole that no other participant will fill
        return false;
    }
    // The same as a guess, for a thread that has no slot here: from shared words, and with `check_kernel` also from the locks of
    // publications. Changes nothing.
    bool may_have_ended(uint64_t position, bool check_kernel) {
        // SYNC -: a guess; the reader that it wakes decides under the lock
        if (!has_been_published() || control_.tail.value.acquire() > position) return false;
        return !members_.may_have_publisher(check_kernel);
    }

  private:
    // Whether a publication has joined, ever: each takes a number, and counting began with the first one.
    bool has_been_published() const { return control_.sessions.value.relaxed() != first_session(geometry_); }
    static LogGeometry while_open(const OpenPart &part) {
        LogGeometry g;
        g.term_length = term_length_min;
        g.slot_count = part.slots;
        return g;
    }
    static MemberEvents *events_in(const Mapping &map, const LogGeometry &g) {
        const bool sync = reinterpret_cast<const Header *>(map.bytes())->kind == static_cast<uint32_t>(Kind::sync);
        return sync ? &events_of(map, g.slot_count, g.term_length) : nullptr;
    }
    static TermBuffer buffer_in(uint8_t *bytes, const LogGeometry &g) {
        return {bytes, g.term_length, g.max_frame, g.initial_term_id, g.stream};
    }
    // The terms where a repair may write: those of this mapping, or where it only reads them, of another one. The caller holds
    // the lock.
    TermBuffer writable_terms() {
        if (!map_->protects()) return buffer_;
        if (!repair_map_) repair_map_ = map_again(locks(), map_->size(), true);
        return buffer_in(repair_map_->bytes() + terms_offset(geometry_.slot_count), geometry_);
    }
    // The repair of a slot whose owner has gone.
    struct Undo {
        TermLog &log;
        void operator()(Slot &s) const { log.repair_.undo_claims(s, log.limit()); }
    };
    Undo undo() { return {*this}; }

    std::shared_ptr<Mapping> map_;
    OpenedLog opened_;
    LogGeometry geometry_;
    Control &control_ = *reinterpret_cast<Control *>(map_->bytes() + control_offset);
    const TermBuffer buffer_;
    LogMembers members_;
    std::shared_ptr<Mapping> repair_map_; // made at the first hole that this subscription fills
    LogRepair repair_{buffer_, control_, [this] { return writable_terms(); }};
    LogRoom room_{buffer_, members_, control_, geometry_.window};
    MonotonicClock clock_;
    int64_t ended_look_ns_ = 0;
};

} // namespace penstock
