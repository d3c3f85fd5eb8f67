// A member's name: how it is chosen, and how it is read in shared memory. The slot may pass to another owner while the name is
// read, so it is a sequence lock, and the time at which the owner joined is the sequence number. Orders:
// docs/design/channel_file.md.
#pragma once

#include "ground/atomics.hpp"
#include "ground/error.hpp"
#include "ground/liveness.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>

namespace penstock {

inline constexpr size_t name_max = 64;

// The name of a member. A given name belongs to one living member of a channel at a time. If none was given, it is the
// process id with 64 random bits behind it, because process ids are not unique: sockets of one process have the same one, and so
// have the first processes of all containers. Copies share one name: a member may have several slots.
class MemberName {
  public:
    MemberName() : MemberName(std::string()) {}
    MemberName(std::string text) : MemberName(std::move(text), false) {} // others may have the same one; or none, if it is empty
    MemberName(const char *text) : MemberName(std::string(text)) {}
    static MemberName own(std::string given) { return MemberName(std::move(given), true); } // empty: drawn

    bool is_own() const { return state_->own; }
    // The name in this process. A forked child has another one, unless it was given.
    const std::string &now() const {
        State &state = *state_;
        if (!state.own || !state.given.empty()) return state.given;
        if (state.drawn.empty() || state.generation != ForkGuard::generation()) {
            std::random_device random;
            char text[48];
            std::snprintf(text, sizeof text, "%d-%08x%08x", static_cast<int>(getpid()), random(), random());
            state.drawn = text;
            state.generation = ForkGuard::generation();
        }
        return state.drawn;
    }

  private:
    MemberName(std::string text, bool own) : state_(std::make_shared<State>(State{std::move(text), {}, 0, own})) {}
    struct State {
        std::string given, drawn;
        uint32_t generation; // of the process that drew it
        bool own;
    };
    std::shared_ptr<State> state_;
};

[[noreturn]] inline void throw_name_taken(const std::string &where, const std::string &name, const std::string &process) {
    throw Error(Code::busy, where + ": " + process + " has the name '" + name +
                                "', and a name belongs to one living member: choose another, or give none");
}

// By the slot's owner, while no other process writes there. Readers get no name until the time is there again.
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
