// A subscription: walks the committed frames of a term log from its own position. One thread at a time. Never
// sleeps: "nothing yet" is a value. Everything below the position that it shows may be cleaned; messages that it lends stay
// above.
#pragma once

#include "ground/messages/assembler.hpp"
#include "ground/messages/message.hpp"
#include "log/completed.hpp"
#include "log/term_log.hpp"

#include <string>
#include <vector>

namespace penstock {

class LogReader {
  public:
    LogReader(std::shared_ptr<TermLog> log, Start start, uint64_t drop_after_ns, MemberName name = {})
        : log_(std::move(log)), drop_after_ns_(drop_after_ns), name_(std::move(name)) {
        join(start);
    }

    // Of a subscription that is older than the channel's first publication: `log` has its slot already, at the start.
    struct Early {
        explicit Early() = default;
    };
    LogReader(std::shared_ptr<TermLog> log, Early, uint64_t drop_after_ns, MemberName name)
        : log_(std::move(log)), position_(log_->geometry().start_position), shown_(position_), drop_after_ns_(drop_after_ns),
          name_(std::move(name)) {
        joined();
    }

    TermLog &log() const { return *log_; }
    const std::shared_ptr<TermLog> &shared_log() const { return log_; }
    uint64_t position() const { return position_; }
    uint64_t lag() const {
        const uint64_t tail = log_->tail();
        return tail > position_ ? tail - position_ : 0;
    }
    uint64_t lost() const { return lost_; }
    uint64_t incomplete() const { return assembler_.incomplete(); }

    void join(Start start) {
        log_->attach(Role::subscription, drop_after_ns_, [&] { seek(start); }, name_);
        joined();
    }

    // Goes on at a later place where a frame begins: all before it is known otherwise.
    void skip_to(uint64_t position) {
        move_to(std::max(position, position_));
        show_position();
    }

