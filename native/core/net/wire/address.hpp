// The source of a datagram. The state machines compare addresses and hosts and return them; they never look inside. So an answer
// leaves from the address of this machine that was asked: `local`, which is no part of what a source is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace penstock {

struct Address {
    std::array<uint8_t, 16> host{}; // IPv6, or IPv4 mapped into it
    uint32_t scope = 0;             // the interface of a link-local address
    uint16_t port = 0;
    std::array<uint8_t, 16> local{}; // where the datagram was sent to; 0: not known, or the socket has only one address
    bool operator==(const Address &other) const { return host == other.host && scope == other.scope && port == other.port; }
};

// Whose share a source uses: its IPv4 address, or its IPv6 network of 64 bits, since a host chooses the rest by itself.
using SourceHost = std::array<uint8_t, 16>;
inline SourceHost host_of(const Address &address) {
    static constexpr std::array<uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    SourceHost host = address.host;
    if (!std::equal(mapped.begin(), mapped.end(), host.begin())) std::fill(host.begin() + 8, host.end(), uint8_t{0});
    return host;
}

} // namespace penstock
