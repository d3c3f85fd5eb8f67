// A member's name in shared memory. The slot may pass to another owner while the name is read, so it is a sequence lock, and the
// time at which the owner joined is the sequence number. Orders: docs/design/channel_file.md.
#pragma once

#include "ground/atomics.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace penstock {

inline constexpr size_t name_max = 64;

// By the slot's owner, while nobody else writes there. Readers get no name until the time is there again.
template <class Identity> void write_name(Identity &identity, const std::string &name, uint64_t joined_ns) {
    static_assert(sizeof identity.name == name_max);
    if (!name.empty() || identity.name[0].relaxed() != 0) {
        char bytes[name_max] = {};
        std::memcpy(bytes, name.data(), std::min(name.size(), sizeof bytes));
        identity.joined_ns.relaxed(0);
        release_fence(); // SYNC 17: pairs with read_name; forbids a word of the new name being visible before the 0
        copy_words_in(identity.name, bytes, sizeof bytes);
    }
    identity.joined_ns.release(joined_ns); // SYNC 17: pairs with read_name; forbids the time being visible before the whole name
}

// Empty while the owner changes.
template <class Identity> std::string read_name(const Identity &identity) {
    // SYNC 17: pairs with write_name; forbids reading the name before the time: it could be the last owner's
    const uint64_t joined = identity.joined_ns.acquire();
    char bytes[name_max];
    copy_words_out(bytes, identity.name, sizeof bytes);
    // SYNC 17: pairs with write_name; forbids looking at the time again before the name was read: the next owner's 0 would be
    // missed although a word of its name was read
    acquire_fence();
    if (joined == 0 || identity.joined_ns.relaxed() != joined) return {};
    return std::string(bytes, strnlen(bytes, sizeof bytes));
}

} // namespace penstock
