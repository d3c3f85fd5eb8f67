// Words that several processes share, and operations on them: acquire, release, full fence. The only file that spells memory
// orders. Shared words are lock-free and plain-sized. Each ordered operation elsewhere has a SYNC comment:
// docs/design/channel_file.md.
#pragma once

#include "ground/pages.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef PENSTOCK_PLATFORM
#include PENSTOCK_PLATFORM
#else
#include "ground/platform.hpp"

namespace penstock::platform {

using order = std::memory_order;
inline constexpr order relaxed = std::memory_order_relaxed;
inline constexpr order acquire = std::memory_order_acquire;
inline constexpr order release = std::memory_order_release;
inline constexpr order acq_rel = std::memory_order_acq_rel;
inline constexpr order seq_cst = std::memory_order_seq_cst;

template <class T> class atomic {
  public:
    T load(order how, site) const { return word_.load(how); }
    void store(T value, order how, site) { word_.store(value, how); }
    bool compare_exchange(T &expected, T desired, order success, order failure, site) {
        return word_.compare_exchange_strong(expected, desired, success, failure);
    }
    T fetch_add(T amount, order how, site) { return word_.fetch_add(amount, how); }
    T fetch_or(T bits, order how, site) { return word_.fetch_or(bits, how); }

    atomic() = default;
    constexpr explicit atomic(T value) : word_(value) {}

  private:
    std::atomic<T> word_;
};

inline void fence(order how, site) { std::atomic_thread_fence(how); }
inline void light_fence(site here) {
    if (registered_for_fences) std::atomic_signal_fence(seq_cst); // the compiler's; the machine's comes from fence_others
    else fence(seq_cst, here);
}
inline void heavy_fence(site here) {
    fence(seq_cst, here);
    fence_others();
}

} // namespace penstock::platform
#endif

