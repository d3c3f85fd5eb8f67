// The newest message of each key of a log, kept beside its terms. A lock orders all messages of such a log, so whenever the lock
// is free the table has the newest committed message of each key. It knows no codec: a key is bytes that callers give.
// docs/design/last_values.md.
#pragma once

#include "ground/checksum.hpp"
#include "log/files/last_layout.hpp"
#include "log/term_log.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace penstock {

// A copy of a kept frame: its header and its payload.
struct LastValue {
    uint64_t position = 0;
    int64_t time_ns = 0;
    int32_t session = 0;
    std::vector<uint8_t> payload;
};

class LastValues {
  public:
    explicit LastValues(std::shared_ptr<TermLog> log)
        : log_(std::move(log)), shape_(log_->geometry().last),
          words_(*reinterpret_cast<LastWords *>(log_->mapping()->bytes() + terms_end(log_->geometry()))),
          buckets_(reinterpret_cast<Atomic<uint32_t> *>(reinterpret_cast<uint8_t *>(&words_) + sizeof(LastWords))),
          records_(reinterpret_cast<uint8_t *>(&words_) + shape_.records_offset()) {}

    const LastShape &shape() const { return shape_; }
    uint32_t count() const { return words_.count.relaxed(); } // for people

    // The position after the message, or no_room: also where a living participant keeps the lock. `offer(body, length)` sends it.
    template <class Offer>
    int64_t send(const uint8_t *key, size_t key_length, const uint8_t *body, size_t length, Offer &&offer) {
        if (key_length > last_key_max)
            throw Error(Code::too_large, log_->where() + ": a key of " + std::to_string(key_length) +
                                             " bytes; a channel that keeps last values takes keys of up to " +
                                             std::to_string(last_key_max) + ": use a shorter one");
        if (length > shape_.max)
            throw Error(Code::too_large, log_->where() + ": a message of " + std::to_string(length) +
                                             " bytes; this channel keeps last values of up to " + std::to_string(shape_.max) +
                                             ": create it with a larger last_max");
        if (!log_->acquire_lock_of(words_.lock.value, work_patience_ns)) return no_room;
        const RobustLockGuard held(words_.lock.value);
        finish_pending();
        note(key, key_length);
        const int64_t after = offer(body, length);
        if (after == no_room) words_.pending.relaxed(0);
        else keep(words_.tail.relaxed()); // as the next holder would, should this process die here
        return after;
    }

    // All kept messages by position, and where the stream goes on behind them: nothing before that place is missing, and no
    // claim is open there.
    std::vector<LastValue> snapshot(uint64_t &next) {
        if (!log_->acquire_lock_of(words_.lock.value, join_patience_ns))
            throw Error(Code::busy,
                        log_->where() + ": a participant holds the lock of the last values and does not run (stopped?)");
        const RobustLockGuard held(words_.lock.value);
        finish_pending();
        std::vector<LastValue> all;
        for (uint32_t i = 0; i < shape_.buckets(); ++i)
            if (const uint32_t taken = buckets_[i].relaxed(); taken != 0) all.push_back(copy(record(taken - 1)));
        std::sort(all.begin(), all.end(), [](const LastValue &a, const LastValue &b) { return a.position < b.position; });
        next = log_->tail();
        return all;
    }

  private:
    static constexpr int64_t work_patience_ns = 5'000'000;
    static constexpr int64_t join_patience_ns = 1'000'000'000;

    [[noreturn]] void throw_damaged() const {
        throw Error(Code::corrupt, log_->where() + ": the table of last values is damaged: the shared memory was overwritten by "
                                                   "something else");
    }
    LastRecord &record(uint32_t index) const {
        if (index > shape_.keys) throw_damaged();
        return *reinterpret_cast<LastRecord *>(records_ + uint64_t{index} * shape_.record_bytes());
    }
    static uint8_t *payload_of(LastRecord &at) { return reinterpret_cast<uint8_t *>(&at) + sizeof(LastRecord); }

    // The bucket of that key, or the free one where it belongs.
    uint32_t find(const uint8_t *key, size_t length) const {
        const uint32_t mask = shape_.buckets() - 1;
        uint32_t at = crc32c(key, length) & mask;
        for (uint32_t i = 0; i <= mask; ++i, at = (at + 1) & mask) {
            const uint32_t taken = buckets_[at].relaxed();
            if (taken == 0) return at;
            const LastRecord &found = record(taken - 1);
            penstock::read(&found.key_length, sizeof found.key_length);
            if (found.key_length == length && std::memcmp(found.key, key, length) == 0) return at;
        }
        throw_damaged(); // there are twice as many buckets as keys
    }

