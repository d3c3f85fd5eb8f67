// The only file that spells memory orders. Everything above says *what* it needs (acquire, release, full fence);
// a model checker replaces `penstock::platform` to explore the same headers. Shared words are lock-free and plain-sized.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace penstock {

#ifndef PENSTOCK_ATOMICS_PLATFORM
namespace platform {
template <class T> using atomic = std::atomic<T>;
using order = std::memory_order;
inline constexpr order relaxed = std::memory_order_relaxed;
inline constexpr order acquire = std::memory_order_acquire;
inline constexpr order release = std::memory_order_release;
inline constexpr order acq_rel = std::memory_order_acq_rel;
inline constexpr order seq_cst = std::memory_order_seq_cst;
inline void fence(order how) { std::atomic_thread_fence(how); }
// A hint to the core that this is a spin loop; it orders nothing.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}
} // namespace platform
#else
#include PENSTOCK_ATOMICS_PLATFORM
#endif

// One word that several processes share. It is placed into mapped memory, never constructed there.
template <class T> class Atomic {
    static_assert(std::is_integral_v<T> && sizeof(T) <= 8);

  public:
    T relaxed() const { return word_.load(platform::relaxed); }
    T acquire() const { return word_.load(platform::acquire); }
    void relaxed(T value) { word_.store(value, platform::relaxed); }
    void release(T value) { word_.store(value, platform::release); }
    // Acquire and release when it succeeds; acquire when it fails. `expected` receives what was seen.
    bool cas(T &expected, T desired) {
        return word_.compare_exchange_strong(expected, desired, platform::acq_rel, platform::acquire);
    }
    T add(T amount) { return word_.fetch_add(amount, platform::acq_rel); }
    T add_relaxed(T amount) { return word_.fetch_add(amount, platform::relaxed); }
    // Sequentially consistent: also orders an earlier store of this thread before a later load.
    T set_bits(T bits) { return word_.fetch_or(bits, platform::seq_cst); }
    // A counter with one writer: a plain add that readers may see at any time.
    void bump(T amount) { relaxed(static_cast<T>(relaxed() + amount)); }
    T *address() { return reinterpret_cast<T *>(&word_); }

  private:
    platform::atomic<T> word_;
};

static_assert(sizeof(Atomic<uint64_t>) == 8 && sizeof(Atomic<uint32_t>) == 4);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

inline void full_fence() { platform::fence(platform::seq_cst); }
inline void acquire_fence() { platform::fence(platform::acquire); }
inline void spin_pause() { platform::pause(); }

} // namespace penstock
