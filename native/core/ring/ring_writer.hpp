// The publication of a ring. One thread at a time. Never waits and is never refused: it makes room by overwriting the oldest
// messages.
#pragma once

#include "ground/messages/message.hpp"
#include "ring/ring.hpp"

namespace penstock {

class RingWriter {
  public:
    RingWriter(std::shared_ptr<Ring> ring, std::shared_ptr<ManualClock> clock)
        : ring_(std::move(ring)), clock_(std::move(clock)) {
        join();
    }
    // One of several, in a slot: `attached` runs when it is taken. It writes while it has the turn, and goes on before that from
    // where another has stopped.
    template <class Attached>
    RingWriter(std::shared_ptr<Ring> ring, std::shared_ptr<ManualClock> clock, Attached &&attached)
        : ring_(std::move(ring)), clock_(std::move(clock)) {
        join_others(attached);
    }
    template <class Attached> void join_others(Attached &&attached) { session_ = ring_->attach_publication(attached); }

    Ring &ring() const { return *ring_; }
    uint32_t session() const { return session_; }
    uint32_t payload_max() const { return ring_->geometry().max_frame() - header_length; }
    uint64_t position() const { return position_; }
    uint64_t sequence() const { return sequence_; }

    void join() {
        ring_->attach_writer();
        session_ = ring_->control().writer.session.relaxed();
        open_ = false;
        try {
            go_on();
        } catch (...) {
            ring_->detach();
            throw;
        }
    }

