// The library's own threads. They take no signal, own no Python object, and end with the process; a forked child starts its own.
// There are two, because no call of the kernel sleeps on futexes and on descriptors: the bridge behind fileno() sleeps on the
// futexes of channels (threads/bridge.hpp), and the conductor on the sockets of the network log (net/io/conductor.hpp).
#pragma once

#include "ground/atomics.hpp"
#include "ground/error.hpp"
#include "ground/liveness.hpp"

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace penstock {

// `what` the thread does, for the error when the system gives none.
template <class Run> void start_background_thread(const char *what, Run &&run) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the program's own threads
    try {
        std::thread(std::forward<Run>(run)).detach();
    } catch (const std::system_error &error) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        fail_system(std::string("cannot start the thread that ") + what, error.code().value());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The only T of this process, made at the first call and never freed. A forked child makes another, and leaves its parent's as it
// is.
template <class T> T &of_this_process() {
    struct Made {
        T object;
        const uint32_t generation = ForkGuard::generation();
    };
    static Atomic<uint64_t> only{}; // its address, or 0
    // SYNC 37: pairs with of_this_process; forbids using the object before it is made
    uint64_t seen = only.acquire();
    if (auto *made = reinterpret_cast<Made *>(seen); made != nullptr && made->generation == ForkGuard::generation())
        return made->object;
    auto *made = new Made;
    // SYNC 37: pairs with of_this_process; forbids another thread using the object before it is made
    if (only.cas(seen, reinterpret_cast<uint64_t>(made))) return made->object;
    delete made; // another thread was faster
    return reinterpret_cast<Made *>(seen)->object;
}

} // namespace penstock
