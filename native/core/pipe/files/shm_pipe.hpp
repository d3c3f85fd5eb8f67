// A pipe between two processes: one writer, one reader, a circle of bytes. Frames are contiguous: one that does not fit before
// the circle's end stands at its beginning, and padding fills the end. Only acknowledged messages are overwritten, so the
// messages that a dead reader held can be given to another. Layout, orders and crash table: docs/design/shm_pipe.md.
#pragma once

#include "ground/messages/message.hpp"
#include "ground/waiting.hpp"
#include "pipe/files/pipe_layout.hpp"

#include <algorithm>
#include <optional>

namespace penstock {

// A frame's fields beside its payload.
struct PipeTag {
    uint64_t id = 0;     // a correlation id, or whatever the pattern wants
    int32_t kind = 0;    // of message, as the pattern understands it
    int64_t time_ns = 0; // send time
};
inline uint64_t frame_id(const FrameHeader &frame) {
    return uint64_t{static_cast<uint32_t>(frame.term_id)} << 32 | frame.term_offset;
}

// Where a frame may be, and its length: both ends check bytes that another process may have overwritten.
class PipeBytes {
  public:
    PipeBytes(PipeLink &link, uint8_t *bytes, uint32_t capacity, const std::string &where)
        : link_(&link), bytes_(bytes), capacity_(capacity), where_(&where) {}

    PipeLink &link() const { return *link_; }
    FrameHeader *frame(uint64_t position) const { return reinterpret_cast<FrameHeader *>(bytes_ + (position & (capacity_ - 1))); }
    uint64_t left_to_the_end(uint64_t position) const { return capacity_ - (position & (capacity_ - 1)); }
    uint32_t capacity() const { return capacity_; }
    // The step over the frame at `position`, of which `there` bytes are present; 0 if none can begin there.
    uint64_t step(uint64_t word0, uint64_t position, uint64_t there) const {
        const int32_t length = frame_length(word0);
        const uint64_t step = align_frame(static_cast<uint32_t>(length));
        const bool sound = length >= static_cast<int32_t>(header_length) && step <= there && step <= left_to_the_end(position) &&
                           frame_type(word0) <= static_cast<uint16_t>(FrameType::data);
        return sound ? step : 0;
    }
    [[noreturn]] void throw_corrupt(uint64_t position) const { throw_no_frame(*where_, position); }

  private:
    PipeLink *link_;
    uint8_t *bytes_;
    uint32_t capacity_;
    const std::string *where_;
};

// A writer that waits for room hears of it in pieces: a share of the capacity.
inline constexpr uint32_t room_share = 8;

class PipeWriter {
  public:
    PipeWriter(PipeLink &link, uint8_t *bytes, uint32_t capacity, uint32_t max_messages, const std::string &where)
        : pipe_(link, bytes, capacity, where), max_messages_(max_messages), tail_(link.writer.tail.relaxed()), end_(tail_),
          messages_(link.writer.messages.relaxed()),
          // SYNC -: the pipe was made under the table's lock, which orders its words (SYNC 6)
          base_(link.reader.acked.acquire()), read_messages_(link.reader.messages.relaxed()),
          dropped_(link.writer.dropped.relaxed()) {
        check_base();
    }

