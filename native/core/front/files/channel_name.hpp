// A channel's URI, `kind:NAME`, and the place of its file. Opens nothing.
#pragma once

#include "ground/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <unistd.h>

namespace penstock {

// A name: 1 to 128 of these characters, with / between parts; no part begins with a dot.
inline bool is_channel_name(std::string_view name) {
    if (name.empty() || name.size() > 128) return false;
    bool first = true; // of its part
    for (const char c : name) {
        if (c == '/' ? first : first && c == '.') return false;
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (!plain && c != '.' && c != '/') return false;
        first = c == '/';
    }
    return !first;
}

struct ChannelName {
    std::string kind, name;
    std::string uri() const { return kind + ':' + name; }
    std::string file() const { // its file's name
        std::string flat = name;
        std::replace(flat.begin(), flat.end(), '/', '@');
        return flat + '.' + kind;
    }
};

// The channel that a URI names. Throws `invalid`, or `unsupported` for what C++ does not have.
inline ChannelName parse_uri(std::string_view uri) {
    const std::string quoted = "'" + std::string(uri) + "'";
    const size_t colon = uri.find(':');
    if (colon == std::string_view::npos)
        throw Error(Code::invalid, quoted + " names no kind of channel: write 'log:" + std::string(uri) + "'");
    ChannelName found{std::string(uri.substr(0, colon)), std::string(uri.substr(colon + 1))};
    constexpr std::string_view kinds[] = {"log", "ring", "pipe", "sync", "frames"},
                               others[] = {"fake", "udp", "aeron", "zmq+tcp", "zmq+ipc"};
    if (std::find(std::begin(others), std::end(others), found.kind) != std::end(others))
        throw Error(Code::unsupported, quoted + ": C++ has the channels of this machine: log:, ring:, pipe:, sync: and frames:");
    if (std::find(std::begin(kinds), std::end(kinds), found.kind) == std::end(kinds))
        throw Error(Code::invalid, quoted + ": there is no kind '" + found.kind + "'; use log:, ring:, pipe:, sync: or frames:");
    if (!is_channel_name(found.name))
        throw Error(Code::invalid, quoted + ": '" + found.name +
                                       "' is not a channel name: use 1 to 128 of the characters A-Z a-z 0-9 . _ -, with / "
                                       "between parts if there are several. No part begins with a dot");
    const char *faked = std::getenv("PENSTOCK_FAKE");
    if (faked != nullptr && *faked != '\0' && std::string_view(faked) != "0")
        throw Error(Code::unsupported, quoted + ": PENSTOCK_FAKE is set, and C++ has no channels within one process: unset it");
    return found;
}

// The folder of this user's channels: PENSTOCK_DIR, else one per user below /dev/shm.
inline std::string channel_folder() {
    const char *chosen = std::getenv("PENSTOCK_DIR");
    if (chosen == nullptr || *chosen == '\0') return "/dev/shm/penstock-" + std::to_string(geteuid());
    return std::filesystem::absolute(chosen).string();
}

} // namespace penstock
