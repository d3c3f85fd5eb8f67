// The library's own threads. They take no signal, own no Python object, and end with the process; a forked child starts its own.
// There are two, because no call of the kernel sleeps on futexes and on descriptors: the bridge behind fileno() sleeps on the
// futexes of channels (threads/bridge.hpp), and the keeper on the sockets of the network log (net/io/keeper.hpp).
#pragma once

#include "ground/error.hpp"
#include "ground/liveness.hpp"

#include <atomic>
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
    static std::atomic<Made *> only{nullptr};
    Made *seen = only;
    if (seen == nullptr || seen->generation != ForkGuard::generation()) {
        auto *made = new Made;
        if (only.compare_exchange_strong(seen, made)) return made->object;
        delete made; // another thread was faster
        return only.load()->object;
    }
    return seen->object;
}

} // namespace penstock
