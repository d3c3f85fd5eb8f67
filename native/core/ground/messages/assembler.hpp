// Puts fragments together again, one unfinished message per session. Bounded: messages above the limit and the
// sessions beyond the table are dropped and counted, never grown into.
#pragma once

#include "ground/messages/frame_header.hpp"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace penstock {

inline constexpr size_t message_max = size_t{1} << 30;
inline constexpr size_t unfinished_max = 1024;

class Assembler {
  public:
    struct Part {
        std::vector<uint8_t> bytes;
        uint64_t position = 0; // of the first fragment
        bool broken = false;   // a fragment of it may have been lost
    };

    // The complete message once its last fragment is here, else null. Valid until the next call.
    const Part *add(int32_t session, uint8_t flags, uint64_t position, const uint8_t *data, size_t length) {
        if ((flags & flag_begin) != 0) {
            if (parts_.size() >= unfinished_max && parts_.find(session) == parts_.end()) parts_.clear();
            Part &part = parts_[session];
            if (!part.bytes.empty() || part.broken) ++incomplete_;
            if (part.bytes.capacity() == 0 && done_.bytes.capacity() <= reuse_max) part.bytes.swap(done_.bytes);
            part.bytes.assign(data, data + length);
            part.position = position;
            part.broken = false;
            return nullptr;
        }
        const auto found = parts_.find(session);
        if (found == parts_.end()) { // its beginning was before us, or was given up
            if ((flags & flag_end) != 0) ++incomplete_;
            return nullptr;
        }
        if (found->second.broken) {
            if ((flags & flag_end) == 0) return nullptr;
            ++incomplete_;
            parts_.erase(found);
            return nullptr;
        }
        std::vector<uint8_t> &bytes = found->second.bytes;
        if (bytes.size() + length > message_max) {
            parts_.erase(found);
            return nullptr;
        }
        bytes.insert(bytes.end(), data, data + length);
        if ((flags & flag_end) == 0) return nullptr;
        done_ = std::move(found->second);
        parts_.erase(found);
        return &done_;
    }
    // The first position of any unfinished message, or the largest number there is.
    uint64_t oldest() const {
        uint64_t oldest = UINT64_MAX;
        for (const auto &[session, part] : parts_) oldest = part.position < oldest ? part.position : oldest;
        return oldest;
    }
    bool empty() const { return parts_.empty(); }
    bool has(int32_t session) const { return parts_.find(session) != parts_.end(); } // a message that is begun
    uint64_t incomplete() const { return incomplete_; }
    void clear() { parts_.clear(); }
    // What is begun and not finished, for a reader that goes on with the stream elsewhere. It counts nothing.
    Assembler take_begun() {
        Assembler taken;
        taken.parts_.swap(parts_);
        std::erase_if(taken.parts_, [](const auto &one) { return one.second.broken; });
        return taken;
    }
    void adopt(Assembler &&begun) { parts_ = std::move(begun.parts_); }
    void forget(int32_t session) { parts_.erase(session); }
    // Frames are missing here: no unfinished message continues behind them.
    void lose() {
        for (auto &[session, part] : parts_) {
            part.bytes.clear();
            part.broken = true;
        }
    }

  private:
    static constexpr size_t reuse_max = 8 << 20; // bytes of memory that the next message takes over
    std::unordered_map<int32_t, Part> parts_;
    Part done_;
    uint64_t incomplete_ = 0;
};

} // namespace penstock
