// The ring: one publication, many subscriptions, and nobody waits. Who is too slow is lapped and told what it lost. This
// file knows the shared words and who is there; ring_writer.hpp and ring_reader.hpp move messages.
// After MSGQ's broadcast ring, with its positions as whole words. Layout, orders and crash table: docs/design/ring.md.
#pragma once

#include "clock.hpp"
#include "liveness.hpp"
#include "ring_layout.hpp"
#include "waiting.hpp"

#include <algorithm>
#include <memory>

namespace penstock {

class Ring {
  public:
    // Borrows `fd` for the call. `map`: a mapping to share with other handles of this process, instead of one of its own.
    Ring(int fd, std::string path, std::shared_ptr<Mapping> map = nullptr)
        : Ring(fd, path, map ? map : std::make_shared<Mapping>(fd, size_of_file(fd), true), nullptr) {}
    // As a part of a channel of another kind, whose header was read already.
    Ring(int fd, const std::string &path, std::shared_ptr<Mapping> map, const OpenedRing *opened)
        : seat_(fd, path), map_(std::move(map)),
          opened_(opened != nullptr ? *opened : read_ring_header(map_->bytes(), map_->size(), path)), geometry_(opened_.geometry),
          control_(reinterpret_cast<RingControl *>(map_->bytes() + control_offset)),
          frames_(map_->bytes() + ring_data_offset(geometry_.slot_count)), mask_(geometry_.capacity - 1),
          fork_generation_(ForkGuard::generation()) {}
    ~Ring() { detach(); }

    const RingGeometry &geometry() const { return geometry_; }
    const OpenedRing &opened() const { return opened_; }
    const std::shared_ptr<Mapping> &mapping() const { return map_; }
    const std::string &path() const { return seat_.path(); }
    RingControl &control() const { return *control_; }
    bool forked() const { return fork_generation_ != ForkGuard::generation(); }

    RingFrame *frame(uint64_t position) const { return reinterpret_cast<RingFrame *>(frames_ + (position & mask_)); }
    uint8_t *payload(uint64_t position) const { return frames_ + (position & mask_) + header_length; }
    uint64_t left_to_the_end(uint64_t position) const { return geometry_.capacity - (position & mask_); }
    RingSlot &slot(uint32_t index) const {
        return *reinterpret_cast<RingSlot *>(map_->bytes() + slots_offset + size_t{index} * sizeof(RingSlot));
    }
    RingSlot &me() const { return slot(mine_); }
    uint32_t mine() const { return mine_; }

    // Whether bytes from `position` on may have been overwritten. What was read before is whole if this says no, and if the
    // reads were ordered before it (SYNC 10).
    bool lapped(uint64_t position) const { return control_->claimed.value.relaxed() > position + geometry_.capacity; }

    // Whether a frame stands at this position, or stood there: moves nothing.
    bool readable(uint64_t position) const { return frame(position)->word0.acquire() != 0 || lapped(position); }

    uint64_t write_position() const { return sound(control_->writer.write.acquire()); } // SYNC 11
    // Positions come from shared memory: a frame is only ever looked for, or written, where one can begin.
    uint64_t sound(uint64_t position) const {
        if (position % frame_alignment != 0) throw_unsound(position);
        return position;
    }
    [[noreturn]] void throw_unsound(uint64_t position) const {
        throw Error(Code::corrupt, path() + ": no frame can begin at position " + std::to_string(position) +
                                       ": the shared memory was overwritten by something else");
    }
    // The step over a frame, whose length is a word from shared memory: it must stay within the circle.
    uint64_t step(uint64_t word0, uint64_t position) const {
        const int32_t length = frame_length(word0);
        const uint64_t step = align_frame(static_cast<uint32_t>(length));
        if (length < static_cast<int32_t>(header_length) || step > left_to_the_end(position) ||
            frame_type(word0) > static_cast<uint16_t>(FrameType::data))
            throw_unsound(position);
        return step;
    }

    // ---- the publication: at most one, and the kernel knows whether it lives ----

