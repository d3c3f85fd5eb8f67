// What a path lets through, and how people are told of it.
#pragma once

#include <cstdint>
#include <string>

namespace penstock {

// `arrives`: bytes of the longest datagram that does; 0: unknown.
struct PathLimit {
    bool limited = false;
    uint32_t arrives = 0;
};

// `where`: "at ADDRESS" or "from ADDRESS".
inline std::string path_text(uint32_t mtu, uint32_t arrives, const std::string &where) {
    const std::string text = "datagrams of " + std::to_string(mtu) + " bytes do not arrive " + where;
    if (arrives == 0) return text + ": if shorter ones do, open the publication with a smaller mtu";
    return text + ", " + std::to_string(arrives) + " do: open the publication with mtu=" + std::to_string(arrives / 32 * 32);
}

} // namespace penstock