    // Claims room for one more message behind those written since the last flush. False if the high-water mark or the capacity
    // forbids it.
    [[gnu::always_inline]] bool claim(uint32_t length, ClaimedRange &room) {
        const uint64_t need = align_frame(uint64_t{length} + header_length), left = pipe_.left_to_the_end(end_);
        const uint64_t pad = need > left ? left : 0;
        if (!fits(pad + need) && (!peek_again() || !fits(pad + need))) return false;
        if (pad != 0) {
            FrameHeader *frame = pipe_.frame(end_);
            frame->word0.relaxed(pack_word0(static_cast<uint32_t>(pad), flags_whole, FrameType::pad));
            end_ += pad;
        }
        room.payload = reinterpret_cast<uint8_t *>(pipe_.frame(end_)) + header_length;
        room.position = end_;
        room.length = length;
        return true;
    }
    // The message in that room is complete; it is seen with the next flush.
    void commit(const ClaimedRange &room, const PipeTag &tag) {
        FrameHeader *frame = pipe_.frame(room.position);
        frame->term_offset = static_cast<uint32_t>(tag.id);
        frame->term_id = static_cast<int32_t>(static_cast<uint32_t>(tag.id >> 32));
        frame->session = static_cast<int32_t>(messages_); // its number, by which a reader knows how many were dropped before it
        frame->stream = tag.kind;
        frame->reserved = tag.time_ns;
        wrote(&frame->term_offset, header_length - sizeof frame->word0);
        frame->word0.relaxed(pack_word0(room.length + header_length, flags_whole, FrameType::data));
        end_ = room.position + align_frame(uint64_t{room.length} + header_length);
        ++messages_;
    }
    bool write(const void *data, uint32_t length, const PipeTag &tag) {
        ClaimedRange room;
        if (!claim(length, room)) return false;
        copy_in(room.payload, data, length);
        commit(room, tag);
        return true;
    }
    // Makes all messages written since the last flush visible at once. Returns the bytes of the pipe that they take.
    uint64_t flush() {
        const uint64_t bytes = end_ - tail_;
        if (bytes == 0) return 0;
        tail_ = end_;
        pipe_.link().writer.messages.relaxed(messages_);
        // SYNC 18: pairs with PipeReader::look_for_more; forbids the tail being visible before the frames in front of it
        pipe_.link().writer.tail.release(tail_);
        return bytes;
    }
    // Drops the oldest message that no reader has claimed, and returns the bytes that it took. Only in a lossy pipe. Returns 0 if
    // nothing can be dropped, or if bytes (not messages) are short and the reader still holds an older message: bytes come free
    // in order only.
    uint64_t drop_oldest() {
        PipeLink::Reader &reader = pipe_.link().reader;
        for (uint64_t bytes = 0;;) {
            uint64_t read = reader.read.relaxed(); // an old one fails below
            // SYNC 19: pairs with PipeReader::acknowledge; forbids overwriting bytes before the reader's last look at them
            const uint64_t acked = reader.acked.acquire();
            if (read >= tail_) return 0;
            if (read % frame_alignment != 0) pipe_.throw_corrupt(read);
            const bool in_front = std::max(acked, base_) < read;
            if (in_front && messages_ - read_messages_ < max_messages_) return 0;
            const FrameHeader &frame = *pipe_.frame(read);
            const uint64_t word0 = frame.word0.relaxed(); // this writer wrote it
            const uint64_t step = pipe_.step(word0, read, tail_ - read), next = read + step;
            if (step == 0) pipe_.throw_corrupt(read);
            const uint64_t number = number_after(frame);
            // Of the writer and the reader, only one gets the message.
            // SYNC -: only its value counts; the bytes are ordered by SYNC 18 and 19
            if (!reader.read.cas(read, next)) continue;
            if (!in_front) base_ = next;
            bytes += step;
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::pad)) continue;
            read_messages_ = number;
            ++dropped_;
            pipe_.link().writer.dropped.relaxed(dropped_);
            return bytes;
        }
    }
    void close() {
        // SYNC 18: pairs with PipeTable::repair; forbids the pipe looking closed before the tail shows all that was
        // flushed: it would be freed with messages in it
        pipe_.link().writer.closed.release(1);
    }
    // Whether there is room for one more message, and for so much besides.
    bool has_room(uint32_t length, uint64_t bytes, uint64_t messages) {
        const uint64_t need = align_frame(uint64_t{length} + header_length), left = pipe_.left_to_the_end(end_);
        const uint64_t all = (need > left ? left : 0) + need + bytes;
        const auto enough = [&] { return fits(all) && messages_ + messages - read_messages_ < max_messages_; };
        return enough() || (peek_again() && enough());
    }
    // Counts a message that is not written here. A reader of the next one sees by its number that one is missing.
    void skip() { ++messages_; }
    // Counts a message that found no room although the oldest are dropped. The reader counts it as missed.
    void refuse() { pipe_.link().writer.refused.increment(1); }

    // The peer that reads the pipe by now, or 0.
    uint64_t reader() const { return pipe_.link().ends.to.relaxed(); }
    // Bytes and messages that were not acknowledged yet.
    uint64_t lag() const {
        const uint64_t acked = pipe_.link().reader.acked.acquire(); // SYNC -: a number for people; nothing is overwritten by it
        return tail_ > acked ? tail_ - acked : 0;
    }
    // While there is no room: words that go so much further when there is some that is worth having.
    template <class Each> void room_words(Each &&each) const {
        const PipeLink::Reader &reader = pipe_.link().reader;
        const uint64_t acked = reader.acked.relaxed(), messages = reader.messages.relaxed();
        each(reader.acked, acked, std::min<uint64_t>(tail_ - acked, pipe_.capacity() / room_share));
        each(reader.messages, messages,
             std::min<uint64_t>(messages_ - messages, std::max<uint32_t>(max_messages_ / room_share, 1)));
    }
    uint64_t waiting() const { return messages_ - pipe_.link().reader.messages.relaxed(); }

  private:
    bool fits(uint64_t need) const {
        return end_ + need - base_ <= pipe_.capacity() && messages_ - read_messages_ < max_messages_;
    }
    [[gnu::noinline]] bool peek_again() { // rare: claim() stays small enough for a batch's loop
        const uint64_t before = base_, messages_before = read_messages_;
        // SYNC 19: pairs with PipeReader::acknowledge; forbids overwriting bytes before the reader's last look at them
        const uint64_t acked = pipe_.link().reader.acked.acquire();
        read_messages_ = pipe_.link().reader.messages.relaxed();
        if (acked > base_) base_ = acked;
        if (static_cast<int64_t>(read_messages_ - messages_before) < 0) read_messages_ = messages_before; // dropped further on
        if (base_ == end_) read_messages_ = messages_; // none is there: some were skipped
        check_base();
        return base_ != before || read_messages_ != messages_before;
    }
    // The number behind that of a message of this writer's that is in the pipe.
    uint64_t number_after(const FrameHeader &frame) const {
        return messages_ - static_cast<uint32_t>(static_cast<uint32_t>(messages_) - static_cast<uint32_t>(frame.session)) + 1;
    }
    void check_base() const {
        if (base_ > end_ || end_ - base_ > pipe_.capacity() || base_ % frame_alignment != 0 || end_ % frame_alignment != 0)
            pipe_.throw_corrupt(base_);
    }

    PipeBytes pipe_;
    uint32_t max_messages_;
    uint64_t tail_, end_, messages_, base_, read_messages_, dropped_;
};

