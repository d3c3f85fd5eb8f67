// The term log: one total order of frames over three terms of shared memory, no driver process. This file knows the
// shared state and its repair (lock, limit, cleaning, members, holes); log_writer.hpp and log_reader.hpp use it.
// After Aeron's log buffers. Layout, orders and crash table: docs/design/term_log.md.
#pragma once

#include "clock.hpp"
#include "counts.hpp"
#include "liveness.hpp"
#include "mapping.hpp"
#include "member_name.hpp"
#include "robust_lock.hpp"
#include "waiting.hpp"

#include <algorithm>
#include <memory>

namespace penstock {

inline constexpr int64_t reap_interval_ns = 1'000'000;

class TermLog {
  public:
    // Borrows `fd` for the call. `map`: a mapping to share with other handles of this process, instead of one of its own.
    TermLog(int fd, std::string path, std::shared_ptr<Mapping> map = nullptr, Kind kind = Kind::log)
        : seat_(fd, std::move(path)), map_(map ? std::move(map) : std::make_shared<Mapping>(fd, size_of_file(fd), true)),
          opened_(read_header(map_->bytes(), map_->size(), seat_.path(), kind)), geometry_(opened_.geometry),
          control_(reinterpret_cast<Control *>(map_->bytes() + control_offset)),
          terms_(map_->bytes() + terms_offset(geometry_.slot_count)), mask_(geometry_.term_length - 1),
          bits_(static_cast<uint32_t>(__builtin_ctz(geometry_.term_length))), fork_generation_(ForkGuard::generation()) {}
    ~TermLog() { detach(); }

    const LogGeometry &geometry() const { return geometry_; }
    const OpenedLog &opened() const { return opened_; }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    const std::string &path() const { return seat_.path(); }
    Control &control() { return *control_; }
    uint64_t tail() const { return sound(control_->tail.value.acquire()); }
    // Positions come from shared memory: a frame is only ever looked for, or written, where one can begin.
    uint64_t sound(uint64_t position) const {
        if (position % frame_alignment != 0) throw_unsound(position);
        return position;
    }
    uint64_t limit() const { return control_->limit.value.acquire(); } // SYNC 2: pairs with make_room
    Slot &slot(uint32_t index) const {
        return *reinterpret_cast<Slot *>(map_->bytes() + slots_offset + size_t{index} * sizeof(Slot));
    }
    Slot &me() const { return slot(mine_); }
    bool attached() const { return attached_; }
    bool forked() const { return fork_generation_ != ForkGuard::generation(); }

    FrameHeader *frame(uint64_t position) const {
        return reinterpret_cast<FrameHeader *>(terms_ + ((position >> bits_) % terms << bits_) + (position & mask_));
    }
    uint64_t left_in_term(uint64_t position) const { return geometry_.term_length - (position & mask_); }

    // The oldest position that is kept: a term's start, so that it is a frame's start. Stable while the lock is held.
    uint64_t earliest() const {
        const uint64_t cleaned = limit() + header_length, size = uint64_t{terms} * geometry_.term_length;
        if (cleaned <= geometry_.start_position + size) return geometry_.start_position;
        return (cleaned - size + mask_) & ~uint64_t{mask_};
    }

    void write_header(FrameHeader *at, uint64_t position, int32_t session, int64_t time_ns) const {
        at->term_offset = static_cast<uint32_t>(position & mask_);
        at->session = session;
        at->stream = geometry_.stream;
        at->term_id = geometry_.term_id(position);
        at->reserved = time_ns;
        wrote(&at->term_offset, header_length - sizeof(at->word0));
    }

    // ---- the lock for rare work: members come and go, the limit moves, holes are filled ----

    // False when a living participant kept it for longer than `patience_ns`.
    bool acquire_lock(int64_t patience_ns) {
        const uint64_t id = uint64_t{my_generation_} << 32 | (mine_ + 1);
        return acquire_robust_lock(control_->lock.value, id, patience_ns, [&](uint64_t holder) { return holder_lives(holder); });
    }
    void release_lock() { release_robust_lock(control_->lock.value); }
    // Gives the lock back, however its holder leaves.
    class Held {
      public:
        explicit Held(TermLog &log) : log_(log) {}
        ~Held() { log_.release_lock(); }
        Held(const Held &) = delete;
        Held &operator=(const Held &) = delete;

      private:
        TermLog &log_;
    };

    // ---- room: whoever needs it moves the limit and cleans ahead, at most one step beyond its need ----

