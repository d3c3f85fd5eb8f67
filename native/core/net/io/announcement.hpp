// The handshake between threads that are about to sleep on a socket and a thread that finds something for them. A word of one
// process; its user has the descriptor that wakes.
#pragma once

#include "ground/atomics.hpp"

#include <cstdint>

namespace penstock {

class Announcement {
  public:
    // Announces that this thread is about to sleep. It must check once more after this call: either a later claim() wakes it, or
    // it sees what was found. `me` identifies the thread: at least 2.
    void announce(uint64_t me) {
        // SYNC 36: pairs with Announcement::claim; forbids checking before the announcement: what was found could be missed and
        // nobody wake the thread
        const uint64_t before = word_.exchange(me);
        if (before == nobody || before == me) return;
        // SYNC -: any value but nobody has every sleeper woken, and the first exchange has ordered the check
        word_.exchange(several);
    }
    // Call it after storing what was found. True if the caller must wake the other threads; no other caller will.
    bool claim(uint64_t me) {
        // SYNC 36: pairs with Announcement::announce; forbids reading the word before what was found is visible
        const uint64_t who = word_.add(0);
        if (who == nobody || who == me) return false;
        return word_.exchange(nobody) != nobody; // SYNC -: only its value counts: of several finders one wakes
    }
    void withdraw() { word_.relaxed(nobody); }

  private:
    static constexpr uint64_t nobody = 0, several = 1;
    Atomic<uint64_t> word_{};
};

} // namespace penstock
