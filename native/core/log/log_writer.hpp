// A publication: claims room in a term log, writes frames, commits them. One thread at a time may call it, except that
// payloads of reserved frames may be written by several threads. Never sleeps: "no room" is a value.
#pragma once

#include "ground/messages/message.hpp"
#include "log/term_log.hpp"

namespace penstock {

class LogWriter {
  public:
    LogWriter(std::shared_ptr<TermLog> log, bool exclusive, std::shared_ptr<ManualClock> clock, MemberName name = {})
        : log_(std::move(log)), clock_(std::move(clock)), exclusive_(exclusive), name_(std::move(name)) {
        join();
    }

    TermLog &log() const { return *log_; }
    const std::shared_ptr<TermLog> &shared_log() const { return log_; }
    int32_t session() const { return session_; }
    uint32_t payload_max() const { return log_->buffer().payload_max(); }
    uint64_t position() const { return log_->tail(); }
    bool sending_fragments() const { return fragments_owner_ != nullptr; }

    void join() {
        log_->attach(exclusive_ ? Role::exclusive : Role::publication, 0, [] {}, name_);
        session_ = static_cast<int32_t>(log_->me().identity.session.relaxed());
        claims_ = log_->me().writer.claims;
        counters_ = &log_->me().counters;
        fragments_owner_ = nullptr;
        open_ = 0;
        seen_limit_ = 0;
        seen_tail_ = log_->tail();
    }

    // The stream position after the message, or no_room.
    int64_t offer(const void *data, size_t length) {
        if (length > payload_max()) throw_too_large(length);
        if (fragments_owner_ != nullptr) return refuse();
        ClaimedRange range;
        if (!claim(static_cast<uint32_t>(length), 0, range)) return refuse();
        copy_in(range.payload, data, length);
        return commit(range);
    }

    // As many messages as there is room for, in order; how many. Each run of up to 64 KiB becomes visible at once.
    size_t offer_many(const IoVec *pieces, size_t count) {
        size_t done = 0;
        for (size_t i = 0; i < count; ++i)
            if (pieces[i].length > payload_max()) throw_too_large(pieces[i].length);
        if (fragments_owner_ != nullptr) return 0;
        while (done < count) {
            const size_t now = offer_run(pieces + done, count - done);
            if (now == 0) {
                refuse();
                break;
            }
            done += now;
        }
        if (done != 0) event_notify(log_->control().data.value);
        return done;
    }

    // Carries a message on; true when it is complete, false when room is missing. No other message of this
    // publication gets between its fragments.
    bool send_some(PendingSend &sending) {
        if (fragments_owner_ != nullptr && fragments_owner_ != &sending) return false;
        do {
            ClaimedRange range;
            if (!next_fragment(sending, range)) return false;
            copy_in(range.payload, sending.data + sending.done, range.length);
            finish_fragment(sending, range);
        } while (sending.position == no_room);
        return true;
    }
    // The two halves of send_some, for a caller that copies without the lock by which this publication's threads take turns.
    bool next_fragment(PendingSend &sending, ClaimedRange &range, uint32_t index = 0) {
        if (fragments_owner_ != nullptr && fragments_owner_ != &sending) {
            refuse();
            return false;
        }
        const size_t left = sending.length - sending.done;
        const auto length = static_cast<uint32_t>(std::min<size_t>(left, payload_max()));
        if (!claim(length, index, range)) {
            refuse();
            return false;
        }
        const bool last = length == left;
        range.flags = static_cast<uint8_t>((sending.begun ? 0 : flag_begin) | (last ? flag_end : 0));
        fragments_owner_ = last ? nullptr : &sending;
        sending.begun = true;
        return true;
    }
    void finish_fragment(PendingSend &sending, const ClaimedRange &range) {
        const int64_t after = commit(range);
        sending.done += range.length;
        if ((range.flags & flag_end) != 0) sending.position = after;
        if (range.flags != flags_whole) counters_->fragments.increment(1);
    }
    // A message given up half-way (timeout, Ctrl-C): readers drop its fragments when the next message begins.
    void give_up(PendingSend &sending) {
        if (fragments_owner_ == &sending) fragments_owner_ = nullptr;
        if (sending.begun) counters_->aborted.increment(1);
    }

    // The claim record for a frame that stays open while others are sent.
    uint32_t open_index() {
        for (uint32_t i = 1; i < claims_per_slot; ++i)
            if ((open_ & 1u << i) == 0) return i;
        throw Error(Code::busy, "this publication has " + std::to_string(claims_per_slot - 1) +
                                    " claims open already; commit or abort one first");
    }

