// A subscription to a ring: walks the committed frames from its own position. One thread at a time. Frames may be
// overwritten while they are read, so a caller copies a message and asks `intact` afterwards. A reader that was lapped continues
// at the newest end and counts what it missed.
#pragma once

#include "ground/messages/message.hpp"
#include "ring/ring.hpp"

#include <vector>

namespace penstock {

class RingReader {
  public:
    RingReader(std::shared_ptr<Ring> ring, Start start, bool conflate)
        : RingReader(
              std::move(ring), start, conflate, [] {}, [](RingReader &reader, uint64_t count) { reader.go_back(count); }) {}
    // `attached` runs when the slot is taken, before the start is looked for, and before anybody sees the subscription.
    // `go_back`: moves back by this many of the newest messages; see go_to().
    template <class Attached, class GoBack>
    RingReader(std::shared_ptr<Ring> ring, Start start, bool conflate, Attached &&attached, GoBack &&go_back)
        : ring_(std::move(ring)), conflate_(conflate) {
        ring_->attach_reader([&] {
            attached();
            if (start.from == Start::From::last) go_back(*this, start.position);
            else seek(start);
        });
        counts_ = &ring_->me().reader.counts;
    }

    // Of a subscription that is older than the channel's first publication: `ring` has its slot already, at the start.
    struct Early {
        explicit Early() = default;
    };
    RingReader(std::shared_ptr<Ring> ring, bool conflate, Early)
        : ring_(std::move(ring)), counts_(&ring_->me().reader.counts), position_(ring_->geometry().start_position),
          sequence_(ring_->geometry().start_sequence), conflate_(conflate) {}

    Ring &ring() const { return *ring_; }
    uint64_t position() const { return position_; }
    uint64_t lost_messages() const { return lost_messages_; }
    uint64_t lost_bytes() const { return lost_bytes_; }
    uint64_t conflated() const { return conflated_; } // passed over on purpose
    uint64_t restarts() const { return restarts_; }   // publications that followed the first one seen
    uint64_t sequence() const { return sequence_; }   // of the next message
    uint64_t peeked() const { return peeked_; }       // the number of the message that peek() returned
    uint64_t lag() const {
        const uint64_t end = ring_->write_position();
        return end > position_ ? end - position_ : 0;
    }

    // In a forked child: its own slot, at the same place.
    void rejoin() {
        rejoin([] {});
    }
    template <class Attached> void rejoin(Attached &&attached) {
        ring_->attach_reader([&] {
            ring_->me().reader.position.relaxed(position_);
            attached();
        });
        counts_ = &ring_->me().reader.counts;
    }

