// The ring: one publication, many subscriptions; none of them waits. A slow subscription is lapped and learns what it
// lost. In a frames channel several publications take turns on it. This file knows the shared words and the members;
// ring_writer.hpp and ring_reader.hpp move messages. After MSGQ's broadcast ring, with its positions as whole words. Layout,
// orders and crash table: docs/design/ring.md.
#pragma once

#include "ground/clock.hpp"
#include "ground/files/open_channel.hpp"
#include "ground/members/participants.hpp"
#include "ground/members/process_name.hpp"
#include "ground/waiting.hpp"
#include "ring/ring_layout.hpp"

#include <algorithm>
#include <memory>

namespace penstock {

class Ring {
  public:
    // Borrows `fd` for the call. `map`: a mapping to share with other handles of this process, instead of a separate one.
    Ring(int fd, std::string path, std::shared_ptr<Mapping> map = nullptr)
        : Ring(fd, path, map ? map : std::make_shared<Mapping>(fd, size_of_file(fd), true), nullptr) {}
    // As a part of a channel of another kind, whose header was read already.
    Ring(int fd, const std::string &path, std::shared_ptr<Mapping> map, const OpenedRing *opened)
        : map_(std::move(map)), opened_(opened != nullptr ? *opened : read_ring_header(map_->bytes(), map_->size(), path)),
          geometry_(opened_.geometry), control_(reinterpret_cast<RingControl *>(map_->bytes() + control_offset)),
          frames_(map_->bytes() + ring_data_offset(geometry_.slot_count)), mask_(geometry_.capacity - 1),
          members_(fd, path, map_->bytes(), geometry_.slot_count) {}
    // The same subscription, in the same slot, once the channel is decided. `opened`: what `map`, the whole of it, says.
    Ring(Ring &&before, std::shared_ptr<Mapping> map, const OpenedRing &opened)
        : map_(std::move(map)), opened_(opened), geometry_(opened_.geometry),
          control_(reinterpret_cast<RingControl *>(map_->bytes() + control_offset)),
          frames_(map_->bytes() + ring_data_offset(geometry_.slot_count)), mask_(geometry_.capacity - 1),
          members_(std::move(before.members_), map_->bytes(), geometry_.slot_count) {}
    ~Ring() { detach(); }
    // In place of the header while the channel is open: no frames yet, only members.
    static OpenedRing while_open(const OpenPart &part) {
        OpenedRing ring;
        ring.geometry.capacity = platform::term_length_min;
        ring.geometry.slot_count = part.slots;
        return ring;
    }

    // A subscription's: its mapping only reads the circle from now on.
    void make_read_only() {
        const uint64_t circle = ring_data_offset(geometry_.slot_count);
        map_->protect(circle, circle + geometry_.capacity);
    }

    const RingGeometry &geometry() const { return geometry_; }
    const OpenedRing &opened() const { return opened_; }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    const std::string &path() const { return members_.path(); }
    const std::string &where() const { return members_.where(); } // for errors
    const ByteLocks &locks() const { return members_.locks(); }
    RingControl &control() const { return *control_; }
    bool forked() const { return members_.forked(); }

    RingFrame *frame(uint64_t position) const { return reinterpret_cast<RingFrame *>(frames_ + (position & mask_)); }
    uint8_t *payload(uint64_t position) const { return frames_ + (position & mask_) + header_length; }
    uint64_t left_to_the_end(uint64_t position) const { return geometry_.capacity - (position & mask_); }
    RingSlot &me() const { return members_.me(); }
    RingSlot &slot(uint32_t index) const { return members_.slot(index); }
    uint32_t mine() const { return members_.mine(); }

    // Whether bytes from `position` on may have been overwritten. If not, bytes read before this call are whole, provided that
    // the reads were ordered before it (SYNC 10).
    bool lapped(uint64_t position) const { return control_->claimed.value.relaxed() > position + geometry_.capacity; }

    // Whether a frame is at this position, or was there: moves nothing. It needs no order: a reader that takes the frame
    // acquires it, and one that asks for the end of the stream has looked for the publication before, which orders this look
    // (SYNC 25).
    bool readable(uint64_t position) const { return frame(position)->word0.relaxed() != 0 || lapped(position); }

    uint64_t write_position() const {
        // SYNC 11: pairs with RingWriter::advance; forbids reading the 0 and the number that stand there before the position
        return check_aligned(control_->writer.write.acquire());
    }
    // Positions are read from shared memory: frames are read and written only where one can begin.
    uint64_t check_aligned(uint64_t position) const {
        if (position % frame_alignment != 0) throw_corrupt(position);
        return position;
    }
    [[noreturn]] void throw_corrupt(uint64_t position) const { throw_no_frame(where(), position); }
    // The step over a frame, whose length is a word from shared memory: it must stay within the circle.
    uint64_t step(uint64_t word0, uint64_t position) const {
        const int32_t length = frame_length(word0);
        const uint64_t step = align_frame(static_cast<uint32_t>(length));
        if (length < static_cast<int32_t>(header_length) || step > left_to_the_end(position) ||
            frame_type(word0) > static_cast<uint16_t>(FrameType::data))
            throw_corrupt(position);
        return step;
    }

