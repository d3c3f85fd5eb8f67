// Repairs claims whose owner died between the claim and the commit. The living pad them, so that readers continue. It knows the
// terms and the claim records in the slots; it does not know which owners live. The holder of the log's lock calls it.
// After Aeron's TermUnblocker. A buffer whose holes mean something else, as those of a network's image, goes without it.
// docs/design/term_log.md.
#pragma once

#include "ground/waiting.hpp"
#include "log/files/log_layout.hpp"
#include "log/term_buffer.hpp"

#include <functional>
#include <utility>

namespace penstock {

class LogRepair {
  public:
    // `writable`: the same terms where they may be written, as a subscription maps them to be read. Asked for at a hole.
    LogRepair(const TermBuffer &buffer, Control &control, std::function<TermBuffer()> writable)
        : buffer_(buffer), control_(control), writable_(std::move(writable)) {}

    // With the slot's byte held: pads what its last owner claimed.
    void undo_claims(Slot &s, uint64_t limit) {
        for (ClaimRecord &claim : s.writer.claims) {
            // SYNC -: the kernel's lock on the slot's byte has ordered its owner before us
            const uint64_t where = claim.where.acquire(), length = claim.length.relaxed();
            if ((where & claim_taken) != 0) {
                const uint64_t position = where & ~uint64_t{frame_alignment - 1};
                // SYNC -: the same lock
                const uint64_t word0 = is_valid_claim(position, length, limit) ? buffer_.frame(position)->word0.acquire() : 1;
                if (frame_length(word0) <= 0) pad_hole(position, length, word0);
            }
            claim.where.release(claim_idle); // SYNC -: under the lock, which orders it (SYNC 6)
        }
    }

    // Completes the frame at `position` if no living process will. True when it is complete. `tail`: of the log. `members`: frees
    // the dead by reap(undo), which pads their claims of known position, and visits each_publication.
    template <class Members, class Undo> bool unblock(uint64_t position, uint64_t tail, Members &members, Undo &&undo) {
        if (position >= tail || tail - position > buffer_.size()) return false;
        FrameHeader *at = buffer_.frame(position);
        // SYNC -: only asks whether a frame is there; its reader acquires it
        if (frame_length(at->word0.acquire()) > 0) return true;
        members.reap(undo);
        uint64_t stop = std::min(tail, position + buffer_.left_in_term(position));
        bool waits = false; // for a living publication
        members.each_publication([&](const Slot &s) {
            for (const ClaimRecord &claim : s.writer.claims) {
                if (waits) return;
                // SYNC 5: pairs with LogWriter::claim_tail, LogWriter::clear_claim; forbids looking at the frame,
                // below, before the record: a frame finished meanwhile would look like a hole without a claimant
                const uint64_t where = claim.where.acquire();
                const uint64_t other = where & ~uint64_t{frame_alignment - 1};
                if (where == claiming) waits = true; // it may own this very place: look again later
                if ((where & claim_taken) == 0) continue;
                if (other == position) waits = true; // it will finish
                if (other > position) stop = std::min(stop, other);
            }
        });
        if (waits) return false;
        // Read after the claim records: a publication that had finished before we looked at its record is seen here.
        // SYNC -: the acquires of the records, above, order it; nothing is read after it
        const uint64_t word0 = at->word0.acquire();
        if (frame_length(word0) > 0) return true;
        // Its owner died between the claim and the record of its position, so it wrote nothing. The hole is zero up to the next
        // frame or claim.
        uint64_t end = position + frame_alignment;
        // SYNC -: only compared with zero, up to the next recorded claim
        while (end < stop && buffer_.frame(end)->word0.acquire() == 0) end += frame_alignment;
        pad_hole(position, end - position, word0);
        return true;
    }

  private:
    // A slot's words are bytes from shared memory: a claim is believed only where a claim can be.
    bool is_valid_claim(uint64_t position, uint64_t length, uint64_t high) const {
        return buffer_.mapped() && length >= header_length && length % frame_alignment == 0 &&
               length <= buffer_.left_in_term(position) && position < high && position + length <= high &&
               position + buffer_.size() >= high;
    }
    void pad_hole(uint64_t position, uint64_t length, uint64_t seen) {
        const TermBuffer writable = writable_();
        FrameHeader *at = writable.frame(position);
        // SYNC 43: pairs with LogLook::kept; forbids the header being visible before the limit that allowed the claim
        release_fence();
        writable.write_header(at, position, 0, 0);
        // SYNC 1: pairs with LogReader::peek, LogReader::run; forbids the length being visible before the header
        if (at->word0.cas(seen, pack_word0(static_cast<uint32_t>(length), flags_whole, FrameType::pad)))
            control_.totals.repaired.increment(1);
        event_notify(control_.data.value);
    }

    const TermBuffer &buffer_;
    Control &control_;
    const std::function<TermBuffer()> writable_;
};

} // namespace penstock
