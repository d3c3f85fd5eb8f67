// The checker's platform: every atomic word, fence, futex, rest and plain access of the core becomes a call into the
// explorer. Included by atomics.hpp in place of platform.hpp, so the headers checked are the headers shipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace penstock::platform {

enum class order : uint8_t { relaxed, acquire, release, acq_rel, seq_cst };
inline constexpr order relaxed = order::relaxed;
inline constexpr order acquire = order::acquire;
inline constexpr order release = order::release;
inline constexpr order acq_rel = order::acq_rel;
inline constexpr order seq_cst = order::seq_cst;

// One place in the source. The mutants are named by it.
struct site {
    const char *file;
    uint32_t line, column;
    static site here(std::source_location at = std::source_location::current()) {
        return {at.file_name(), at.line(), at.column()};
    }
};

// Implemented by explorer.cpp. `size` is 4 or 8; values are widened.
uint64_t do_load(const void *word, size_t size, order how, const site &at);
void do_store(void *word, size_t size, uint64_t value, order how, const site &at);
bool do_exchange(void *word, size_t size, uint64_t &expected, uint64_t desired, order success, order failure, const site &at);
enum class update { add, bits };
uint64_t do_update(void *word, size_t size, update what, uint64_t operand, order how, const site &at);
void fence(order how, const site &at);
void light_fence(const site &at);
void heavy_fence(const site &at);
void pause();
void yield();
inline uint32_t core() { return 0; } // a hint that decides nothing here
inline void nap(int64_t) { yield(); }
void wrote(const void *at, size_t length);
void read(const void *at, size_t length);
bool futex_wait(uint32_t *word, uint32_t expected, int64_t ns);
// On two words, as futex_waitv does: until either is woken; not at all if either has changed.
bool futex_wait_either(uint32_t *word, uint32_t expected, uint32_t *other, uint32_t other_expected);
void futex_wake(uint32_t *word);
int64_t monotonic_ns();

inline constexpr uint32_t lock_spins = 1;
inline constexpr int64_t lock_nap_ns_max = 10'000'000; // one look at the clock
inline constexpr uint32_t shows_per_window = 2;
inline constexpr uint32_t cleans_per_term = 2;
inline constexpr uint32_t term_length_min = 256;
inline constexpr uint32_t pipe_capacity_min = 128;
inline constexpr uint32_t buffer_alignment = 64;
inline constexpr bool keeps_latencies = false; // nothing depends on them

template <class T> class atomic {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);

  public:
    atomic() = default;
    constexpr explicit atomic(T value) : word_(value) {}
    T load(order how, const site &at) const { return static_cast<T>(do_load(&word_, sizeof(T), how, at)); }
    void store(T value, order how, const site &at) { do_store(&word_, sizeof(T), static_cast<uint64_t>(value), how, at); }
    bool compare_exchange(T &expected, T desired, order success, order failure, const site &at) {
        uint64_t seen = static_cast<uint64_t>(expected);
        const bool done = do_exchange(&word_, sizeof(T), seen, static_cast<uint64_t>(desired), success, failure, at);
        expected = static_cast<T>(seen);
        return done;
    }
    T fetch_add(T amount, order how, const site &at) {
        return static_cast<T>(do_update(&word_, sizeof(T), update::add, static_cast<uint64_t>(amount), how, at));
    }
    T fetch_or(T bits, order how, const site &at) {
        return static_cast<T>(do_update(&word_, sizeof(T), update::bits, static_cast<uint64_t>(bits), how, at));
    }

  private:
    T word_;
};

inline size_t copy_blocks(void *, const void *, size_t) { return 0; } // each word is an access that the checker orders

} // namespace penstock::platform