    // Continues where another stood. If it died, its last message may be committed without being counted.
    void go_on() {
        claimed_ = ring_->control().claimed.value.relaxed();
        // A dead predecessor may have claimed bytes and not written them yet. Its successor writes them under that claim.
        // SYNC 10: pairs with RingReader::intact; forbids new bytes being visible before the predecessor's claim
        release_fence();
        RingControl::Writer &writer = ring_->control().writer;
        position_ = ring_->write_position();
        uint64_t last = ring_->check_aligned(writer.newest.relaxed()); // message
        if (claimed_ < position_ || claimed_ - position_ > 2 * uint64_t{ring_->geometry().capacity})
            ring_->throw_corrupt(claimed_);
        const uint64_t begun = position_;
        for (;;) {
            const RingFrame *frame = ring_->frame(position_);
            // SYNC -: the predecessor is dead or has passed its turn on: the kernel's lock, or the turn's, orders all that it did
            const uint64_t word0 = frame->word0.acquire();
            if (word0 == 0) break;
            const uint64_t step = ring_->step(word0, position_);
            if (static_cast<uint32_t>(frame->origin.relaxed()) != static_cast<uint32_t>(position_ / frame_alignment) ||
                position_ + step - begun > ring_->geometry().capacity)
                ring_->throw_corrupt(position_);
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::data)) last = position_;
            position_ += step;
        }
        sequence_ = ring_->frame(position_)->sequence.relaxed();
        // SYNC -: the release fence above stands between the predecessor's stores, which a lock ordered, and these
        writer.newest.release(last);
        writer.write.release(position_); // SYNC -: the same fence stands before it
    }

    // The stream position after the message.
    uint64_t offer(const void *data, size_t length) { return offer(data, length, length); }
    // `counted`: the bytes that the message stands for.
    uint64_t offer(const void *data, size_t length, uint64_t counted) {
        const ClaimedRange range = claim(length);
        copy_words_in(range.payload, data, length);
        return commit(range, counted);
    }

    // All messages in order; each run of up to 64 KiB becomes visible at once.
    void offer_many(const IoVec *pieces, size_t count) {
        for (size_t i = 0; i < count; ++i)
            if (pieces[i].length > payload_max()) throw_too_large(pieces[i].length);
        refuse_while_open();
        for (size_t done = 0; done < count;) done += offer_run(pieces + done, count - done);
        if (count != 0) event_notify(ring_->control().data.value);
    }

    // Room for one message, to be filled in place: the next commit or abort is for it.
    ClaimedRange claim(size_t length) {
        if (length > payload_max()) throw_too_large(length);
        refuse_while_open();
        const uint64_t need = align_frame(length + header_length), at = begin(need);
        announce_claim(at + need);
        open_ = true;
        return {ring_->payload(at), at, static_cast<uint32_t>(length), 0, flags_whole};
    }

    uint64_t commit(const ClaimedRange &range) { return commit(range, range.length); }
    uint64_t commit(const ClaimedRange &range, uint64_t counted) {
        open_ = false;
        const uint64_t end = range.position + align_frame(range.length + header_length);
        write_header(range.position, sequence_, clock_.now_ns());
        end_with(end, sequence_ + 1);
        show(range.position, range.length);
        advance(range.position, end, 1, counted);
        event_notify(ring_->control().data.value);
        return end;
    }
    void abort(const ClaimedRange &) { open_ = false; } // nothing was shown yet

  private:
    void refuse_while_open() const {
        if (open_) throw Error(Code::busy, ring_->where() + ": a claim of this publication is open: commit or abort it first");
    }
    [[noreturn]] void throw_too_large(size_t length) const {
        throw Error(Code::too_large, ring_->where() + ": a message of " + std::to_string(length) +
                                         " bytes; this ring takes up to " + std::to_string(payload_max()) +
                                         " (a quarter of its capacity, less a header): create it with a larger capacity");
    }

    // The position of a message of that many bytes: at the end of the circle padding may precede it.
    uint64_t begin(uint64_t need) const {
        const uint64_t left = ring_->left_to_the_end(position_);
        return need <= left ? position_ : position_ + left;
    }

    // Claims everything below `end`, and the word after it, before it is overwritten. It claims some way ahead, so that the word
    // changes seldom and readers find it in their caches.
    void announce_claim(uint64_t end) {
        const uint64_t need = end + frame_alignment;
        if (need <= claimed_) return;
        const uint64_t part = ring_->geometry().capacity / ring_parts;
        ring_->control().starts.positions[position_ / part % ring_parts].relaxed(position_); // believed once `write` is beyond it
        claimed_ = need + part;
        ring_->control().claimed.value.relaxed(claimed_);
        // SYNC 10: pairs with RingReader::intact, RingLook::kept; forbids new bytes being visible before the claim: a reader
        // would believe them
        release_fence();
    }

    void write_header(uint64_t at, uint64_t sequence, int64_t now) {
        RingFrame *frame = ring_->frame(at);
        frame->sequence.relaxed(sequence);
        frame->time_ns.relaxed(now);
        frame->origin.relaxed(ring_origin(session_, at));
    }
    // Behind the last message: a 0, for nothing is there yet, and the number of the next message.
    void end_with(uint64_t at, uint64_t sequence) {
        RingFrame *frame = ring_->frame(at);
        frame->word0.relaxed(0);
        frame->sequence.relaxed(sequence);
    }
    // The frame at `at` is complete; with it, if there is one, the pad before it.
    void show(uint64_t at, uint64_t length) {
        const uint64_t word0 = pack_word0(static_cast<uint32_t>(length + header_length), flags_whole, FrameType::data);
        if (at == position_) {
            // SYNC 9: pairs with RingReader::next, RingReader::find_last, RingLook::take; forbids the length being visible before
            // the frame and the 0 behind it
            ring_->frame(at)->word0.release(word0);
            return;
        }
        ring_->frame(at)->word0.relaxed(word0); // readers reach it only over the pad, whose length is released below
        write_header(position_, sequence_, 0);
        const auto left = static_cast<uint32_t>(at - position_);
        // SYNC 9: pairs with RingReader::next; forbids the pad's length being visible before the frame
        // behind it
        ring_->frame(position_)->word0.release(pack_word0(left, flags_whole, FrameType::pad));
    }
    void advance(uint64_t newest, uint64_t end, uint64_t messages, uint64_t bytes) {
        RingControl::Writer &writer = ring_->control().writer;
        // SYNC 14: pairs with RingReader::jump, RingReader::newest; forbids the position being visible
        // before the message is complete
        writer.newest.release(newest);
        writer.bytes_sent.increment(bytes);
        // SYNC 11: pairs with Ring::write_position, read_ring_status, RingLook::end; forbids the position being visible before
        // the 0 and the number that stand there
        writer.write.release(end);
        position_ = end;
        sequence_ += messages;
    }

    size_t offer_run(const IoVec *pieces, size_t count) {
        const uint64_t run_max = std::min<uint64_t>(64 * 1024, ring_->geometry().max_frame());
        uint64_t need = align_frame(pieces[0].length + header_length);
        const uint64_t at = begin(need), left = ring_->left_to_the_end(at);
        size_t taken = 1;
        for (; taken < count; ++taken) {
            const uint64_t more = align_frame(pieces[taken].length + header_length);
            if (need + more > run_max || need + more > left) break;
            need += more;
        }
        announce_claim(at + need);
        const int64_t now = clock_.now_ns();
        uint64_t range = at, bytes = 0, last = at;
        for (size_t i = 0; i < taken; ++i) {
            write_header(range, sequence_ + i, now);
            copy_words_in(ring_->payload(range), pieces[i].data, pieces[i].length);
            const auto length = static_cast<uint32_t>(pieces[i].length + header_length);
            if (i != 0) ring_->frame(range)->word0.relaxed(pack_word0(length, flags_whole, FrameType::data));
            last = range;
            bytes += pieces[i].length;
            range += align_frame(length);
        }
        end_with(range, sequence_ + taken);
        show(at, pieces[0].length);
        advance(last, range, taken, bytes);
        return taken;
    }

    std::shared_ptr<Ring> ring_;
    WallClock clock_;
    uint64_t position_ = 0, sequence_ = 0, claimed_ = 0;
    uint32_t session_ = 0;
    bool open_ = false;
};

} // namespace penstock
