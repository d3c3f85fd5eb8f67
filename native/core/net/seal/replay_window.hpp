// Which numbers of one sealer have been seen. After RFC 6479.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

class ReplayWindow {
  public:
    static constexpr uint64_t width = 4096; // numbers below the highest one less this are too old

    bool is_new(uint64_t number) const {
        if (number <= closed_ || number + width <= highest_) return false;
        return number > highest_ || (word(number) >> (number % 64) & 1) == 0;
    }
    // Only of a datagram that is authentic.
    void add(uint64_t number) {
        if (number > highest_) {
            const uint64_t from = highest_ / 64 + 1, to = number / 64;
            if (to >= from)
                for (uint64_t at = to - from >= seen_.size() ? to - seen_.size() + 1 : from; at <= to; ++at)
                    seen_[at % seen_.size()] = 0;
            highest_ = number;
        }
        word(number) |= uint64_t{1} << (number % 64);
    }

    // No number up to this one counts any more.
    void close_up_to(uint64_t number) { closed_ = number; }

  private:
    uint64_t &word(uint64_t number) { return seen_[number / 64 % seen_.size()]; }
    const uint64_t &word(uint64_t number) const { return seen_[number / 64 % seen_.size()]; }

    std::array<uint64_t, width / 64 + 1> seen_{}; // one word more: the window rarely begins at the start of one
    uint64_t highest_ = 0, closed_ = 0;           // 0 is no number
};

} // namespace penstock