    // Makes claims up to `end` possible if the slowest subscription allows it. Never blocks for long.
    bool make_room(uint64_t end) {
        if (!acquire_lock(50'000)) return limit() >= end;
        const Held held(*this);
        return make_room_locked(end);
    }
    // Where the subscriptions that writers wait for are: words to look at, nothing more.
    template <class Each> void positions(Each &&each) const {
        for (uint32_t i = 0; i < geometry_.slot_count; ++i)
            if (slot(i).identity.state.relaxed() == static_cast<uint32_t>(State::active) &&
                slot(i).identity.role.relaxed() == static_cast<uint32_t>(Role::subscription))
                each(slot(i).reader.position);
    }

    // ---- members ----

    // Takes a slot. A publication gets a session; a subscription must call set_start next, under the same lock.
    // `name`: of a member of a sync queue.
    template <class Start> void attach(Role role, uint64_t drop_after_ns, Start start, const std::string &name = {}) {
        take_any_slot();
        if (!acquire_lock(1'000'000'000)) {
            seat_.give_back(slot_byte(mine_));
            throw Error(Code::busy, path() + ": a participant holds the channel's lock and does not run (stopped?)");
        }
        try {
            clear_slot(mine_);
            refuse_conflict(role);
            Slot::Identity &identity = me().identity;
            identity.pid.relaxed(static_cast<uint32_t>(getpid()));
            identity.session.relaxed(role == Role::subscription ? 0 : control_->sessions.value.add(1));
            identity.drop_after_ns.relaxed(drop_after_ns);
            identity.blocked_since.relaxed(0);
            write_name(identity, name, static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
            start();
            identity.role.release(static_cast<uint32_t>(role));
            // SYNC 4: pairs with is_active; forbids using the slot's words before they are its new owner's
            identity.state.release(static_cast<uint32_t>(State::active));
        } catch (...) {
            release_lock();
            seat_.give_back(slot_byte(mine_));
            throw;
        }
        release_lock();
        attached_ = true;
        fork_generation_ = ForkGuard::generation();
        if (role == Role::subscription) event_notify(control_->space.value); // somebody may wait for it
    }

    void detach() {
        if (!attached_) return;
        attached_ = false;
        if (forked()) return; // the slot is the parent's
        if (acquire_lock(1'000'000'000)) {
            clear_slot(mine_);
            release_lock();
        } // else the kernel frees the byte and the living repair the slot
        seat_.leave();
        event_notify(control_->space.value);
    }

    // Leaves as a killed process would: the kernel lock goes, everything else stays for the living to repair.
    void abandon() {
        attached_ = false;
        me().identity.departed.release(my_generation_);
        seat_.leave();
    }

    void forget_slot() { attached_ = false; } // in a forked child: the slot stays its parent's
    void return_after_fork() { seat_.return_after_fork(); }

    // Whether a living subscription that refuses to make writers wait stands in the way of a claim of so many bytes; its name.
    bool refused(uint64_t length, std::string &name) const {
        const uint64_t end = tail() + length;
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            const Slot &s = slot(i);
            if (!is_active(s, Role::subscription) || s.identity.drop_after_ns.relaxed() != refuses_to_wait) continue;
            if (s.reader.position.acquire() + geometry_.window >= end) continue; // SYNC 3
            name = read_name(s.identity);
            return true;
        }
        return false;
    }
    // Frees the slots of the dead, at most once a millisecond. True if there was one.
    bool reap() {
        const int64_t now = monotonic_ns();
        if (now - last_reap_ns_ < reap_interval_ns) return false;
        last_reap_ns_ = now;
        if (!acquire_lock(50'000)) return false;
        const Held held(*this);
        return reap_locked();
    }

    // Fills the hole at `position` if whoever claimed it is dead. True when the frame there is complete now.
    bool unblock(uint64_t position) {
        if (!acquire_lock(50'000)) return false;
        const Held held(*this);
        return unblock_locked(position);
    }

    // How many subscriptions there are whose shown position is as asked.
    template <class Which> uint32_t subscriptions(Which &&which) const {
        uint32_t count = 0;
        for (uint32_t i = 0; i < geometry_.slot_count; ++i)
            if (is_active(slot(i), Role::subscription) && which(slot(i).reader.position.acquire())) ++count; // SYNC 3
        return count;
    }

  private:
    [[noreturn]] void throw_unsound(uint64_t position) const {
        throw Error(Code::corrupt, path() + ": no frame can begin at position " + std::to_string(position) +
                                       ": the shared memory was overwritten by something else");
    }
    static bool is_active(const Slot &s, Role role) {
        // SYNC 4: pairs with attach and clear_slot
        return s.identity.state.acquire() == static_cast<uint32_t>(State::active) &&
               s.identity.role.acquire() == static_cast<uint32_t>(role);
    }
    static bool publishes(const Slot &s) { return is_active(s, Role::publication) || is_active(s, Role::exclusive); }
    static uint64_t slot_byte(uint32_t index) { return slots_offset + uint64_t{index} * sizeof(Slot); }

    bool holder_lives(uint64_t holder) {
        const uint64_t index = (holder & 0xffffffff) - 1;
        if (index >= geometry_.slot_count || index == mine_) return false; // not written by us, or by my predecessor
        if (slot(static_cast<uint32_t>(index)).identity.generation.acquire() != holder >> 32) return false;
        return seat_.taken_by_other(slot_byte(static_cast<uint32_t>(index)));
    }

    void take_any_slot() {
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            if (!seat_.try_take(slot_byte(i))) continue;
            mine_ = i;
            my_generation_ = slot(i).identity.generation.acquire() + 1;
            slot(i).identity.generation.release(my_generation_);
            return;
        }
        if (errno != EAGAIN && errno != EACCES) fail_system(path() + ": cannot lock a slot");
        throw Error(Code::busy, path() + ": all " + std::to_string(geometry_.slot_count) +
                                    " slots are taken; create the channel with more slots");
    }

    void refuse_conflict(Role role) {
        if (role == Role::subscription) return;
        for (int attempt = 0; attempt < 2; ++attempt) {
            uint32_t found = geometry_.slot_count;
            for (uint32_t i = 0; i < geometry_.slot_count; ++i)
                if (i != mine_ && (role == Role::exclusive ? publishes(slot(i)) : is_active(slot(i), Role::exclusive))) found = i;
            if (found == geometry_.slot_count) return;
            if (attempt == 0 && reap_locked()) continue;
            throw Error(Code::busy, path() + ": process " + std::to_string(slot(found).identity.pid.relaxed()) +
                                        (role == Role::exclusive ? " already publishes here" : " publishes here exclusively"));
        }
    }

    // Under the lock, and with the slot's byte held: pads what its last owner claimed, keeps its counts, frees it.
    void clear_slot(uint32_t index) {
        Slot &s = slot(index);
        s.identity.departed.acquire();
        for (Claim &claim : s.writer.claims) {
            const uint64_t where = claim.where.acquire(), length = claim.length.relaxed();
            if ((where & claim_taken) != 0) {
                const uint64_t position = where & ~uint64_t{frame_alignment - 1};
                const uint64_t word0 = sane_claim(position, length) ? frame(position)->word0.acquire() : 1;
                if (frame_length(word0) <= 0) pad_hole(position, length, word0);
            }
            claim.where.release(claim_idle);
        }
        Control::Totals &totals = control_->totals;
        Slot::Counters &counts = s.counters;
        const bool reads = s.identity.role.relaxed() == static_cast<uint32_t>(Role::subscription);
        move_count(counts.messages, reads ? totals.messages_received : totals.messages_sent);
        move_count(counts.bytes, reads ? totals.bytes_received : totals.bytes_sent);
        move_count(counts.back_pressure, totals.back_pressure);
        move_count(counts.bytes_lost, totals.bytes_lost);
        counts.aborted.relaxed(0);
        counts.fragments.relaxed(0);
        s.identity.role.release(static_cast<uint32_t>(Role::none));
        s.identity.state.release(static_cast<uint32_t>(State::free));
    }
    // A slot's words are bytes from shared memory: a claim is believed only where a claim can be.
    bool sane_claim(uint64_t position, uint64_t length) const {
        const uint64_t high = limit(), size = uint64_t{terms} * geometry_.term_length;
        return length >= header_length && length % frame_alignment == 0 && length <= left_in_term(position) && position < high &&
               position + length <= high && position + size >= high;
    }

    bool reap_locked() {
        bool found = false;
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            if (i == mine_ || slot(i).identity.state.acquire() == static_cast<uint32_t>(State::free)) continue;
            if (!seat_.try_take(slot_byte(i))) continue;
            clear_slot(i);
            seat_.give_back(slot_byte(i));
            control_->totals.reaped.bump(1);
            found = true;
        }
        return found;
    }

    // Where claims must end now: the slowest subscription plus the window. With none, the tail plus the window.
    uint64_t bound() const {
        uint64_t slowest = tail();
        const uint64_t start = slowest;
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            const Slot &s = slot(i);
            if (!is_active(s, Role::subscription)) continue;
            const uint64_t position = s.reader.position.acquire(); // SYNC 3: pairs with LogReader::show_position
            if (position < slowest) slowest = position;
        }
        // A position that no reader can have (damaged memory) must not let the limit run backwards or away.
        if (start - slowest > uint64_t{terms} * geometry_.term_length) return limit();
        return (slowest & ~uint64_t{frame_alignment - 1}) + geometry_.window;
    }

    bool make_room_locked(uint64_t end) {
        uint64_t lim = limit();
        if (lim >= end) return true;
        uint64_t allowed = bound();
        if (allowed < end && relieve(end)) allowed = bound();
        // The limit is never further than a window behind; what says so was overwritten, and cleaning would not end.
        if (allowed > lim && allowed - lim > uint64_t{terms + 1} * geometry_.term_length) throw_unsound(lim);
        const uint64_t step = std::min<uint64_t>(32 * 1024, geometry_.term_length / platform::cleans_per_term);
        while (lim < end && lim < allowed) {
            const uint64_t next = std::min(lim + step, allowed);
            clean(lim + header_length, next + header_length);
            lim = next;
            control_->limit.value.release(lim); // SYNC 2: pairs with limit(); forbids claiming before the range is clean
        }
        return lim >= end;
    }

    // Room is missing: lets go of dead subscriptions, and of living ones that used up their patience.
    bool relieve(uint64_t end) {
        bool changed = false;
        const int64_t now = monotonic_ns();
        if (now - last_reap_ns_ >= reap_interval_ns) {
            last_reap_ns_ = now;
            changed = reap_locked();
        }
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            Slot &s = slot(i);
            const uint64_t patience = s.identity.drop_after_ns.relaxed();
            if (patience == 0 || !is_active(s, Role::subscription)) continue;
            const uint64_t position = s.reader.position.acquire();
            if (position + geometry_.window >= end) continue;
            if (s.identity.blocked_since.relaxed() == 0 || s.identity.blocked_at.relaxed() != position) {
                s.identity.blocked_at.relaxed(position);
                s.identity.blocked_since.relaxed(static_cast<uint64_t>(now));
            } else if (static_cast<uint64_t>(now) - s.identity.blocked_since.relaxed() >= patience) {
                // SYNC 8: pairs with LogReader::still_mine; the state changes before any of its bytes is cleaned
                s.identity.state.release(static_cast<uint32_t>(State::dropped));
                full_fence(); // before anything is cleaned
                control_->totals.dropped.bump(1);
                changed = true;
            }
        }
        if (changed) event_notify(control_->data.value); // a dropped one may sleep
        return changed;
    }

    void clean(uint64_t from, uint64_t to) {
        while (from < to) {
            const uint64_t length = std::min(to - from, left_in_term(from));
            zero(frame(from), length);
            from += length;
        }
    }

    void pad_hole(uint64_t position, uint64_t length, uint64_t seen) {
        FrameHeader *at = frame(position);
        write_header(at, position, 0, 0);
        if (at->word0.cas(seen, pack_word0(static_cast<uint32_t>(length), flags_whole, FrameType::pad))) // SYNC 1
            control_->totals.repaired.bump(1);
        event_notify(control_->data.value);
    }

    bool unblock_locked(uint64_t position) {
        const uint64_t high = tail();
        if (position >= high || high - position > uint64_t{terms} * geometry_.term_length) return false;
        FrameHeader *at = frame(position);
        if (frame_length(at->word0.acquire()) > 0) return true;
        reap_locked(); // pads what the dead had claimed with a known place
        uint64_t stop = std::min(high, position + left_in_term(position));
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            if (!publishes(slot(i))) continue;
            for (const Claim &claim : slot(i).writer.claims) {
                const uint64_t where = claim.where.acquire(); // SYNC 5: pairs with LogWriter::reserve and settle
                if (where == claiming) return false;          // a living one may own this very place: look again later
                if ((where & claim_taken) == 0) continue;
                const uint64_t other = where & ~uint64_t{frame_alignment - 1};
                if (other == position) return false; // its owner lives and will finish
                if (other > position) stop = std::min(stop, other);
            }
        }
        const uint64_t word0 = at->word0.acquire(); // read after the claims: who finished before we looked is seen here
        if (frame_length(word0) > 0) return true;
        // Its owner died between the claim and the note of its place, so it wrote nothing: the hole is zero up to the
        // next frame or claim.
        uint64_t end = position + frame_alignment;
        while (end < stop && frame(end)->word0.acquire() == 0) end += frame_alignment;
        pad_hole(position, end - position, word0);
        return true;
    }

    Seat seat_;
    std::shared_ptr<Mapping> map_;
    OpenedLog opened_;
    LogGeometry geometry_;
    Control *control_;
    uint8_t *terms_;
    uint32_t mask_, bits_;
    uint32_t mine_ = ~0u - 1, my_generation_ = 0;
    uint32_t fork_generation_;
    bool attached_ = false;
    int64_t last_reap_ns_ = 0;
};

} // namespace penstock
