// Latencies of subscriptions, from send to receive: a histogram for each slot, in a table at the end of a channel's file, and the
// meter that fills it. Log-linear as HdrHistogram (https://hdrhistogram.github.io/HdrHistogram/): each power of two is cut into
// equal steps. Knows no kind. Layout, what is measured and what a crash leaves: docs/design/latency.md.
#pragma once

#include "ground/clock.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock {

inline constexpr unsigned latency_unit_log = 6;  // the first bucket ends at 64 ns: a clock knows no less
inline constexpr unsigned latency_steps_log = 2; // steps of each power of two, as a power of two
inline constexpr size_t latency_buckets = 120;   // the last one has all from 2^37 ns * 7/8 on, about two minutes

// The bucket of a latency.
constexpr size_t latency_bucket(uint64_t ns) {
    constexpr uint64_t steps = uint64_t{1} << latency_steps_log;
    const uint64_t units = ns >> latency_unit_log;
    if (units < steps) return static_cast<size_t>(units);
    const unsigned shift = static_cast<unsigned>(std::bit_width(units)) - 1 - latency_steps_log;
    return std::min<size_t>(((size_t{shift} + 1) << latency_steps_log) + static_cast<size_t>((units >> shift) - steps),
                            latency_buckets - 1);
}
// Where the bucket begins; the one before it ends there.
constexpr uint64_t latency_floor(size_t bucket) {
    constexpr size_t steps = size_t{1} << latency_steps_log;
    if (bucket < steps) return uint64_t{bucket} << latency_unit_log;
    return uint64_t{steps + bucket % steps} << (bucket / steps - 1 + latency_unit_log);
}
static_assert(latency_bucket(0) == 0 && latency_bucket(63) == 0 && latency_bucket(64) == 1 && latency_bucket(511) == 7);
static_assert(latency_bucket(512) == 8 && latency_bucket(639) == 8 && latency_bucket(640) == 9);
static_assert(latency_bucket(UINT64_MAX) == latency_buckets - 1 && latency_floor(latency_buckets - 1) == uint64_t{7} << 34);
static_assert(latency_bucket(latency_floor(57)) == 57 && latency_bucket(latency_floor(57) - 1) == 56);

//   byte   0         8         16        24        32                        992
//          +---------+---------+---------+---------+---------- ... ----------+------- ... -------+
//          | sum_ns  | max_ns  |measured |began_ns | buckets: 120 words      | 0                 |
//          +---------+---------+---------+---------+---------- ... ----------+------- ... -------+
struct LatencyCounts {
    Atomic<uint64_t> sum_ns;                   // 0: of all that was counted
    Atomic<uint64_t> max_ns;                   // 8: the longest one that was measured
    Atomic<uint64_t> measured;                 // 16: how often the clock was read for a message
    Atomic<uint64_t> began_ns;                 // 24: of `now`: when the present owner began to count; since 1970
    Atomic<uint64_t> buckets[latency_buckets]; // 32: messages; one that stands for others counts for them
    uint64_t spare[4];
};
// One slot's. Written by the slot's owner alone. Everything but `now.max_ns` only grows, over all owners: nothing has to be moved
// when one of them dies.
struct LatencySlot {
    LatencyCounts now;    // 0: all owners' together; max_ns: the present owner's
    LatencyCounts before; // 1024: what stood there when the present owner came; max_ns: all earlier owners'
};
static_assert(sizeof(LatencyCounts) == 1024 && offsetof(LatencyCounts, max_ns) == 8 && offsetof(LatencyCounts, buckets) == 32);
static_assert(sizeof(LatencySlot) == 2048 && offsetof(LatencySlot, before) == 1024);

// The table is the end of a channel's file. The model checker works without it.
constexpr uint64_t latency_size(uint64_t slot_count) { return platform::keeps_latencies ? slot_count * sizeof(LatencySlot) : 0; }
inline LatencySlot *latency_of(uint8_t *file, uint64_t file_size, uint32_t slot_count, uint32_t slot) {
    if (!platform::keeps_latencies) return nullptr;
    return reinterpret_cast<LatencySlot *>(file + file_size - latency_size(slot_count)) + slot;
}

// A subscription's sampling. Reading the clock takes as long as half a receive, so not every message is measured. A message that
// came after the reader had found nothing is: the reader had time. Of the others one in `step` is, and counts for all of them.
// One thread at a time.
class LatencyMeter {
  public:
    static constexpr uint32_t step = 61; // prime: no rhythm of a writer's batches falls in with it

    // Counts into that slot, as its new owner; null: nowhere. Messages sent before `since_ns` waited for no subscription and do
    // not count.
    void begin(LatencySlot *slot, int64_t since_ns) {
        slot_ = slot;
        since_ns_ = since_ns;
        left_ = 1;
        next_step_ = step;
        after_nothing_ = true;
        if (slot == nullptr) return;
        LatencyCounts &now = slot->now, &before = slot->before;
        before.max_ns.relaxed(std::max(before.max_ns.relaxed(), now.max_ns.relaxed()));
        now.max_ns.relaxed(0);
        before.sum_ns.relaxed(now.sum_ns.relaxed());
        before.measured.relaxed(now.measured.relaxed());
        for (size_t i = 0; i < latency_buckets; ++i) before.buckets[i].relaxed(now.buckets[i].relaxed());
        now.began_ns.relaxed(static_cast<uint64_t>(system_ns(CLOCK_REALTIME)));
    }
    void end() { slot_ = nullptr; }