    // Claims a frame. `where` notes the claim in the slot, so that the living can undo it should this process die.
    bool claim(uint32_t length, uint32_t index, ClaimedRange &range) {
        const uint64_t need = align_frame(uint64_t{length} + header_length);
        uint64_t at;
        if (!claim_tail(need, index, at)) return false;
        range.payload = reinterpret_cast<uint8_t *>(log_->frame(at)) + header_length;
        range.position = at;
        range.length = length;
        range.index = index;
        range.flags = flags_whole;
        if (index != 0) open_ |= 1u << index;
        return true;
    }

    int64_t commit(const ClaimedRange &range) {
        FrameHeader *frame = log_->frame(range.position);
        log_->write_header(frame, range.position, session_, clock_.now_ns());
        // SYNC 1: pairs with LogReader::peek, LogReader::run, LogLook::take, Sender::gather, Sender::begins_frame; forbids the
        // length being visible before header and payload
        frame->word0.release(pack_word0(range.length + header_length, range.flags, FrameType::data));
        clear_claim(range.index);
        if ((range.flags & flag_end) != 0) counters_->messages.increment(1);
        counters_->bytes.increment(range.length);
        event_notify(log_->control().data.value);
        return static_cast<int64_t>(range.position + align_frame(range.length + header_length));
    }

    void abort(const ClaimedRange &range) {
        FrameHeader *frame = log_->frame(range.position);
        log_->write_header(frame, range.position, session_, 0);
        const auto length = static_cast<uint32_t>(align_frame(range.length + header_length));
        // SYNC 1: pairs with LogReader::peek, LogReader::run; forbids the length being visible before the header
        frame->word0.release(pack_word0(length, flags_whole, FrameType::pad));
        clear_claim(range.index);
        counters_->aborted.increment(1);
        event_notify(log_->control().data.value);
    }

    // Pads the rest of the term, so that the next frames are in one term. False: no room.
    bool pad_rest() {
        const uint64_t left = log_->left_in_term(log_->tail());
        uint64_t at;
        if (fragments_owner_ != nullptr || !claim_tail(left, 0, at)) return refuse() != no_room;
        log_->write_header(log_->frame(at), at, session_, 0);
        // SYNC 1: pairs with LogReader::peek, LogReader::run; forbids the length being visible before the header
        log_->frame(at)->word0.release(pack_word0(static_cast<uint32_t>(left), flags_whole, FrameType::pad));
        clear_claim(0);
        event_notify(log_->control().data.value);
        return true;
    }

  private:
    int64_t refuse() {
        counters_->back_pressure.increment(1);
        return no_room;
    }

    [[noreturn]] void throw_too_large(size_t length) const {
        const bool by_term = log_->buffer().max_frame() == log_->geometry().term_length / 4;
        throw Error(Code::too_large, log_->where() + ": a message of " + std::to_string(length) +
                                         " bytes; offer and claim take up to max_payload, " + std::to_string(payload_max()) +
                                         " here. Use send, which cuts it into fragments, or a larger " +
                                         (by_term ? "term_length" : "mtu"));
    }

    // A range of `need` bytes inside one term. If the rest of the term is too short, it is claimed first and becomes padding.
    // The slot has a record of every claim, so that the living can repair it if this process dies: `claiming` before the tail
    // moves, the place afterwards.
    bool claim_tail(uint64_t need, uint32_t index, uint64_t &at) {
        Atomic<uint64_t> &tail = log_->control().tail.value;
        ClaimRecord &note = claims_[index];
        note.length.relaxed(need);
        // SYNC -: the swap of the tail below releases it, and nobody looks at the record before the tail shows its claim
        note.where.release(claiming);
        // The first guess is the tail as this publication left it. A swap that fails brings the tail's cache line along, so the
        // next one finds it here. A look at the tail would bring a copy first, and the swap would have to fetch the line again.
        // SYNC -: an exclusive publication reads its own stores
        at = exclusive_ ? tail.acquire() : seen_tail_;
        for (;;) {
            log_->check_aligned(at);
            const uint64_t left = log_->left_in_term(at);
            const bool fits = need <= left;
            const uint64_t end = at + (fits ? need : left);
            if (end > seen_limit_) { // the limit only grows: a remembered one is never too high
                seen_limit_ = log_->limit();
                if (end > seen_limit_ && !find_room(at, end)) {
                    note.where.release(claim_idle); // SYNC -: it says only that nothing is claimed
                    return false;
                }
                // SYNC 43: pairs with LogLook::kept; forbids the bytes of this claim being visible before the limit that allows
                // it: a look would take them for those that were there before
                release_fence();
            }
            // SYNC 5: pairs with LogRoom::tail; forbids the tail being visible with this claim before the claim record in the
            // slot: a reader would find no claimant and take a living claim for a dead one's hole
            if (exclusive_) tail.release(end);
            // SYNC 5: pairs with LogRoom::tail; forbids the same as the store above
            else if (!tail.cas(at, end)) continue;
            seen_tail_ = end;
            if (fits) {
                // SYNC 5: pairs with LogRepair::unblock; forbids the new place being visible before the end of the frame
                // that this writer finished before: that one would look like a hole without a claimant
                note.where.release(at | claim_taken);
                return true;
            }
            pad_term(at, left, note);
            note.length.relaxed(need);
            note.where.release(claiming); // SYNC -: the next swap of the tail releases it
            at = end;
        }
    }