    // The next message, or null. Its payload may be overwritten at any time: copy it, then ask intact().
    const Message *peek() {
        if (conflate_) jump();
        return next();
    }
    // The same without passing anything over.
    const Message *next() {
        for (uint32_t attempt = 0; attempt < attempts_max; ++attempt) {
            const RingFrame *frame = ring_->frame(position_);
            // SYNC 9: pairs with RingWriter::show; forbids reading the frame, or the 0 behind it, before the length
            const uint64_t word0 = frame->word0.acquire();
            const uint64_t sequence = frame->sequence.relaxed(), origin = frame->origin.relaxed();
            const int64_t time = frame->time_ns.relaxed();
            if (!intact(position_)) {
                skip();
                continue;
            }
            if (word0 == 0) return nullptr;
            const uint64_t step = ring_->step(word0, position_);
            if (!is_origin(origin, position_)) ring_->throw_corrupt(position_);
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::pad)) {
                position_ += step;
                continue;
            }
            message_.data = reinterpret_cast<const uint8_t *>(frame) + header_length;
            message_.length = static_cast<uint32_t>(frame_length(word0)) - header_length;
            message_.position = position_;
            message_.next = position_ + step;
            message_.time_ns = time;
            message_.session = static_cast<int32_t>(origin >> 32);
            peeked_ = sequence;
            return &message_;
        }
        return nullptr;
    }

    // The newest message there is and its number, read or not; moves nothing. False: there is none yet.
    bool newest(Message &message, uint64_t &number) const {
        // SYNC 14: pairs with RingWriter::advance; forbids reading the frame before the position that says that it is complete
        const uint64_t at = ring_->check_aligned(ring_->control().writer.newest.acquire());
        if (at > ring_->control().claimed.value.relaxed()) ring_->throw_corrupt(at);
        const RingFrame *frame = ring_->frame(at);
        const uint64_t word0 = frame->word0.relaxed(), origin = frame->origin.relaxed(); // complete: SYNC 14
        number = frame->sequence.relaxed();
        message.time_ns = frame->time_ns.relaxed();
        if (word0 == 0 || !intact(at)) return false;
        message.next = at + ring_->step(word0, at);
        message.data = reinterpret_cast<const uint8_t *>(frame) + header_length;
        message.length = static_cast<uint32_t>(frame_length(word0)) - header_length;
        message.position = at;
        message.session = static_cast<int32_t>(origin >> 32);
        return frame_type(word0) == static_cast<uint16_t>(FrameType::data);
    }

    // Whether the bytes read from `position` on, before this call, are whole.
    bool intact(uint64_t position) const {
        // SYNC 10: pairs with RingWriter::announce_claim, RingWriter::go_on; forbids looking at `claimed` before the bytes were
        // read: they could be new ones although the look says that nothing was claimed
        acquire_fence();
        return !ring_->lapped(position);
    }
    // Copies the message that peek() returned. False if it was overwritten meanwhile: then look again.
    bool copy(void *to, const Message &message) {
        copy_words_out(to, message.data, message.length);
        return intact(message.position);
    }

    // Takes the message that peek() returned.
    void consume() {
        pass();
        received(message_);
    }
    // The same in two steps, for callers that read in place. pass(): the message is the reader's, and the next one may be looked
    // for. Then received(), if it was read whole, or missed(), if it was overwritten before that.
    void pass() {
        const auto session = static_cast<uint32_t>(message_.session);
        if (session_ != session) {
            const auto newer = static_cast<int32_t>(session - session_);
            if (session_ != 0 && newer > 0) { // of several publications, one that was there before is no newer one
                restarts_ += static_cast<uint32_t>(newer);
                counts_->restarts.increment(static_cast<uint32_t>(newer));
            }
            if (session_ == 0 || newer > 0) session_ = session;
        }
        sequence_ = peeked_ + 1;
        position_ = message_.next;
    }
    void received(const Message &message) {
        counts_->messages.increment(1);
        counts_->bytes.increment(message.length);
        show_position();
    }
    void missed(const Message &message) {
        lose(message.next - message.position, 1);
        show_position();
    }

    // After a lap: continues where the publication writes next, and counts the messages in between as lost.
    void skip() {
        uint64_t end, next;
        find_end(end, next);
        if (end < position_) ring_->throw_corrupt(end);
        lose(end - position_, next - sequence_);
        position_ = end;
        sequence_ = next;
        show_position();
    }

    // The same to message `number`, as far as it still begins at `position`; `lost` of those in between count. False otherwise.
    bool skip_to(uint64_t position, uint64_t number, uint64_t lost) {
        uint32_t session = 0; // told with the message itself
        if (position < position_ || number < sequence_ || !begins_at(position, number, session)) return false;
        if (lost != 0) lose(position - position_, lost);
        position_ = position;
        sequence_ = number;
        show_position();
        return true;
    }

    // For the recorder: committed frames from here, at most `max` bytes and not over the circle's end, copied to `buffer` as a
    // log would hold them. The reader has passed them already. If it was lapped, its position is not where the run ends.
    FrameBlock run(uint64_t max, std::vector<uint8_t> &buffer) {
        buffer.clear();
        FrameBlock run;
        const uint64_t lost = lost_bytes_, end = position_ + std::min(max, ring_->left_to_the_end(position_));
        while (position_ < end) {
            const uint64_t before = position_;
            const Message *message = next();
            if (lost_bytes_ != lost) break; // the messages copied before are whole
            if (position_ != before) append_frame(buffer, before, position_ - before, nullptr); // a pad was passed
            if (message == nullptr || (message->next > end && !buffer.empty())) break;
            const size_t at = append_frame(buffer, message->position, message->next - message->position, message);
            if (!copy(buffer.data() + at, *message)) {
                buffer.resize(at - header_length);
                continue; // the next look finds that it was lapped
            }
            run.time_min = std::min(run.time_min, message->time_ns);
            run.time_max = std::max(run.time_max, message->time_ns);
            ++run.begins;
            run.payload += message->length;
            consume();
        }
        run.data = buffer.data();
        run.length = buffer.size();
        return run;
    }

    // ---- where to begin, before the slot is visible ----

    // Behind the newest message.
    void go_to_end() {
        session_ = ring_->control().writer.session.relaxed();
        find_end(position_, sequence_);
        ring_->me().reader.position.relaxed(position_);
    }
    // To message `number`. False if it does not begin at `position`, or not any more.
    bool go_to(uint64_t position, uint64_t number) {
        uint32_t session = 0;
        if (!begins_at(position, number, session)) return false;
        session_ = session;
        position_ = position;
        sequence_ = number;
        ring_->me().reader.position.relaxed(position);
        return true;
    }
    // To the newest `count` messages, or to those that can be found.
    void go_back(uint64_t count) {
        for (uint32_t attempt = 0; attempt < attempts_max; ++attempt)
            if (find_last(count)) return;
        go_to_end(); // the publication overwrites the circle faster than it can be looked at
    }

  private:
    // Whether message `number` is at `position`. session: its publication's, read before writers may go over it.
    bool begins_at(uint64_t position, uint64_t number, uint32_t &session) const {
        if (position % frame_alignment != 0 || position >= ring_->write_position()) return false;
        const RingFrame *frame = ring_->frame(position);
        const uint64_t sequence = frame->sequence.relaxed(), origin = frame->origin.relaxed();
        session = static_cast<uint32_t>(origin >> 32);
        return intact(position) && sequence == number && is_origin(origin, position);
    }
    static bool is_origin(uint64_t origin, uint64_t position) {
        return static_cast<uint32_t>(origin) == static_cast<uint32_t>(position / frame_alignment);
    }
    // False if it was overwritten meanwhile. Positions only lead forward: so it walks from the newest place that is far enough
    // back of those that the publication has noted, once per part of the circle.
    bool find_last(uint64_t count) {
        uint64_t end, next;
        find_end(end, next);
        const uint64_t wanted = std::min(count, next - ring_->geometry().start_sequence); // messages before the end
        uint64_t at = end, back = 0;
        const auto look_at = [&](uint64_t position) {
            if (position % frame_alignment != 0 || position < ring_->geometry().start_position || position >= end) return;
            const uint64_t number = ring_->frame(position)->sequence.relaxed();
            const bool there = is_origin(ring_->frame(position)->origin.relaxed(), position);
            const uint64_t found = next - number;
            if (!intact(position) || !there || found > ring_->geometry().capacity) return;
            if (back < wanted ? found <= back : found < wanted || found >= back) return;
            at = position;
            back = found;
        };
        // SYNC -: looks at frames before the end only, which find_end has acquired
        look_at(ring_->control().writer.newest.acquire());
        if (back < wanted)
            for (uint32_t part = 0; part < ring_parts; ++part) look_at(ring_->control().starts.positions[part].relaxed());
        while (back > wanted) {
            // SYNC 9: pairs with RingWriter::show; forbids reading the next frame before the length of this one
            const uint64_t word0 = ring_->frame(at)->word0.acquire();
            if (!intact(at)) return false;
            at += ring_->step(word0, at);
            const uint64_t number = ring_->frame(at)->sequence.relaxed();
            if (!intact(at)) return false;
            if (at >= end || next - number > back) ring_->throw_corrupt(at);
            back = next - number;
        }
        if (back != 0) return go_to(at, next - back);
        go_to_end();
        return true;
    }

    void show_position() {
        // SYNC 13: pairs with Ring::for_each_reader, read_ring_status; forbids the position being visible before the
        // reader is done with the messages below it
        ring_->me().reader.position.release(position_);
    }
    void lose(uint64_t bytes, uint64_t messages) {
        lost_bytes_ += bytes;
        lost_messages_ += messages;
        counts_->lost_bytes.increment(bytes);
        counts_->lost_messages.increment(messages);
    }

    // Room for one frame of a recording, its header written; where its payload goes.
    size_t append_frame(std::vector<uint8_t> &buffer, uint64_t position, uint64_t step, const Message *message) const {
        const size_t at = buffer.size();
        buffer.resize(at + step);
        const uint64_t capacity = ring_->geometry().capacity;
        write_frame_header(buffer.data() + at, static_cast<uint32_t>(position & (capacity - 1)),
                           static_cast<int32_t>(static_cast<uint32_t>(position / capacity)), step, message);
        return at + header_length;
    }

    static constexpr uint32_t attempts_max = 64; // a writer that laps its readers all the time must not keep one in a call

    // The write position, and the number of the next message at it.
    void find_end(uint64_t &end, uint64_t &next) const {
        for (uint32_t attempt = 0; attempt < 1000; ++attempt) { // a writer would have to lap us each time between two loads
            end = ring_->write_position();
            next = ring_->frame(end)->sequence.relaxed();
            if (intact(end)) return;
        }
        ring_->throw_corrupt(end);
    }

    // To the newest message, if there is a newer one than the next.
    void jump() {
        // SYNC 14: pairs with RingWriter::advance; forbids reading the frame before the position that says that it is complete
        const uint64_t newest = ring_->check_aligned(ring_->control().writer.newest.acquire());
        if (newest <= position_) return;
        if (newest >= ring_->control().claimed.value.relaxed()) ring_->throw_corrupt(newest);
        const uint64_t number = ring_->frame(newest)->sequence.relaxed();
        if (!intact(newest)) return;
        conflated_ += number - sequence_;
        counts_->conflated.increment(number - sequence_);
        position_ = newest;
        sequence_ = number;
    }

    void seek(Start start) {
        if (start.from == Start::From::earliest)
            throw Error(Code::unsupported,
                        ring_->where() + ": a ring keeps no past to begin with: start is 'newest' or a position");
        go_to_end();
        if (start.from == Start::From::newest || start.position == position_) return;
        const uint64_t wanted = start.position, end = position_;
        const uint64_t number = ring_->frame(wanted & ~uint64_t{frame_alignment - 1})->sequence.relaxed();
        if (wanted >= end || !go_to(wanted, number))
            throw Error(Code::invalid, ring_->where() + ": position " + std::to_string(wanted) +
                                           " is not kept; the ring has reached " + std::to_string(end));
    }

    std::shared_ptr<Ring> ring_;
    RingCounts *counts_ = nullptr;
    Message message_;
    uint64_t position_ = 0, sequence_ = 0, peeked_ = 0;
    uint64_t lost_messages_ = 0, lost_bytes_ = 0, conflated_ = 0, restarts_ = 0;
    uint32_t session_ = 0; // of the publication heard last; 0: there was none yet
    const bool conflate_;
};

} // namespace penstock
