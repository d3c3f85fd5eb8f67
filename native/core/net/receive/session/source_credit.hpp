// What a datagram's source may be sent for it before it has proved its address: as many bytes, once.
#pragma once

#include <cstdint>
#include <utility>

namespace penstock {

// It cannot be copied: an image, a request for SETUP or a challenge takes the bytes, and they are spent.
class SourceCredit {
  public:
    explicit SourceCredit(uint64_t bytes) : bytes_(bytes) {}
    SourceCredit(const SourceCredit &) = delete;
    SourceCredit &operator=(const SourceCredit &) = delete;

    uint64_t take() { return std::exchange(bytes_, 0); }
    // False: so much is not left, and nothing is spent.
    bool spend(uint64_t bytes) {
        if (bytes_ < bytes) return false;
        bytes_ -= bytes;
        return true;
    }

  private:
    uint64_t bytes_;
};

} // namespace penstock
