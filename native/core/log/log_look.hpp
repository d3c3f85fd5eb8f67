// A look at a log: copies the messages that memory still has, from a position on, without a slot. No writer waits for it, and it
// changes nothing. Each frame is copied first; then the limit says whether it may have been cleaned meanwhile, as with a seqlock.
// It repairs nothing: at the claim of a dead publication it ends. Argument: docs/design/term_log.md.
#pragma once

#include "ground/messages/arrow_batch.hpp"
#include "ground/messages/assembler.hpp"
#include "ground/messages/missing_span.hpp"
#include "log/files/log_file.hpp"
#include "log/log_room.hpp"
#include "log/term_buffer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock {

class LogLook {
  public:
    LogLook(std::shared_ptr<const Mapping> map, std::string where, Kind kind = Kind::log)
        : map_(std::move(map)), where_(std::move(where)),
          geometry_(read_header(map_->bytes(), map_->size(), where_, kind).geometry),
          buffer_(map_->bytes() + terms_offset(geometry_.slot_count), geometry_.term_length, geometry_.max_frame,
                  geometry_.initial_term_id, geometry_.stream),
          control_(*reinterpret_cast<const Control *>(map_->bytes() + control_offset)) {}

    uint64_t epoch() const { return geometry_.epoch; }
    uint64_t start_position() const { return geometry_.start_position; }
    uint64_t end() const { return check_aligned(control_.tail.value.relaxed()); } // each frame below it is acquired by itself

    // Messages of [start, end) come next, without what memory has no more. `start`: of a frame.
    void begin(uint64_t start, uint64_t end) {
        position_ = check_aligned(start);
        end_ = check_aligned(end);
        assembler_.clear();
        missing_.clear();
        torn_ = false;
        if (position_ < end_ && !kept(position_)) skip();
        if (position_ < end_ && end_ - position_ > buffer_.size()) throw_no_frame(where_, end_);
    }
    uint64_t position() const { return position_; }                              // every frame below it was seen
    uint64_t resume() const { return std::min(assembler_.oldest(), position_); } // a message that is not whole yet begins here
    const std::vector<MissingSpan> &missing() const { return missing_; }
    bool torn() const { return torn_; } // there was a fragment of a message that begins before the look

    // The next message: sink(row, length, copy), where copy(to) copies the payload and says whether it was whole; if it was not,
    // sink forgets it. False at the end, or at a claim that is not committed.
    template <class Sink> bool take(Sink &&sink) {
        while (position_ < end_) {
            const FrameHeader *frame = buffer_.frame(position_);
            // SYNC 1: pairs with Image::insert, Image::pad, LogWriter::commit, LogWriter::abort, LogWriter::fill_run,
            // LogWriter::pad_term, LogWriter::pad_rest, LogRepair::pad_hole; forbids reading header and payload before the length
            // that says that they are there
            const uint64_t word0 = frame->word0.acquire();
            if (!kept(position_)) {
                skip();
                continue;
            }
            if (frame_length(word0) <= 0) return false;
            const uint64_t step = check_frame(word0);
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::pad)) {
                if ((frame_flags(word0) & flag_lost) != 0) lose(position_ + step);
                position_ += step;
                continue;
            }
            read(&frame->term_offset, header_length - sizeof(frame->word0));
            BatchRow row;
            row.position = position_;
            row.session = frame->session;
            row.time_ns = frame->reserved;
            row.flags = frame_flags(word0) & flags_whole;
            const auto *payload = reinterpret_cast<const uint8_t *>(frame) + header_length;
            const size_t size = static_cast<size_t>(frame_length(word0)) - header_length;
            const auto copy = [&](void *to) {
                read(payload, size);
                if (size != 0) copy_bytes(to, payload, size);
                return kept(position_);
            };
            if (row.flags == flags_whole) {
                if (!sink(row, size, copy)) {
                    skip();
                    continue;
                }
                position_ += step;
                return true;
            }
            fragment_.resize(size);
            if (!copy(fragment_.data())) { // it was cleaned
                skip();
                continue;
            }
            torn_ = torn_ || ((row.flags & flag_begin) == 0 && !assembler_.has(row.session));
            const Assembler::Part *whole = assembler_.add(row.session, row.flags, position_, fragment_.data(), size);
            position_ += step;
            if (whole == nullptr) continue;
            row.position = whole->position;
            row.flags = flags_whole;
            return sink(row, whole->bytes.size(), [&](void *to) {
                if (!whole->bytes.empty()) copy_bytes(to, whole->bytes.data(), whole->bytes.size());
                return true;
            });
        }
        return false;
    }

  private:
    // Bytes up to here may have been cleaned: a writer cleans one step beyond the limit before it moves it.
    uint64_t cleaned() const {
        return control_.limit.value.relaxed() + header_length + LogRoom::clean_step(geometry_.term_length);
    }
    // Whether the bytes read from `position` on, before this call, are whole.
    bool kept(uint64_t position) const {
        // SYNC 43: pairs with LogRoom::make_room, LogWriter::claim_tail, LogRepair::pad_hole; forbids looking at the limit before
        // the bytes were read: they could be cleaned, or new ones, although the limit says that they are kept
        acquire_fence();
        return cleaned() <= position + buffer_.size();
    }
    // To the oldest term of which nothing may have been cleaned.
    void skip() {
        const uint64_t oldest = buffer_.oldest_kept(geometry_.start_position, cleaned());
        const uint64_t to = std::min(std::max(oldest, position_ + frame_alignment), end_);
        lose(to);
        position_ = to;
    }
    // Messages that are begun do not go on behind it.
    void lose(uint64_t to) {
        assembler_.lose();
        add_missing(missing_, position_, to);
    }
    uint64_t check_aligned(uint64_t position) const {
        if (position % frame_alignment != 0) throw_no_frame(where_, position);
        return position;
    }
    uint64_t check_frame(uint64_t word0) const {
        const int32_t length = frame_length(word0);
        const uint64_t step = align_frame(static_cast<uint32_t>(length));
        if (length < static_cast<int32_t>(header_length) || step > buffer_.left_in_term(position_) || frame_version(word0) != 0 ||
            frame_type(word0) > static_cast<uint16_t>(FrameType::data))
            throw_no_frame(where_, position_);
        return step;
    }

    const std::shared_ptr<const Mapping> map_;
    const std::string where_;
    const LogGeometry geometry_;
    const TermBuffer buffer_;
    const Control &control_;
    Assembler assembler_;
    std::vector<uint8_t> fragment_;
    std::vector<MissingSpan> missing_;
    uint64_t position_ = 0, end_ = 0;
    bool torn_ = false;
};

} // namespace penstock
