// A look at a ring: copies the messages that the circle still has, from a position on, without a slot. It changes nothing, and
// the publication does not know of it. What is overwritten while it is copied is missing, as for a reader that is lapped; but a
// look goes on at the oldest place that the publication has noted and that is still there. Argument: docs/design/ring.md.
#pragma once

#include "ground/files/mapping.hpp"
#include "ground/messages/arrow_batch.hpp"
#include "ground/messages/missing_span.hpp"
#include "ring/ring_layout.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

class RingLook {
  public:
    RingLook(std::shared_ptr<const Mapping> map, std::string where)
        : map_(std::move(map)), where_(std::move(where)),
          geometry_(read_ring_header(map_->bytes(), map_->size(), where_).geometry),
          control_(*reinterpret_cast<const RingControl *>(map_->bytes() + control_offset)),
          frames_(map_->bytes() + ring_data_offset(geometry_.slot_count)) {}

    uint64_t epoch() const { return geometry_.epoch; }
    uint64_t start_position() const { return geometry_.start_position; }
    uint64_t end() const {
        // SYNC 11: pairs with RingWriter::advance; forbids reading the frames below the position before it
        return check_aligned(control_.writer.write.acquire());
    }

    // Messages of [start, end) come next, without what the circle has no more. `start`: of a frame.
    void begin(uint64_t start, uint64_t end) {
        position_ = check_aligned(start);
        end_ = check_aligned(end);
        missing_.clear();
        if (position_ < end_ && !kept(position_)) skip();
        if (position_ < end_ && end_ - position_ > geometry_.capacity) throw_no_frame(where_, end_);
    }
    uint64_t position() const { return position_; }
    uint64_t resume() const { return position_; } // a message is one frame
    const std::vector<MissingSpan> &missing() const { return missing_; }
    bool torn() const { return false; }

    // The next message: sink(row, length, copy), where copy(to) copies the payload and says whether it was whole; if it was not,
    // sink forgets it. False at the end.
    template <class Sink> bool take(Sink &&sink) {
        while (position_ < end_) {
            const RingFrame *frame = frame_at(position_);
            // SYNC 9: pairs with RingWriter::show; forbids reading the frame before the length
            const uint64_t word0 = frame->word0.acquire();
            const uint64_t origin = frame->origin.relaxed();
            BatchRow row;
            row.time_ns = frame->time_ns.relaxed();
            if (!kept(position_)) {
                skip();
                continue;
            }
            const int32_t length = frame_length(word0);
            const uint64_t step = align_frame(static_cast<uint32_t>(length));
            if (length < static_cast<int32_t>(header_length) || step > left_to_the_end(position_) ||
                !is_origin(origin, position_))
                throw_no_frame(where_, position_);
            if (frame_type(word0) == static_cast<uint16_t>(FrameType::pad)) {
                position_ += step;
                continue;
            }
            row.position = position_;
            row.session = static_cast<int32_t>(origin >> 32);
            row.flags = flags_whole;
            const size_t size = static_cast<size_t>(length) - header_length;
            const auto copy = [&](void *to) {
                copy_words_out(to, reinterpret_cast<const uint8_t *>(frame) + header_length, size);
                return kept(position_);
            };
            if (!sink(row, size, copy)) {
                skip();
                continue;
            }
            position_ += step;
            return true;
        }
        return false;
    }

  private:
    const RingFrame *frame_at(uint64_t position) const {
        return reinterpret_cast<const RingFrame *>(frames_ + (position & (geometry_.capacity - 1)));
    }
    uint64_t left_to_the_end(uint64_t position) const { return geometry_.capacity - (position & (geometry_.capacity - 1)); }
    static bool is_origin(uint64_t origin, uint64_t position) {
        return static_cast<uint32_t>(origin) == static_cast<uint32_t>(position / frame_alignment);
    }
    // Whether the bytes read from `position` on, before this call, are whole.
    bool kept(uint64_t position) const {
        // SYNC 10: pairs with RingWriter::announce_claim, RingWriter::go_on; forbids looking at `claimed` before the bytes were
        // read: they could be new ones although the look says that nothing was claimed
        acquire_fence();
        return control_.claimed.value.relaxed() <= position + geometry_.capacity;
    }
    // A place that the publication has noted is believed if it is below the end, so that a frame begins there, and is kept.
    void skip() {
        uint64_t to = end_;
        for (const Atomic<uint64_t> &start : control_.starts.positions) {
            const uint64_t at = start.relaxed();
            if (at % frame_alignment != 0 || at <= position_ || at >= to) continue;
            const bool there = is_origin(frame_at(at)->origin.relaxed(), at);
            if (there && kept(at)) to = at;
        }
        add_missing(missing_, position_, to);
        position_ = to;
    }
    uint64_t check_aligned(uint64_t position) const {
        if (position % frame_alignment != 0) throw_no_frame(where_, position);
        return position;
    }

    const std::shared_ptr<const Mapping> map_;
    const std::string where_;
    const RingGeometry geometry_;
    const RingControl &control_;
    const uint8_t *const frames_;
    std::vector<MissingSpan> missing_;
    uint64_t position_ = 0, end_ = 0;
};

} // namespace penstock
