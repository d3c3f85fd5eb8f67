// A session's term buffer as the network sees it: positions that term ids and offsets mean.
#pragma once

#include "log/term_buffer.hpp"

namespace penstock {

class Terms : public TermBuffer {
  public:
    Terms(uint8_t *bytes, uint32_t term_length, uint32_t mtu, int32_t initial_term_id, int32_t stream)
        : TermBuffer(bytes, term_length, mtu, initial_term_id, stream), initial_term_id_(initial_term_id) {}

    int32_t initial_term_id() const { return initial_term_id_; }
    uint32_t offset(uint64_t position) const { return static_cast<uint32_t>(position & (term_length() - 1)); } // in its term
    // The position that a term id and an offset mean. Term ids wrap: of all that fit it is the one closest to `near`. False if
    // it lies before the first of all, or behind the last.
    bool find_position(int32_t term_id, uint32_t offset, uint64_t near, uint64_t &position) const {
        const auto bits = static_cast<uint32_t>(__builtin_ctzll(term_length()));
        const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(term_id) - static_cast<uint32_t>(this->term_id(near)));
        const int64_t term = static_cast<int64_t>(near >> bits) + ahead;
        if (term < 0 || term >> (63 - bits) != 0) return false;
        position = (static_cast<uint64_t>(term) << bits) + offset;
        return true;
    }

  private:
    const int32_t initial_term_id_;
};

} // namespace penstock