    void attach_writer() {
        if (!seat_.try_take(writer_byte)) {
            if (errno != EAGAIN && errno != EACCES) fail_system(path() + ": cannot lock the publication's byte");
            throw Error(Code::busy, path() + ": process " + std::to_string(control_->writer.pid.relaxed()) +
                                        " publishes here, and only one may");
        }
        RingControl::Writer &writer = control_->writer;
        writer.session.relaxed(writer.session.relaxed() + 1);
        writer.pid.relaxed(static_cast<uint32_t>(getpid()));
        writer.joined_ns.relaxed(static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
        writer.state.release(1);
        seated(true);
    }

    // ---- subscriptions ----

    // Takes a slot; `start` puts the subscription's position there before anybody sees it.
    template <class Start> void attach_reader(Start start) {
        take_any_slot();
        RingSlot &s = me();
        try {
            s.identity.pid.relaxed(static_cast<uint32_t>(getpid()));
            s.identity.joined_ns.relaxed(static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
            keep(s.reader.counts, s.identity.before);
            start();
        } catch (...) {
            s.identity.state.release(0);
            seat_.give_back(slot_byte(mine_));
            throw;
        }
        s.identity.state.release(1); // SYNC 12: pairs with for_each_reader; its words are the new owner's
        seated(false);
        event_notify(control_->members.value);
    }

    void detach() {
        if (!attached_) return;
        attached_ = false;
        if (forked()) return; // it is the parent's
        if (writes_) control_->writer.state.release(0);
        else me().identity.state.release(0);
        seat_.leave();
    }
    // Leaves as a killed process would.
    void abandon() {
        attached_ = false;
        seat_.leave();
    }
    void forget_slot() { attached_ = false; } // in a forked child: the slot stays its parent's
    void return_after_fork() { seat_.return_after_fork(); }

    // Calls back with the shown position of every subscription that lives. Frees the slots of those that do not.
    template <class Visit> void for_each_reader(Visit &&visit) {
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            RingSlot &s = slot(i);
            if (s.identity.state.acquire() != 1) continue; // SYNC 12
            if (!writes_ && attached_ && i == mine_) {     // one's own lock is not seen
                visit(s.reader.position.acquire());
            } else if (seat_.taken_by_other(slot_byte(i))) {
                visit(s.reader.position.acquire()); // SYNC 13: pairs with RingReader::show_position
            } else {
                reap(i, [] {});
            }
        }
    }
    // Frees a slot that nobody living holds; `clear` runs while it is this process's. False: somebody lives there.
    template <class Clear> bool reap(uint32_t index, Clear &&clear) {
        if ((!writes_ && attached_ && index == mine_) || !seat_.try_take(slot_byte(index))) return false;
        RingSlot &s = slot(index);
        clear();
        if (s.identity.state.acquire() == 1) control_->reaped.value.add(1);
        s.identity.state.release(0);
        seat_.give_back(slot_byte(index));
        return true;
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
    static constexpr uint64_t writer_byte = control_offset;
    static uint64_t slot_byte(uint32_t index) { return slots_offset + uint64_t{index} * sizeof(RingSlot); }

    void seated(bool writes) {
        writes_ = writes;
        attached_ = true;
        fork_generation_ = ForkGuard::generation();
    }
    void take_any_slot() {
        for (uint32_t i = 0; i < geometry_.slot_count; ++i) {
            if (!seat_.try_take(slot_byte(i))) continue;
            mine_ = i;
            if (slot(i).identity.state.acquire() == 1) control_->reaped.value.add(1); // its owner died
            slot(i).identity.state.release(0);
            return;
        }
        if (errno != EAGAIN && errno != EACCES) fail_system(path() + ": cannot lock a slot");
        throw Error(Code::busy, path() + ": all " + std::to_string(geometry_.slot_count) +
                                    " slots are taken; create the channel with more slots");
    }
    static void keep(const RingCounts &now, RingCounts &before) {
        before.messages.relaxed(now.messages.relaxed());
        before.bytes.relaxed(now.bytes.relaxed());
        before.lost_messages.relaxed(now.lost_messages.relaxed());
        before.lost_bytes.relaxed(now.lost_bytes.relaxed());
        before.conflated.relaxed(now.conflated.relaxed());
        before.restarts.relaxed(now.restarts.relaxed());
    }

    Seat seat_;
    std::shared_ptr<Mapping> map_;
    const OpenedRing opened_;
    const RingGeometry geometry_;
    RingControl *const control_;
    uint8_t *const frames_;
    const uint64_t mask_;
    uint32_t mine_ = 0, fork_generation_;
    bool attached_ = false, writes_ = false;
};

} // namespace penstock
