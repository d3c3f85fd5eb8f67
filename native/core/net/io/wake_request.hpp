// A request to the conductor to look again soon: a word that many threads set and the conductor clears. The thread that sets it
// also sets the timer.
#pragma once

#include "ground/atomics.hpp"

#include <cstdint>

namespace penstock {

class WakeRequest {
  public:
    // Call it after storing the work for the conductor. True if no request was pending: the caller sets the timer.
    bool make() {
        // SYNC 39: pairs with WakeRequest::clear; forbids reading an old request before the work is stored: the conductor could
        // clear the request, look, and miss the work
        full_fence();
        if (pending_.relaxed() != 0) return false; // a load costs less than a swap
        return pending_.exchange(1) == 0;          // SYNC -: only its value counts: of several threads one sets the timer
    }
    // The conductor calls it before it looks.
    void clear() {
        pending_.relaxed(0);
        // SYNC 39: pairs with WakeRequest::make; forbids looking before the request is cleared
        full_fence();
    }

  private:
    Atomic<uint32_t> pending_{};
};

} // namespace penstock