    // The next message, or null. The frame stays readable until consume(); an assembled one until the next peek().
    const Message *peek() {
        // Padding alone never fills the log. A reader that finds more of it than that returns, so that a damaged log cannot keep
        // it here for ever.
        const uint64_t begun = position_;
        for (;;) {
            if (drop_after_ns_ != 0) check_not_dropped();
            FrameHeader *frame = log_->frame(position_);
            // SYNC 1: pairs with Image::insert, Image::pad, LogWriter::commit, LogWriter::abort, LogWriter::fill_run,
            // LogWriter::pad_term, LogWriter::pad_rest, LogRepair::pad_hole; forbids reading header and payload before the length
            // that says that they are there
            const uint64_t word0 = frame->word0.acquire();
            const int32_t length = frame_length(word0);
            if (length <= 0) {
                show_position();
                return nullptr;
            }
            const uint64_t step = check_frame(word0);
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::pad)) {
                if (is_lost(word0)) lose(step);
                move_to(position_ + step);
                if (position_ - begun > uint64_t{terms} * log_->geometry().term_length) return nullptr;
                continue;
            }
            read(&frame->term_offset, header_length - sizeof(frame->word0));
            message_.session = frame->session;
            message_.time_ns = frame->reserved;
            message_.next = position_ + step;
            const auto *payload = reinterpret_cast<const uint8_t *>(frame) + header_length;
            const size_t size = static_cast<size_t>(length) - header_length;
            const uint8_t flags = frame_flags(word0) & flags_whole;
            if (flags == flags_whole) {
                message_.data = payload;
                message_.length = size;
                message_.position = position_;
                message_.assembled = false;
                return &message_;
            }
            if (add_fragment(flags, payload, size)) return &message_;
        }
    }

    // Passes the message that peek() returned. Its bytes may be cleaned from now on.
    void consume() {
        counters_->messages.increment(1);
        counters_->bytes.increment(message_.length);
        assembled_waits_ = false;
        move_to(message_.next);
    }

    // Messages that are begun here and end in another log of the same stream.
    Assembler take_begun() { return assembler_.take_begun(); }
    void adopt(Assembler &&begun) { assembler_.adopt(std::move(begun)); }

    // Keeps everything from `position` on uncleaned until end_hold(), whatever is taken meanwhile.
    void hold(uint64_t position) { held_.push_back(position); }
    void end_hold(uint64_t position) {
        const auto found = std::find(held_.begin(), held_.end(), position);
        if (found != held_.end()) held_.erase(found);
        show_position();
    }

    // Throws `too_slow` if writers stopped waiting for this subscription. It is then at the oldest kept position.
    void check_not_dropped() {
        // SYNC 8: pairs with LogRoom::drop_slow; forbids looking at the state before the bytes were read: they could be cleaned
        // bytes although the state still says that they are not cleaned
        acquire_fence();
        // SYNC -: the fence has ordered the reads before it; after it only the value of the state counts
        if (log_->me().identity.state.acquire() == static_cast<uint32_t>(State::active)) return;
        const uint64_t before = position_;
        if (!log_->acquire_lock(1'000'000'000)) throw Error(Code::busy, log_->where() + ": the channel's lock is stuck");
        position_ = std::max(log_->earliest(), position_);
        shown_ = position_;
        log_->me().reader.position.release(position_); // SYNC -: under the lock, and nothing was read at it
        log_->me().identity.blocked_since.relaxed(0);
        // SYNC -: under the lock, which orders it for the participants that make room (SYNC 6)
        log_->me().identity.state.release(static_cast<uint32_t>(State::active));
        log_->release_lock();
        assembler_.clear();
        assembled_waits_ = false;
        const uint64_t gone = position_ - before;
        lose(gone);
        throw Error(Code::too_slow, log_->where() +
                                        ": this subscription was too slow for its drop_after and was dropped at position " +
                                        std::to_string(before) + "; " + std::to_string(gone) +
                                        " bytes of the log were lost, reading continues at " + std::to_string(position_));
    }
    bool droppable() const { return drop_after_ns_ != 0; }

    // Nothing to read though something was claimed here: fills the hole if its owner is dead.
    bool stalled() const { return log_->tail() > position_; }
    bool unblock() { return stalled() && log_->unblock(position_); }

    // After a look that found nothing: whether the stream has ended.
    bool ended() { return log_->ended(position_); }

    // Whether a frame is at the position, of whatever kind. Unlike peek() it moves nothing.
    bool readable() const {
        // SYNC -: only asks whether a frame is there; peek(), which reads it, acquires it
        return frame_length(log_->frame(position_)->word0.acquire()) > 0;
    }

    // For raw readers (the recorder): the contiguous committed frames from here, at most `max` bytes, within one term.
    FrameBlock run(uint64_t max) {
        FrameBlock run;
        if (drop_after_ns_ != 0) check_not_dropped();
        uint64_t at = position_;
        const uint64_t end = position_ + std::min(max, log_->left_in_term(position_));
        while (at < end) {
            const FrameHeader *frame = log_->frame(at);
            // SYNC 1: pairs with LogWriter::commit, LogWriter::abort, LogWriter::fill_run, LogWriter::pad_term,
            // LogWriter::pad_rest, LogRepair::pad_hole; forbids reading header and payload before the length that says that they
            // are there
            const uint64_t word0 = frame->word0.acquire();
            if (frame_length(word0) <= 0) break;
            const uint64_t step = check_frame_at(word0, at);
            if (at + step > end && at != position_) break;
            if (is_lost(word0)) break; // see skip_lost()
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::data)) {
                read(&frame->term_offset, header_length - sizeof(frame->word0));
                run.time_min = std::min(run.time_min, frame->reserved);
                run.time_max = std::max(run.time_max, frame->reserved);
                run.begins += (frame_flags(word0) & flag_begin) != 0;
                run.payload += static_cast<uint32_t>(frame_length(word0)) - header_length;
            }
            at += step;
        }
        run.data = reinterpret_cast<const uint8_t *>(log_->frame(position_));
        run.length = at - position_;
        if (run.length == 0) show_position();
        return run;
    }
    void take_run(const FrameBlock &run) {
        counters_->messages.increment(run.begins);
        counters_->bytes.increment(run.payload);
        move_to(position_ + run.length);
    }

    // Of an image: skips padding that stands for lost frames. Returns its bytes.
    uint64_t skip_lost() {
        const uint64_t before = position_;
        for (;;) {
            // SYNC 1: pairs with Image::pad; forbids reading the header before the length
            const uint64_t word0 = log_->frame(position_)->word0.acquire();
            if (frame_length(word0) <= 0 || !is_lost(word0)) return position_ - before;
            const uint64_t step = check_frame(word0);
            lose(step);
            move_to(position_ + step);
        }
    }

    void show_position() {
        uint64_t safe = held_.empty() ? position_ : std::min(position_, *std::min_element(held_.begin(), held_.end()));
        safe = std::max(safe, shown_); // of a message in fragments the first ones may have been shown
        if (safe == shown_) return;
        shown_ = safe;
        // SYNC 3: pairs with LogRoom::position_limit, LogMembers::slowest; forbids the position being visible before the reads of
        // the frames below it: they could be cleaned while they are read
        log_->me().reader.position.release(safe);
        event_notify(log_->control().space.value);
    }

  private:
    void joined() {
        counters_ = &log_->me().counters;
        show_step_ = std::max<uint64_t>(log_->geometry().window / platform::shows_per_window, frame_alignment);
    }
    void move_to(uint64_t position) {
        position_ = position;
        if (position_ - shown_ >= show_step_) show_position();
    }

    void lose(uint64_t bytes) {
        assembler_.lose();
        lost_ += bytes;
        counters_->bytes_lost.increment(bytes);
    }
    static bool is_data(uint64_t word0) { return frame_type(word0) == static_cast<uint16_t>(FrameType::data); }
    static bool is_lost(uint64_t word0) {
        return frame_type(word0) == static_cast<uint16_t>(FrameType::pad) && (frame_flags(word0) & flag_lost) != 0;
    }
    uint64_t check_frame(uint64_t word0) { return check_frame_at(word0, position_); }
    // Frame lengths are bytes from shared memory: the step they mean must stay inside the term.
    uint64_t check_frame_at(uint64_t word0, uint64_t at) {
        const int32_t length = frame_length(word0);
        const uint64_t step = align_frame(static_cast<uint32_t>(length));
        if (length >= static_cast<int32_t>(header_length) && step <= log_->left_in_term(at) && frame_version(word0) == 0 &&
            frame_type(word0) <= static_cast<uint16_t>(FrameType::data))
            return step;
        if (drop_after_ns_ != 0 && log_->attached()) check_not_dropped(); // perhaps not damage but a lap
        throw Error(Code::corrupt, log_->where() + ": no frame begins at position " + std::to_string(at) + " (length " +
                                       std::to_string(length) + ", type " + std::to_string(frame_type(word0)) +
                                       "): the shared memory was overwritten by something else");
    }

    bool add_fragment(uint8_t flags, const uint8_t *payload, size_t size) {
        if (assembled_waits_) return true; // looked at before, not taken yet
        read(payload, size);
        const Assembler::Part *whole = assembler_.add(message_.session, flags, position_, payload, size);
        if (whole == nullptr) {
            move_to(message_.next); // the fragment is copied: its room may go
            return false;
        }
        if (drop_after_ns_ != 0) check_not_dropped();
        message_.data = whole->bytes.data();
        message_.length = whole->bytes.size();
        message_.position = whole->position;
        message_.assembled = true;
        assembled_waits_ = true;
        return true;
    }

    void seek(Start start) {
        const uint64_t earliest = log_->earliest(), tail = log_->tail();
        if (start.from == Start::From::newest) position_ = tail;
        else if (start.from == Start::From::earliest) position_ = std::max(earliest, start.position);
        else if (start.from == Start::From::last) position_ = find_last(start.position, earliest, tail);
        else position_ = find_position(start.position, earliest, tail);
        shown_ = position_;
        log_->me().reader.position.release(position_); // SYNC -: under the lock, and nothing was read yet
    }

    uint64_t find_position(uint64_t wanted, uint64_t earliest, uint64_t tail) {
        if (wanted < earliest || wanted > tail)
            throw Error(Code::invalid, log_->where() + ": position " + std::to_string(wanted) + " is not kept; positions from " +
                                           std::to_string(earliest) + " to " + std::to_string(tail) + " are");
        const uint64_t at = walk(std::max(earliest, term_start(wanted)), wanted, [](uint64_t, uint64_t) { return true; });
        if (at < wanted)
            throw Error(Code::busy,
                        log_->where() + ": a frame before position " + std::to_string(wanted) + " is still being written");
        if (at != wanted)
            throw Error(Code::invalid, log_->where() + ": no message begins at position " + std::to_string(wanted) +
                                           "; the next one begins at " + std::to_string(at));
        return at;
    }

    // Behind the message before the newest `count`, or at the oldest kept position. In a log the message that is completed later
    // is the newer one. Positions only lead forward, so this walks from a term's start: the newest term's, unless it has too few
    // messages. Fragments before that place, of messages that are complete behind it, are assembled.
    uint64_t find_last(uint64_t count, uint64_t earliest, uint64_t tail) {
        uint64_t from = std::max(earliest, term_start(tail)), end = 0;
        Completed all = complete(from, tail, UINT64_MAX, end);
        while (from > earliest && (all.count() < count || all.torn())) {
            from = std::max(earliest, from - log_->geometry().term_length);
            all = complete(from, tail, UINT64_MAX, end);
        }
        if (all.count() <= count) return from;
        const Completed older = complete(from, tail, all.count() - count, end);
        walk(older.oldest(end), end, [&](uint64_t at, uint64_t word0) {
            const FrameHeader *frame = log_->frame(at);
            const auto *payload = reinterpret_cast<const uint8_t *>(frame) + header_length;
            const size_t size = static_cast<size_t>(frame_length(word0)) - header_length;
            if (!is_data(word0) || !older.begun(frame->session, at)) return true;
            read(payload, size);
            assembler_.add(frame->session, frame_flags(word0) & flags_whole, at, payload, size);
            return true;
        });
        return end;
    }
    // The messages that frames from a message's begin on complete, until there are `most`; and where that is.
    Completed complete(uint64_t from, uint64_t tail, uint64_t most, uint64_t &end) {
        Completed found;
        end = walk(from, tail, [&](uint64_t at, uint64_t word0) {
            if (found.count() == most) return false;
            if (is_lost(word0)) found.lose();
            if (!is_data(word0)) return true;
            const FrameHeader *frame = log_->frame(at);
            read(&frame->session, sizeof frame->session);
            found.add(frame->session, frame_flags(word0) & flags_whole, at);
            return true;
        });
        return found;
    }
    // Visits the frames that are committed up to `end`, under the log's lock, as long as `visit` says so; where that ends.
    template <class Visit> uint64_t walk(uint64_t at, uint64_t end, Visit &&visit) {
        while (at < end) {
            // SYNC 1: pairs with Image::insert, Image::pad, LogWriter::commit, LogWriter::abort, LogWriter::fill_run,
            // LogWriter::pad_term, LogWriter::pad_rest, LogRepair::pad_hole; forbids reading a frame, or behind it the lengths of
            // a run, before the length that says that they are there
            const uint64_t word0 = log_->frame(at)->word0.acquire();
            if (frame_length(word0) <= 0) break;
            const uint64_t step = check_frame_at(word0, at);
            if (!visit(at, word0)) break;
            at += step;
        }
        return at;
    }
    uint64_t term_start(uint64_t position) const { return position & ~uint64_t{log_->geometry().term_length - 1}; }

    std::shared_ptr<TermLog> log_;
    Message message_;
    Assembler assembler_;
    Slot::Counters *counters_ = nullptr;
    uint64_t position_ = 0, shown_ = 0, show_step_ = 0, lost_ = 0;
    const uint64_t drop_after_ns_;
    const MemberName name_;
    bool assembled_waits_ = false;
    std::vector<uint64_t> held_;
};

} // namespace penstock
