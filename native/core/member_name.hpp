// A member's name in shared memory, whose owner may be changing: a sequence lock, with the time its owner joined for a sequence
// number. Orders: docs/design/sync_queue.md, docs/design/patterns.md.
#pragma once

#include "atomics.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace penstock {

inline constexpr size_t name_max = 64;

// By the slot's owner, while nobody else writes there. Until the time is there again, who reads gets no name.
template <class Identity> void write_name(Identity &identity, const std::string &name, uint64_t joined_ns) {
    static_assert(sizeof identity.name == name_max);
    if (!name.empty() || identity.name[0].relaxed() != 0) {
        char bytes[name_max] = {};
        std::memcpy(bytes, name.data(), std::min(name.size(), sizeof bytes));
        identity.joined_ns.relaxed(0); // who reads the name meanwhile gets none
        release_fence();               // SYNC 17: pairs with read_name's fence
        copy_words_in(identity.name, bytes, sizeof bytes);
    }
    identity.joined_ns.release(joined_ns); // SYNC 17: pairs with read_name; the name is whole under this time
}

// Empty while the owner changes.
template <class Identity> std::string read_name(const Identity &identity) {
    const uint64_t joined = identity.joined_ns.acquire(); // SYNC 17: pairs with write_name
    char bytes[name_max];
    copy_words_out(bytes, identity.name, sizeof bytes);
    acquire_fence(); // SYNC 17: pairs with write_name; a word of the next owner's name is seen with its 0
    if (joined == 0 || identity.joined_ns.relaxed() != joined) return {};
    return std::string(bytes, strnlen(bytes, sizeof bytes));
}

} // namespace penstock
