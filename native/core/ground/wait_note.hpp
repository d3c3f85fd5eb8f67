// The note of a wait: one word in a participant's slot. A thread stores it as it goes to sleep, and 0 when the wait is over. It
// says what the thread waits for, since when, and which thread it is. It is for people who look from outside: nothing is decided
// by it, and no order is needed. A killed thread leaves its note: a look believes it only while the kernel's lock says that the
// slot's owner lives. Argument: docs/design/channel_file.md.
#pragma once

#include "ground/atomics.hpp"

#include <cstdint>

namespace penstock {

//   bit 0    2       3       4        26                    64
//       +----+-------+-------+--------+---------------------+
//       |what| alone | timed | thread | since: milliseconds |
//       +----+-------+-------+--------+---------------------+
enum class WaitsFor : uint64_t { nothing = 0, messages = 1, room = 2, readers = 3 };

struct WaitNote {
    WaitsFor what = WaitsFor::nothing;
    bool timed = false;   // a deadline ends the wait
    uint32_t thread = 0;  // the kernel's number of the thread, in its own PID namespace; 22 bits are all that there are
    int64_t since_ns = 0; // by the monotonic clock, which all processes share; rounded down to milliseconds
    bool alone = false;   // the program has no other thread that could end the wait

    static constexpr unsigned alone_bit = 2, timed_bit = 3, thread_shift = 4, since_shift = 26;
    static constexpr uint64_t thread_mask = (uint64_t{1} << (since_shift - thread_shift)) - 1;

    uint64_t word() const {
        return static_cast<uint64_t>(what) | uint64_t{alone} << alone_bit | uint64_t{timed} << timed_bit |
               (thread & thread_mask) << thread_shift | static_cast<uint64_t>(since_ns / 1'000'000) << since_shift;
    }
    static WaitNote of(uint64_t word) { // also of a word from damaged memory
        const uint64_t what = word & 3;
        if (what == 0) return {};
        return {static_cast<WaitsFor>(what), (word >> timed_bit & 1) != 0,
                static_cast<uint32_t>(word >> thread_shift & thread_mask), static_cast<int64_t>(word >> since_shift) * 1'000'000,
                (word >> alone_bit & 1) != 0};
    }
};

} // namespace penstock
