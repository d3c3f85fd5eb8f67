// The core's needs of machine and kernel beside atomic words: futexes, rest, time. A model checker replaces this
// file and the words (PENSTOCK_PLATFORM names its header), and so explores the very headers that the library is built from.
#pragma once

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock::platform {

struct site {
    static constexpr site here() { return {}; }
};

// A hint to the core that this is a spin loop; it orders nothing.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}
inline void yield() { sched_yield(); }
inline uint32_t core() { return static_cast<uint32_t>(sched_getcpu()); } // where this thread runs now
inline void nap(int64_t ns) {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&time, nullptr); // a signal ends it early: the caller looks again anyway
}
inline constexpr uint32_t lock_spins = 200; // before asking whether a lock's holder lives
inline constexpr int64_t lock_nap_ns_max = 1'000'000;
inline constexpr uint32_t shows_per_window = 16; // how often a subscription shows its position
inline constexpr uint32_t cleans_per_term = 8;   // at least that many steps to clean a term
#ifndef PENSTOCK_TERM_LENGTH_MIN                 // checker and fuzzers work on tiny terms
#define PENSTOCK_TERM_LENGTH_MIN (64 * 1024)
#endif
inline constexpr uint32_t term_length_min = PENSTOCK_TERM_LENGTH_MIN;
inline constexpr uint32_t pipe_capacity_min = PENSTOCK_TERM_LENGTH_MIN;
inline constexpr uint32_t buffer_alignment = 4096; // of a frame's bytes in its channel's file
inline constexpr bool keeps_latencies = true;      // channel files have a table of latencies

// Copies as many whole blocks of 64 bytes as there are, and says how many bytes that was: 16 bytes an instruction. The compiler
// does not look into it, so others may write or read the bytes meanwhile, as in a loop over atomic words; the processor orders it
// as any loads and stores. Where a sanitizer must see each word, and on other machines, it copies nothing.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define PENSTOCK_WORDS_ONLY
#endif
#endif
#if !defined(__x86_64__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(PENSTOCK_WORDS_ONLY)
inline size_t copy_blocks(void *, const void *, size_t) { return 0; }
#else
inline size_t copy_blocks(void *to, const void *from, size_t length) {
    const size_t whole = length & ~size_t{63};
    if (whole == 0) return 0;
    const void *end = static_cast<const char *>(from) + whole;
    __asm__ volatile("1:\n\t"
                     "movups (%[from]), %%xmm0\n\t"
                     "movups 16(%[from]), %%xmm1\n\t"
                     "movups 32(%[from]), %%xmm2\n\t"
                     "movups 48(%[from]), %%xmm3\n\t"
                     "movups %%xmm0, (%[to])\n\t"
                     "movups %%xmm1, 16(%[to])\n\t"
                     "movups %%xmm2, 32(%[to])\n\t"
                     "movups %%xmm3, 48(%[to])\n\t"
                     "add $64, %[from]\n\t"
                     "add $64, %[to]\n\t"
                     "cmp %[end], %[from]\n\t"
                     "jne 1b"
                     : [to] "+r"(to), [from] "+r"(from)
                     : [end] "r"(end)
                     : "xmm0", "xmm1", "xmm2", "xmm3", "memory", "cc");
    return whole;
}
#endif

inline void wrote(const void *, size_t) {}
inline void read(const void *, size_t) {}

// False when it slept for the whole time.
inline bool futex_wait(uint32_t *word, uint32_t expected, int64_t ns) {
    const timespec timeout{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    const long result = syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
    return result == 0 || errno == EAGAIN;
}
inline void futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// Membarrier: the kernel makes every thread of the processes that are registered for it execute a full fence. Without it (before
// Linux 4.16, or forbidden) this process's own fences are full ones.
inline bool register_for_fences() {
    constexpr int register_global_expedited = 1 << 2;
    return syscall(SYS_membarrier, register_global_expedited, 0, 0) == 0;
}
inline bool registered_for_fences = register_for_fences();
inline void fence_others() {
    constexpr int global_expedited = 1 << 1;
    syscall(SYS_membarrier, global_expedited, 0, 0);
}

inline int64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

} // namespace penstock::platform