    // Notes the message that is about to be sent: its key in the spare record, and where the log ends before it. The message is
    // not copied: if this process dies, the log has it, or it was not sent.
    void note(const uint8_t *key, size_t length) {
        const uint32_t bucket = find(key, length), before = buckets_[bucket].relaxed(), count = words_.count.relaxed();
        const uint32_t spare = words_.spare.relaxed();
        if (before == 0 && count >= shape_.keys)
            throw Error(Code::invalid, log_->where() + ": " + std::to_string(shape_.keys) +
                                           " keys are kept, and this message has another one: create the channel with a "
                                           "larger last_keys");
        LastRecord &to = record(spare);
        to.key_length = static_cast<uint32_t>(length);
        wrote(&to.key_length, sizeof to.key_length);
        copy_in(to.key, key, length);
        words_.bucket.relaxed(bucket);
        words_.record.relaxed(spare);
        words_.next_spare.relaxed(before == 0 ? count + 1 : before - 1);
        words_.next_count.relaxed(before == 0 ? count + 1 : count);
        words_.tail.relaxed(log_->tail());
        // SYNC -: under the lock, which orders it (SYNC 6); a release, so that a death here leaves the words that it tells of
        words_.pending.release(1);
    }

    // The message that was sent at or behind `position` is its key's newest. All stores are of values that the note has, so
    // this can be done again.
    void keep(uint64_t position) {
        const uint64_t end = log_->tail();
        if (log_->check_aligned(position) < end && end - position > log_->buffer().size()) throw_damaged();
        while (position < end) {
            const FrameHeader *frame = log_->frame(position);
            // SYNC -: its writer held this lock, or is dead; a hole is filled under the log's lock
            const uint64_t word0 = frame->word0.acquire();
            const int32_t length = frame_length(word0);
            if (length <= 0) {
                if (!fill_hole(position)) throw Error(Code::busy, log_->where() + ": a frame is still being written");
                continue;
            }
            if (length < static_cast<int32_t>(header_length) || static_cast<uint64_t>(length) > log_->left_in_term(position))
                throw_damaged();
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::data)) {
                take(position, frame, static_cast<uint32_t>(length) - header_length);
                break;
            }
            position += align_frame(static_cast<uint64_t>(length));
        }
        // SYNC -: under the lock, which orders it (SYNC 6); a release, so that a death before it leaves the note
        words_.pending.release(0);
    }
    void take(uint64_t position, const FrameHeader *frame, uint32_t length) {
        const uint32_t bucket = words_.bucket.relaxed(), spare = words_.record.relaxed();
        if (length > shape_.max || bucket >= shape_.buckets()) throw_damaged();
        LastRecord &to = record(spare);
        to.position = position;
        to.time_ns = frame->reserved;
        to.session = frame->session;
        to.length = length;
        wrote(&to, offsetof(LastRecord, key_length));
        const uint8_t *payload = reinterpret_cast<const uint8_t *>(frame) + header_length;
        penstock::read(payload, length);
        copy_in(payload_of(to), payload, length);
        buckets_[bucket].relaxed(spare + 1);
        words_.spare.relaxed(words_.next_spare.relaxed());
        words_.count.relaxed(words_.next_count.relaxed());
    }

    // Finishes what a dead holder began: its message is in the log, or it was not sent.
    void finish_pending() {
        if (words_.pending.relaxed() != 0) keep(words_.tail.relaxed());
    }
    // Its claimant is dead: all claims are made under the lock.
    bool fill_hole(uint64_t position) {
        for (int i = 0; i < 1000; ++i) {
            if (log_->unblock(position)) return true;
            platform::yield();
        }
        return false;
    }
    LastValue copy(LastRecord &from) const {
        if (from.length > shape_.max) throw_damaged();
        const uint8_t *payload = payload_of(from);
        penstock::read(&from, offsetof(LastRecord, key_length));
        penstock::read(payload, from.length);
        return {from.position, from.time_ns, from.session, {payload, payload + from.length}};
    }

    std::shared_ptr<TermLog> log_;
    const LastShape shape_;
    LastWords &words_;
    Atomic<uint32_t> *const buckets_;
    uint8_t *const records_;
};

} // namespace penstock
