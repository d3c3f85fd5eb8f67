// A subscription to a ring: walks the committed frames from a position of its own. One thread at a time. What it reads may be
// overwritten meanwhile; whoever copies asks `intact` afterwards. Who is lapped goes on at the newest end and counts what it
// missed.
#pragma once

#include "log_reader.hpp"
#include "ring.hpp"

namespace penstock {

class RingReader {
  public:
    RingReader(std::shared_ptr<Ring> ring, Start start, bool conflate) : ring_(std::move(ring)), conflate_(conflate) {
        ring_->attach_reader([&] { place(start); });
        counts_ = &ring_->me().reader.counts;
    }

    Ring &ring() const { return *ring_; }
    uint64_t position() const { return position_; }
    uint64_t lost_messages() const { return lost_messages_; }
    uint64_t lost_bytes() const { return lost_bytes_; }
    uint64_t conflated() const { return conflated_; } // passed over on purpose
    uint64_t restarts() const { return restarts_; }   // publications that followed the first one seen
    uint64_t sequence() const { return sequence_; }   // of the next message
    uint64_t lag() const {
        const uint64_t end = ring_->write_position();
        return end > position_ ? end - position_ : 0;
    }

    // In a forked child: a slot of its own, at the same place.
    void rejoin() {
        ring_->attach_reader([&] { ring_->me().reader.position.relaxed(position_); });
        counts_ = &ring_->me().reader.counts;
    }

    // The next message, or null. Its payload may be overwritten at any time: copy it, then ask intact().
    const Message *look() {
        if (conflate_) jump();
        for (uint32_t turn = 0; turn < turns_max; ++turn) {
            const RingFrame *frame = ring_->frame(position_);
            const uint64_t word0 = frame->word0.acquire(); // SYNC 9: pairs with RingWriter::show
            const uint64_t sequence = frame->sequence.relaxed(), origin = frame->origin.relaxed();
            const int64_t time = frame->time_ns.relaxed();
            if (!intact(position_)) {
                skip();
                continue;
            }
            if (word0 == 0) return nullptr;
            const uint64_t step = ring_->step(word0, position_);
            if (static_cast<uint32_t>(origin) != static_cast<uint32_t>(position_ / frame_alignment)) ring_->throw_unsound(position_);
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
            looked_ = sequence;
            return &message_;
        }
        return nullptr;
    }

    // Whether what was read from `position` on before this call is what was written there.
    bool intact(uint64_t position) const {
        acquire_fence(); // SYNC 10: pairs with RingWriter::claim; forbids the reads before being made after this look
        return !ring_->lapped(position);
    }
    // Copies the message that look() returned. False if it was overwritten meanwhile: then look again.
    bool copy(void *to, const Message &message) {
        copy_words_out(to, message.data, message.length);
        return intact(message.position);
    }

    // The message that look() returned is done with.
    void take() {
        if (session_ != message_.session) {
            if (session_known_) {
                ++restarts_;
                counts_->restarts.bump(1);
            }
            session_ = message_.session;
            session_known_ = true;
        }
        sequence_ = looked_ + 1;
        position_ = message_.next;
        counts_->messages.bump(1);
        counts_->bytes.bump(message_.length);
        ring_->me().reader.position.release(position_); // SYNC 13: pairs with Ring::for_each_reader
    }

    // Lapped: goes on where the publication writes next, and counts what lies between.
    void skip() {
        uint64_t end, next;
        find_end(end, next);
        if (end < position_) ring_->throw_unsound(end);
        lost_bytes_ += end - position_;
        lost_messages_ += next - sequence_;
        counts_->lost_bytes.bump(end - position_);
        counts_->lost_messages.bump(next - sequence_);
        position_ = end;
        sequence_ = next;
        ring_->me().reader.position.release(position_); // SYNC 13
    }

    // Unlike look() it moves nothing: whether a frame stands at this position, or it was lapped.
    bool readable() const { return readable(position_); }
    bool readable(uint64_t position) const { return ring_->frame(position)->word0.acquire() != 0 || ring_->lapped(position); }

  private:
    static constexpr uint32_t turns_max = 64; // a writer that laps its readers all the time must not keep one in a call

    // The write position and the number of the message that comes there, which belong together.
    void find_end(uint64_t &end, uint64_t &next) const {
        do {
            end = ring_->write_position();
            next = ring_->frame(end)->sequence.relaxed();
        } while (!intact(end));
    }

    // To the newest message, if there is a newer one than the next.
    void jump() {
        const uint64_t newest = ring_->sound(ring_->control().writer.newest.acquire()); // SYNC 14: pairs with RingWriter::advance
        if (newest <= position_) return;
        const uint64_t number = ring_->frame(newest)->sequence.relaxed();
        if (!intact(newest)) return;
        conflated_ += number - sequence_;
        counts_->conflated.bump(number - sequence_);
        position_ = newest;
        sequence_ = number;
    }

    void place(Start start) {
        if (start.from == Start::From::earliest)
            throw Error(Code::invalid, ring_->path() + ": a ring keeps no past to begin with: start is 'newest' or a position");
        find_end(position_, sequence_);
        if (start.from == Start::From::position && start.position != position_) {
            const uint64_t wanted = start.position;
            const bool aligned = wanted % frame_alignment == 0 && wanted < position_;
            const RingFrame *frame = ring_->frame(wanted & ~uint64_t{frame_alignment - 1});
            const uint64_t number = frame->sequence.relaxed(), origin = frame->origin.relaxed();
            if (!aligned || !intact(wanted) || static_cast<uint32_t>(origin) != static_cast<uint32_t>(wanted / frame_alignment))
                throw Error(Code::invalid, ring_->path() + ": position " + std::to_string(wanted) +
                                               " is not kept; the ring has reached " + std::to_string(position_));
            position_ = wanted;
            sequence_ = number;
        }
        ring_->me().reader.position.relaxed(position_);
    }

    std::shared_ptr<Ring> ring_;
    RingCounts *counts_ = nullptr;
    Message message_;
    uint64_t position_ = 0, sequence_ = 0, looked_ = 0;
    uint64_t lost_messages_ = 0, lost_bytes_ = 0, conflated_ = 0, restarts_ = 0;
    int32_t session_ = 0;
    bool session_known_ = false;
    const bool conflate_;
};

} // namespace penstock
