// The messages that a walk over a log's frames completes, and those that it leaves begun: as an Assembler finds them, without
// their bytes.
#pragma once

#include "ground/messages/frame_header.hpp"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace penstock {

class Completed {
  public:
    void add(int32_t session, uint8_t flags, uint64_t position) {
        if (flags == flags_whole) {
            ++count_;
            return;
        }
        if ((flags & flag_begin) != 0) {
            begun_[session] = position;
            return;
        }
        const auto found = begun_.find(session);
        torn_ = torn_ || found == begun_.end();
        if (found == begun_.end() || (flags & flag_end) == 0) return;
        begun_.erase(found);
        ++count_;
    }
    // Frames are missing here.
    void lose() { begun_.clear(); }

    uint64_t count() const { return count_; }
    // Whether there was a fragment of a message that begins before the walk.
    bool torn() const { return torn_; }
    // Whether the frame there is of a message that is begun.
    bool begun(int32_t session, uint64_t position) const {
        const auto found = begun_.find(session);
        return found != begun_.end() && position >= found->second;
    }
    // Where the oldest message begins that is begun.
    uint64_t oldest(uint64_t otherwise) const {
        for (const auto &[session, position] : begun_) otherwise = std::min(otherwise, position);
        return otherwise;
    }

  private:
    uint64_t count_ = 0;
    bool torn_ = false;
    std::unordered_map<int32_t, uint64_t> begun_; // by session
};

} // namespace penstock
