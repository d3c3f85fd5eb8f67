// The terms of a log: three in memory, addressed by 64-bit positions, with frames of a longest length that never straddle two. It
// knows where a frame lies, how its header is written, and cleaning. It knows no writers and no readers, and it repairs nothing:
// its users know the meaning of a hole (log_repair.hpp for claims of the dead). After Aeron's LogBufferDescriptor.
// docs/design/term_log.md.
#pragma once

#include "ground/messages/frame_header.hpp"
#include "log/files/log_layout.hpp"

#include <algorithm>

namespace penstock {

class TermBuffer {
  public:
    // `bytes`: of the three terms; null while a channel is open. `max_frame`: the longest frame, header included, at most a
    // quarter of a term. A message that does not fit goes out in fragments: so a log can end its frames at a network's MTU.
    TermBuffer(uint8_t *bytes, uint32_t term_length, uint32_t max_frame, int32_t initial_term_id, int32_t stream)
        : terms_(bytes), mask_(term_length - 1), bits_(static_cast<uint32_t>(__builtin_ctz(term_length))), max_frame_(max_frame),
          initial_term_id_(static_cast<uint32_t>(initial_term_id)), stream_(stream) {}

    bool mapped() const { return terms_ != nullptr; }
    uint64_t term_length() const { return uint64_t{mask_} + 1; }
    uint64_t size() const { return terms * term_length(); }
    uint32_t max_frame() const { return max_frame_; }
    uint32_t payload_max() const { return max_frame_ - header_length; } // of one frame

    FrameHeader *frame(uint64_t position) const {
        return reinterpret_cast<FrameHeader *>(terms_ + ((position >> bits_) % terms << bits_) + (position & mask_));
    }
    uint64_t left_in_term(uint64_t position) const { return term_length() - (position & mask_); }
    int32_t term_id(uint64_t position) const { // wraps, as on the wire
        return static_cast<int32_t>(initial_term_id_ + static_cast<uint32_t>(position >> bits_));
    }

    // All of the header but word 0, which says that the frame is complete: the caller stores it last.
    void write_header(FrameHeader *at, uint64_t position, int32_t session, int64_t time_ns) const {
        at->term_offset = static_cast<uint32_t>(position & mask_);
        at->session = session;
        at->stream = stream_;
        at->term_id = term_id(position);
        at->reserved = time_ns;
        wrote(&at->term_offset, header_length - sizeof(at->word0));
    }

    void clean(uint64_t from, uint64_t to) const {
        while (from < to) {
            const uint64_t length = std::min(to - from, left_in_term(from));
            zero(frame(from), length);
            from += length;
        }
    }

    // The oldest position that is kept, if everything up to `cleaned` may have been cleaned for new frames: a term's start, so
    // that it is a frame's start. `start`: the first position of all.
    uint64_t oldest_kept(uint64_t start, uint64_t cleaned) const {
        if (cleaned <= start + size()) return start;
        return (cleaned - size() + mask_) & ~uint64_t{mask_};
    }

  private:
    uint8_t *const terms_;
    const uint32_t mask_, bits_, max_frame_, initial_term_id_;
    const int32_t stream_;
};

} // namespace penstock
