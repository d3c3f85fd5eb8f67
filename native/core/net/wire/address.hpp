// The source of a datagram. The state machines compare addresses and return them; they never look inside.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

struct Address {
    std::array<uint8_t, 16> host{}; // IPv6, or IPv4 mapped into it
    uint32_t scope = 0;             // the interface of a link-local address
    uint16_t port = 0;
    bool operator==(const Address &) const = default;
};

} // namespace penstock