namespace penstock {

// Where an operation is in the source: nothing in the library, a name for each site under the checker.
using Site = platform::site;

// One word that several threads or processes share. In mapped memory it is never constructed: it takes the bytes that are there.
template <class T> class Atomic {
    static_assert(std::is_integral_v<T> && sizeof(T) <= 8);

  public:
    Atomic() = default;
    constexpr explicit Atomic(T value) : word_(value) {} // for a word of one process
    T relaxed(Site site = Site::here()) const { return word_.load(platform::relaxed, site); }
    T acquire(Site site = Site::here()) const { return word_.load(platform::acquire, site); }
    void relaxed(T value, Site site = Site::here()) { word_.store(value, platform::relaxed, site); }
    void release(T value, Site site = Site::here()) { word_.store(value, platform::release, site); }
    // Acquire and release when it succeeds; acquire when it fails. `expected` receives the value that was there.
    bool cas(T &expected, T desired, Site site = Site::here()) {
        return word_.compare_exchange(expected, desired, platform::acq_rel, platform::acquire, site);
    }
    // Returns the value before.
    T exchange(T value, Site site = Site::here()) {
        T seen = relaxed(site);
        while (!cas(seen, value, site)) {
        }
        return seen;
    }
    T add(T amount, Site site = Site::here()) { return word_.fetch_add(amount, platform::acq_rel, site); }
    // Sequentially consistent: also orders an earlier store of this thread before a later load.
    T set_bits(T bits, Site site = Site::here()) { return word_.fetch_or(bits, platform::seq_cst, site); }
    // A counter with one writer: a plain add that readers may see at any time.
    void increment(T amount) { relaxed(static_cast<T>(relaxed() + amount)); }
    T *address() { return reinterpret_cast<T *>(&word_); }

  private:
    platform::atomic<T> word_;
};

static_assert(sizeof(Atomic<uint64_t>) == 8 && sizeof(Atomic<uint32_t>) == 4);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

inline void full_fence(Site site = Site::here()) { platform::fence(platform::seq_cst, site); }
// Two fences that together order as two full ones do. The light one is passed often and costs nothing. The heavy one is passed
// before sleeping, and makes every thread of every registered process pass a full fence.
inline void light_fence(Site site = Site::here()) { platform::light_fence(site); }
inline void heavy_fence(Site site = Site::here()) { platform::heavy_fence(site); }
// A thread that reads a store of this thread made after a release fence, and then passes an acquire fence, sees all stores that
// this thread made before the release fence.
inline void release_fence(Site site = Site::here()) { platform::fence(platform::release, site); }
inline void acquire_fence(Site site = Site::here()) { platform::fence(platform::acquire, site); }
inline void spin_pause() { platform::pause(); }

// As many whole blocks as there are; returns how many bytes that was.
inline size_t copy_blocks(void *to, const void *from, size_t length) {
    if (length < long_bytes) return platform::copy_blocks(to, from, length);
    size_t copied = 0;
    by_pages(to, from, length, [&](size_t done, size_t piece) {
        copied += platform::copy_blocks(static_cast<uint8_t *>(to) + done, static_cast<const uint8_t *>(from) + done, piece);
    });
    return copied;
}

// Bytes that one side may overwrite while the other reads them. They are copied word by word, each word atomic, so it is no data
// race; long ones by the machine's block copy, which the compiler takes for I/O. The reader must find out afterwards whether the
// bytes were overwritten meanwhile. Whole words are moved: shared memory has room up to the next multiple of 8.
inline void copy_words_in(void *to, const void *from, size_t length) {
    const size_t done = copy_blocks(to, from, length);
    auto *words = static_cast<Atomic<uint64_t> *>(to) + done / 8;
    const auto *bytes = static_cast<const uint8_t *>(from) + done;
    for (length -= done; length >= 8; length -= 8, bytes += 8) {
        uint64_t word;
        std::memcpy(&word, bytes, 8);
        words++->relaxed(word);
    }
    if (length == 0) return;
    uint64_t word = 0;
    std::memcpy(&word, bytes, length);
    words->relaxed(word);
}
inline void copy_words_out(void *to, const void *from, size_t length) {
    const size_t done = copy_blocks(to, from, length);
    const auto *words = static_cast<const Atomic<uint64_t> *>(from) + done / 8;
    auto *bytes = static_cast<uint8_t *>(to) + done;
    for (length -= done; length >= 8; length -= 8, bytes += 8) {
        const uint64_t word = words++->relaxed();
        std::memcpy(bytes, &word, 8);
    }
    if (length == 0) return;
    const uint64_t word = words->relaxed();
    std::memcpy(bytes, &word, length);
}

// memmove, but for memcpy's worst case: many versions of glibc copy what is longer than 2 KiB, and fits a cache, by `rep movsb`,
// and AMD's processors do that 20 times slower than else if `to` is 1 to 31 bytes above `from` in a page. Payloads begin at
// multiples of 32, and what malloc gives at multiples of 16. Long ones go by pages, for which see by_pages. The two never
// overlap, unless a peer wrote wrong words into the memory or a caller sends a view of it: then any bytes may arrive, but it must
// stay defined, so it is memmove. glibc has one routine for both.
inline void copy_bytes(void *to, const void *from, size_t length) {
    const uintptr_t above = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) & 4095;
    const bool in_blocks = (length > 2048 && above - 1 < 31) || length >= long_bytes;
    const size_t done = in_blocks ? copy_blocks(to, from, length) : 0;
    std::memmove(static_cast<uint8_t *>(to) + done, static_cast<const uint8_t *>(from) + done, length - done);
}

// Plain bytes of shared memory. The checker learns of each access here and looks for races.
inline void copy_in(void *to, const void *from, size_t length) {
    copy_bytes(to, from, length);
    platform::wrote(to, length);
}
inline void zero(void *at, size_t length) {
    if (length < long_bytes) std::memset(at, 0, length);
    else
        by_pages(at, nullptr, length,
                 [&](size_t done, size_t piece) { std::memset(static_cast<uint8_t *>(at) + done, 0, piece); });
    platform::wrote(at, length);
}
inline void wrote(const void *at, size_t length) { platform::wrote(at, length); }
inline void read(const void *at, size_t length) { platform::read(at, length); }

} // namespace penstock