    // The reader found nothing.
    void on_empty() {
        if (after_nothing_) return;
        after_nothing_ = true;
        next_step_ = std::exchange(left_, 1);
    }
    // It received a message that was sent at that time. `correction()`: by how much the figure is too short, since the sender has
    // another clock.
    template <class Correction> void on_message(int64_t sent_ns, Correction &&correction) {
        if (--left_ == 0) [[unlikely]]
            measure(&sent_ns, 1, 0, correction());
    }
    // Messages received in one call.
    template <class Correction> void on_message(const int64_t *sent_ns, size_t count, Correction &&correction) {
        if (count < left_) left_ -= static_cast<uint32_t>(count);
        else measure(sent_ns, count, left_ - 1, correction());
    }

  private:
    [[gnu::noinline]] void measure(const int64_t *sent_ns, size_t count, size_t at, int64_t correction_ns) {
        const int64_t now = slot_ == nullptr ? 0 : clock_.now_ns();
        do {
            const bool after_nothing = std::exchange(after_nothing_, false);
            left_ = after_nothing ? next_step_ : step;
            if (slot_ != nullptr && sent_ns[at] != 0 && sent_ns[at] - correction_ns >= since_ns_)
                note(now - sent_ns[at] + correction_ns, after_nothing ? 1 : step);
            at += left_;
        } while (at < count);
        left_ = static_cast<uint32_t>(at - count + 1);
    }
    void note(int64_t latency_ns, uint64_t messages) {
        LatencyCounts &now = slot_->now;
        const auto ns = static_cast<uint64_t>(std::max<int64_t>(latency_ns, 0)); // two processes' clocks may differ by a little
        now.buckets[latency_bucket(ns)].increment(messages);
        now.sum_ns.increment(ns * messages);
        now.measured.increment(1);
        if (ns > now.max_ns.relaxed()) now.max_ns.relaxed(ns);
    }

    LatencySlot *slot_ = nullptr;
    int64_t since_ns_ = 0;
    uint32_t left_ = 1, next_step_ = step;
    bool after_nothing_ = true;
    WallClock clock_;
};

// ---- for people, beside the owner ----

// Not every message is measured: `measured` were, and count for all of them.
struct Latencies {
    uint64_t sum_ns = 0, max_ns = 0, measured = 0;
    uint64_t buckets[latency_buckets] = {};

    uint64_t messages() const {
        uint64_t all = 0;
        for (const uint64_t count : buckets) all += count;
        return all;
    }
    // The latency that this share of the messages did not exceed: 0.99 for p99; 0 if nothing was counted. Interpolated within a
    // bucket, so at most a quarter off.
    double quantile_ns(double share) const {
        const double wanted = share * static_cast<double>(messages()), longest = static_cast<double>(max_ns);
        double below = 0;
        for (size_t i = 0; i < latency_buckets; ++i) {
            const auto count = static_cast<double>(buckets[i]), start = static_cast<double>(latency_floor(i));
            if (buckets[i] != 0 && below + count >= wanted) {
                const double end = std::min(static_cast<double>(latency_floor(i + 1)), std::max(longest, start));
                return std::min(start + (end - start) * (wanted - below) / count, longest);
            }
            below += count;
        }
        return 0;
    }
};
// The counts of one slot, over all its owners.
inline void add_latencies(Latencies &to, const LatencySlot &slot) {
    to.sum_ns += slot.now.sum_ns.relaxed();
    to.measured += slot.now.measured.relaxed();
    for (size_t i = 0; i < latency_buckets; ++i) to.buckets[i] += slot.now.buckets[i].relaxed();
    to.max_ns = std::max({to.max_ns, slot.now.max_ns.relaxed(), slot.before.max_ns.relaxed()});
}
// Those of its present owner alone, which joined at that time; nothing before it begins to count.
inline Latencies own_latencies(const LatencySlot &slot, uint64_t joined_ns) {
    Latencies own;
    if (slot.now.began_ns.relaxed() < joined_ns) return own;
    auto since = [](const Atomic<uint64_t> &before, const Atomic<uint64_t> &now) {
        const uint64_t start = before.relaxed(), end = now.relaxed();
        return end > start ? end - start : 0; // an owner may come meanwhile
    };
    own.sum_ns = since(slot.before.sum_ns, slot.now.sum_ns);
    own.measured = since(slot.before.measured, slot.now.measured);
    for (size_t i = 0; i < latency_buckets; ++i) own.buckets[i] = since(slot.before.buckets[i], slot.now.buckets[i]);
    own.max_ns = slot.now.max_ns.relaxed();
    return own;
}

} // namespace penstock