    bool find_room(uint64_t at, uint64_t end) {
        if (end >= (uint64_t{1} << 63)) throw Error(Code::invalid, log_->where() + ": positions end at 2^63");
        if (at > end || !log_->make_room(end)) return false;
        seen_limit_ = log_->limit();
        return true;
    }

    void pad_term(uint64_t at, uint64_t left, ClaimRecord &note) {
        note.length.relaxed(left);
        // SYNC -: the swap before it released the claim; padding has nothing else to show
        note.where.release(at | claim_taken);
        FrameHeader *frame = log_->frame(at);
        log_->write_header(frame, at, session_, 0);
        // SYNC 1: pairs with LogReader::peek, LogReader::run; forbids the length being visible before the header
        frame->word0.release(pack_word0(static_cast<uint32_t>(left), flags_whole, FrameType::pad));
    }

    // The frame of that claim is complete.
    void clear_claim(uint32_t index) {
        // SYNC 5: pairs with LogRepair::unblock; forbids the record being gone before the frame's length is visible: the
        // frame would look like a hole without a claimant
        claims_[index].where.release(claim_idle);
        if (index != 0) open_ &= ~(1u << index);
    }

    size_t offer_run(const IoVec *pieces, size_t count) {
        const uint64_t run_max = std::min<uint64_t>(64 * 1024, log_->buffer().max_frame());
        const uint64_t left = log_->left_in_term(log_->tail());
        uint64_t need = 0;
        size_t taken = 0;
        for (; taken < count; ++taken) {
            const uint64_t more = align_frame(pieces[taken].length + header_length);
            if (taken != 0 && (need + more > run_max || need + more > left)) break;
            need += more;
        }
        uint64_t at;
        while (!claim_tail(need, 0, at)) { // less room than that: halve, so that a nearly full log is still filled
            if (taken == 1) return 0;
            taken /= 2;
            need = 0;
            for (size_t i = 0; i < taken; ++i) need += align_frame(pieces[i].length + header_length);
        }
        fill_run(pieces, taken, at);
        return taken;
    }

    // Frames after the first are complete, but unreachable until the first one's length is stored.
    void fill_run(const IoVec *pieces, size_t count, uint64_t at) {
        const int64_t now = clock_.now_ns();
        uint8_t *to = reinterpret_cast<uint8_t *>(log_->frame(at));
        uint64_t position = at, bytes = 0;
        for (size_t i = 0; i < count; ++i) {
            auto *frame = reinterpret_cast<FrameHeader *>(to);
            log_->write_header(frame, position, session_, now);
            copy_in(to + header_length, pieces[i].data, pieces[i].length);
            const auto length = static_cast<uint32_t>(pieces[i].length + header_length);
            if (i != 0) frame->word0.relaxed(pack_word0(length, flags_whole, FrameType::data));
            bytes += pieces[i].length;
            to += align_frame(length);
            position += align_frame(length);
        }
        const auto first = static_cast<uint32_t>(pieces[0].length + header_length);
        // SYNC 1: pairs with LogReader::peek, LogReader::run, LogReader::walk; forbids the first length being visible
        // before all frames of the run
        log_->frame(at)->word0.release(pack_word0(first, flags_whole, FrameType::data));
        clear_claim(0);
        counters_->messages.increment(count);
        counters_->bytes.increment(bytes);
    }

    std::shared_ptr<TermLog> log_;
    WallClock clock_;
    ClaimRecord *claims_ = nullptr;
    Slot::Counters *counters_ = nullptr;
    const PendingSend *fragments_owner_ = nullptr;
    uint64_t seen_limit_ = 0;
    uint64_t seen_tail_ = 0; // where the tail was after this publication's last claim
    uint32_t open_ = 0;
    int32_t session_ = 0;
    const bool exclusive_;
    const MemberName name_;
};

} // namespace penstock