    // ---- the publication: at most one, and the kernel knows whether it lives ----

    void attach_writer() {
        if (!members_.locks().try_take(lock_byte::writer)) {
            if (errno != EAGAIN && errno != EACCES) fail_system(where() + ": cannot lock the publication's byte");
            throw Error(Code::busy, where() + ": " + process_name(control_->writer.pid.relaxed(), members_.locks().descriptor()) +
                                        " publishes here, and only one may");
        }
        RingControl::Writer &writer = control_->writer;
        if (writer.state.relaxed() == 1) count_death(writer.deaths);
        writer.pid.relaxed(static_cast<uint32_t>(getpid()));
        writer.wait.relaxed(0);
        writer.joined_ns.relaxed(static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
        members_.locks().enter(lock_byte::writer);
        begin_owner(writer.deaths); // if its predecessor died, `state` is 1 already: from here on it speaks of this one
        // SYNC -: the session orders it for has_lost_writer; the kernel's lock says whether a publication lives
        writer.state.release(1);
        begin_session();
        writes_ = true;
        members_.joined();
    }

    // ---- frames: several publications, each in a slot. One at a time works on the words that a ring's only publication owns
    // ----

    // `attached` runs when the slot is taken. The number of its session.
    template <class Attached> uint32_t attach_publication(Attached &&attached) {
        attach(slot_writes, [&] {
            attached();
            me().reader.sent_messages.relaxed(0);
            me().reader.sent_bytes.relaxed(0);
            me().reader.session.relaxed(0);
        });
        if (!take_turn(members_.patience_to_join_ns)) {
            const std::string text = no_turn();
            if (members_.begin_to_leave()) {
                me().identity.state.release(0); // SYNC -: the kernel's lock on the slot's byte orders it for the next owner
                members_.leave();
            }
            throw Error(Code::busy, text);
        }
        const RobustLockGuard held(control_->turn.lock);
        const uint32_t session = begin_session();
        me().reader.session.relaxed(session);
        return session;
    }
    // The lock of the turn. False if a living publication keeps it.
    bool take_turn(int64_t patience_ns) { return members_.acquire_lock(control_->turn.lock, patience_ns); }
    static constexpr int64_t patience_to_send_ns = Participants<RingSlot>::patience_to_join_ns;
    // Whether no other publication had the turn since this one noted it last. With the turn.
    bool had_last_turn() const { return control_->turn.last.relaxed() == members_.id(); }
    void note_turn() { control_->turn.last.relaxed(members_.id()); }
    std::string no_turn() const {
        const uint32_t holder = slot_of(control_->turn.lock.relaxed());
        const uint32_t pid = holder < geometry_.slot_count ? slot(holder).identity.pid.relaxed() : 0;
        return where() + ": " + process_name(pid, members_.locks().descriptor()) +
               " is publishing here, and does not run (stopped?)";
    }
    bool attached() const { return members_.attached() && !members_.forked(); }

    // Whether there has been a publication and none lives. `check_kernel`: notices also one that died; the kernel's answer is
    // remembered in `gone`, the caller's. Changes nothing.
    bool has_lost_writer(uint32_t &gone, bool check_kernel) {
        // SYNC 25: pairs with Ring::begin_session; forbids missing the publication whose session this is
        const uint32_t session = control_->writer.session.acquire();
        if (session == 0) return false;
        if (session == gone) return true;
        // SYNC 25: pairs with Ring::detach; forbids looking for a last frame before the publication's end was seen
        const bool writes = control_->writer.state.acquire() != 0;
        bool any = writes;
        for (uint32_t i = 0, end = used(); i < end; ++i) any |= publishes(slot(i));
        if (control_->writer.session.relaxed() != session) return false; // one came meanwhile
        if (!any) return true;
        if (!check_kernel || (writes && members_.locks().taken_by_other(lock_byte::writer))) return false;
        for (uint32_t i = 0, end = used(); i < end; ++i)
            if (publishes(slot(i)) && members_.lives(i, publishes)) return false;
        gone = session;
        return true;
    }
    uint32_t used() const { return std::min(control_->used.value.relaxed(), geometry_.slot_count); } // frames
    static bool publishes(const RingSlot &s) {
        return s.identity.state.acquire() == slot_writes; // SYNC 25: pairs with Ring::detach; forbids the same
    }

    // ---- subscriptions ----

    // Takes a slot; `start` puts the subscription's position there before anybody sees it.
    template <class Start> void attach_reader(Start start) { attach(slot_reads, start); }
    template <class Start> void attach(uint32_t state, Start start) {
        members_.take_any_slot();
        try {
            RingSlot &s = me();
            clear_slot(s);
            s.identity.pid.relaxed(static_cast<uint32_t>(getpid()));
            s.reader.wait.relaxed(0);
            s.identity.joined_ns.relaxed(static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
            keep(s.reader.counts, s.identity.before);
            start();
            members_.enter();
            begin_owner(s.identity.deaths);
            // SYNC 12: pairs with Ring::for_each_reader, read_ring_status; forbids the state being visible before the new owner's
            // words
            s.identity.state.release(state);
        } catch (...) { // the state still says that there is no publication
            members_.give_slot_back();
            throw;
        }
        members_.joined();
        event_notify(control_->members.value);
    }

    void detach() {
        if (!members_.begin_to_leave()) return;
        // SYNC 25: pairs with Ring::has_lost_writer, Ring::publishes; forbids the end being visible before the last frame
        const auto end = [](Atomic<uint32_t> &state) { state.release(0); };
        const bool shares = !writes_ && me().identity.state.relaxed() == slot_writes;
        if (writes_) {
            end(control_->writer.state);
            members_.leave();
        } else if (shares) {
            members_.leave(control_->turn.lock, [&] { end(me().identity.state); }); // after every session that had begun
        } else {
            me().identity.waits.relaxed(0);
            me().identity.state.release(0); // SYNC -: the kernel's lock on the slot's byte orders it for the next owner
            members_.leave();
        }
        if (writes_ || shares) event_notify(control_->data.value); // a reader may wait for the end
    }
    void crash_for_test() { members_.crash_for_test(); } // leaves as a killed process would
    void forget_slot() { members_.forget(); }            // in a forked child: the slot stays its parent's
    void return_after_fork() { members_.return_after_fork(); }

    // Calls back with the shown position of every subscription that lives. Frees the slots of those that do not.
    template <class Visit> void for_each_reader(Visit &&visit) {
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            RingSlot &s = members_.slot(i);
            // SYNC 12: pairs with Ring::attach; forbids reading the slot's words before they are its new owner's
            if (s.identity.state.acquire() != slot_reads) continue;
            if (i == members_.mine()) {             // one's own lock is not seen
                visit(s.reader.position.acquire()); // SYNC -: the caller's own store
            } else if (members_.lives(i, is_there)) {
                // SYNC 13: pairs with RingReader::show_position; forbids acting on the position before the reader is done with
                // the messages below it
                visit(s.reader.position.acquire());
            } else {
                reap(i, [] {});
            }
        }
    }
    // Frees a slot that no living process holds; `clear` runs while it is this process's. False: a living process is in it.
    template <class Clear> bool reap(uint32_t index, Clear &&clear) {
        return members_.reap(index, [&] {
            clear();
            clear_slot(members_.slot(index));
        });
    }
    uint32_t readers() {
        uint32_t count = 0;
        for_each_reader([&](uint64_t) { ++count; });
        return count;
    }
    // Bytes by which the slowest living subscription is behind; 0 without any.
    uint64_t lag() {
        const uint64_t end = write_position();
        uint64_t most = 0;
        for_each_reader([&](uint64_t position) {
            if (position < end) most = std::max(most, end - position);
        });
        return most;
    }

  private:
    uint32_t begin_session() {
        Atomic<uint32_t> &session = control_->writer.session;
        const uint32_t next = session.relaxed() + 1;
        // SYNC 25: pairs with Ring::has_lost_writer; forbids the number being visible before its publication
        session.release(next);
        return next;
    }
    static bool is_there(const RingSlot &s) {
        return s.identity.state.relaxed() == slot_reads;
    } // the kernel's lock orders owners
    // With the slot's byte held, so no process is in it. If the state says otherwise, the owner died.
    void clear_slot(RingSlot &s) {
        // SYNC -: the kernel's lock on the slot's byte orders its owners
        if (s.identity.state.acquire() != 0) count_death(s.identity.deaths);
        s.identity.waits.relaxed(0);
        s.identity.state.release(0); // SYNC -: the same lock orders it
    }
    static void keep(const RingCounts &now, RingCounts &before) {
        before.messages.relaxed(now.messages.relaxed());
        before.bytes.relaxed(now.bytes.relaxed());
        before.lost_messages.relaxed(now.lost_messages.relaxed());
        before.lost_bytes.relaxed(now.lost_bytes.relaxed());
        before.conflated.relaxed(now.conflated.relaxed());
        before.restarts.relaxed(now.restarts.relaxed());
    }

    std::shared_ptr<Mapping> map_;
    const OpenedRing opened_;
    const RingGeometry geometry_;
    RingControl *const control_;
    uint8_t *const frames_;
    const uint64_t mask_;
    Participants<RingSlot> members_;
    bool writes_ = false;
};

} // namespace penstock