class PipeReader {
  public:
    PipeReader(PipeLink &link, uint8_t *bytes, uint32_t capacity, const std::string &where)
        : pipe_(link, bytes, capacity, where), acked_(link.reader.acked.relaxed()), read_(acked_), tail_(acked_),
          from_(link.ends.from.relaxed()), to_(link.ends.to.relaxed()), messages_(link.reader.messages.relaxed()),
          next_number_(messages_), held_(link.ends.held.relaxed()), session_(session_of(from_)),
          lossy_(link.ends.lossy.relaxed() != 0) {
        if (acked_ % frame_alignment != 0) pipe_.throw_corrupt(acked_);
        shown_ = acked_;
        resumed_ = acked_;
        shown_messages_ = messages_;
        if (lossy_) read_ = std::max(read_, link.reader.read.relaxed()); // a message that a dead reader had claimed is lost
        else link.reader.read.relaxed(read_);
        if (read_ % frame_alignment != 0) pipe_.throw_corrupt(read_);
    }

    // The next message, if there is one. It stays readable, and is this reader's, until it is acknowledged.
    bool peek(Message &found) {
        for (;;) {
            if (read_ >= tail_ && !look_for_more()) return false;
            FrameHeader *frame = pipe_.frame(read_);
            const uint64_t at = read_, word0 = frame->word0.relaxed(), step = pipe_.step(word0, at, tail_ - at), next = at + step;
            if (lossy_ && !claimed_ && !claim(next)) continue; // it was dropped meanwhile, and perhaps overwritten
            if (step == 0) pipe_.throw_corrupt(at);
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::pad)) {
                read_ = next;
                continue;
            }
            read(&frame->term_offset, header_length - sizeof frame->word0);
            found.data = reinterpret_cast<const uint8_t *>(frame) + header_length;
            found.length = static_cast<size_t>(frame_length(word0)) - header_length;
            found.position = at;
            found.next = next_ = next;
            found.time_ns = frame->reserved;
            found.session = session_;
            number_ =
                next_number_ + static_cast<uint32_t>(static_cast<uint32_t>(frame->session) - static_cast<uint32_t>(next_number_));
            tag_ = {frame_id(*frame), frame->stream, frame->reserved};
            claimed_ = true;
            return true;
        }
    }
    // The message that peek() gave is in its owner's hands.
    void consume() {
        claimed_ = false;
        redelivered_ = read_ < held_;
        last_ = {read_, number_};
        read_ = next_;
        if (number_ != next_number_) {
            missed_ += number_ - next_number_;
            if (lossy_) missed_bytes_ += last_.position - resumed_;
        }
        resumed_ = read_;
        next_number_ = number_ + 1;
        if (!lossy_)
            pipe_.link().reader.read.relaxed(read_); // the next reader of this pipe knows by it which messages are redelivered
    }
    // Acknowledges every message that was consumed, except one that is held back and those behind it: the bytes may be
    // overwritten, and the messages are not redelivered. True if the writer should be woken.
    bool acknowledge() {
        const uint64_t done = held_back_ ? held_back_->position : read_;
        if (done == acked_) return false;
        acked_ = done;
        messages_ = held_back_ ? held_back_->number : next_number_;
        pipe_.link().reader.messages.relaxed(messages_);
        // SYNC 19: pairs with PipeWriter::peek_again, PipeWriter::drop_oldest; forbids the bytes being free before they were read
        pipe_.link().reader.acked.release(acked_);
        if (acked_ - shown_ < pipe_.capacity() / room_share && messages_ - shown_messages_ < 32 && read_ < tail_) return false;
        shown_ = acked_;
        shown_messages_ = messages_;
        return true;
    }
    // The message consumed last has not reached its owner yet, so that it is not acknowledged until resume_ack().
    void defer_ack() {
        if (!held_back_ && last_.position >= acked_ && last_.position < read_) held_back_ = last_;
    }
    void resume_ack() { held_back_.reset(); }
    bool defers_ack() const { return held_back_.has_value(); }
    bool drained() { return read_ >= tail_ && !look_for_more(); }
    // Safe to look at without the GIL.
    const Atomic<uint64_t> &tail_word() const { return pipe_.link().writer.tail; }
    uint64_t seen_tail() const { return tail_; }
    const PipeTag &tag() const { return tag_; }
    const PipeLink::Ends &ends() const { return pipe_.link().ends; } // with the writer's name and role
    // Messages that the writer dropped, or that were lost with a dead reader of a lossy pipe.
    uint64_t missed() const { return missed_ + pipe_.link().writer.refused.relaxed() - refused_before_; }
    uint64_t resumed() const { return resumed_; }           // behind the message consumed last
    uint64_t missed_bytes() const { return missed_bytes_; } // of a lossy pipe
    uint64_t missing() const { return claimed_ ? number_ - next_number_ : 0; }
    bool redelivered() const { return redelivered_; } // the message consumed last had been given to a reader that died with it
  private:
    bool look_for_more() {
        // SYNC 18: pairs with PipeWriter::flush; forbids reading a frame before the tail behind it
        const uint64_t tail = pipe_.link().writer.tail.acquire();
        // A guess: each message of a lossy pipe is claimed before it is read.
        const uint64_t read = lossy_ ? std::max(read_, pipe_.link().reader.read.relaxed()) : read_;
        // When the writer is gone and everything is acknowledged, the pipe is free and may be used between two other peers. The
        // acquire of the tail shows whose it is (SYNC 18). There is then nothing to read here.
        const PipeLink::Ends &ends = pipe_.link().ends;
        if (ends.from.relaxed() != from_ || ends.to.relaxed() != to_) {
            tail_ = read_;
            return false;
        }
        const uint64_t from = lossy_ ? read : acked_;
        if (tail % frame_alignment != 0 || read % frame_alignment != 0 || (tail > from && tail - from > pipe_.capacity()))
            pipe_.throw_corrupt(tail);
        tail_ = tail;
        read_ = read;
        return read_ < tail_;
    }
    // In a lossy pipe: takes the message before `next`, so that the writer cannot drop it. False: the writer has dropped it.
    bool claim(uint64_t next) {
        uint64_t expected = read_;
        // SYNC -: only its value counts; the bytes are ordered by SYNC 18 and 19
        if (pipe_.link().reader.read.cas(expected, next)) return true;
        if (expected < read_ || expected % frame_alignment != 0) pipe_.throw_corrupt(expected);
        read_ = expected;
        return false;
    }

    PipeBytes pipe_;
    PipeTag tag_;
    uint64_t acked_, read_, tail_, from_, to_, messages_, next_number_, number_ = 0, missed_ = 0, held_, shown_, shown_messages_;
    uint64_t next_ = 0; // behind what peek() gave
    uint64_t resumed_ = 0, missed_bytes_ = 0, refused_before_ = messages_ == 0 ? 0 : pipe_.link().writer.refused.relaxed();
    struct Consumed {
        uint64_t position = UINT64_MAX, number = 0;
    };
    Consumed last_; // the message consumed last
    std::optional<Consumed> held_back_;
    const int32_t session_;
    const bool lossy_;
    bool claimed_ = false, redelivered_ = false;
};

} // namespace penstock
