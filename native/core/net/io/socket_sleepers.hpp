// Threads that sleep on a socket and serve it when they wake, and whether the conductor relies on them. A thread that wakes, and
// may not sleep again, learns whether it has to call the conductor.
#pragma once

#include "ground/atomics.hpp"

#include <cstdint>

namespace penstock {

class SocketSleepers {
  public:
    void enter() { asleep_.add(1); } // SYNC -: a conductor that misses it serves the socket once more
    // True for the last one of several.
    bool leave() {
        return asleep_.add(UINT32_MAX) == 1; // SYNC -: only its value counts; the swap in relied_on() releases it
    }
    // Call after leave(). True if the conductor relied on sleepers: it must be called, since it may look much later.
    bool relied_on() {
        // SYNC 40: pairs with SocketSleepers::rely; forbids the conductor counting this thread among the sleepers after the swap
        return relied_.exchange(0) != 0;
    }
    // The conductor: whether a thread sleeps. If so it learns of the reliance when it wakes.
    bool rely() {
        if (asleep_.relaxed() == 0) return false;
        // SYNC 40: pairs with SocketSleepers::relied_on; forbids counting a sleeper that has woken and made its swap before
        relied_.exchange(1);
        return asleep_.relaxed() != 0;
    }

  private:
    Atomic<uint32_t> asleep_{};
    Atomic<uint32_t> relied_{};
};

} // namespace penstock
