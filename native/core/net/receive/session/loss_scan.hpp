// When a receiver asks for its gaps again: shortly after it sees one, and again while it stays, a few times per round trip, later
// and later. Over multicast each receiver waits a random time first, so that one request serves all.
#pragma once

#include "net/receive/session/ranges.hpp"
#include "net/receive/session/round_trips.hpp"

#include <algorithm>
#include <array>

namespace penstock {

struct LossOptions {
    int64_t delay_ns = 0;                // before the first NAK of a gap
    int64_t spread_ns = 0;               // over multicast: a random time up to this on top of it
    int64_t repeat_ns = 100'000;         // between NAKs of the same gap, at first; a quarter of a round trip, if that is longer
    int64_t repeat_max_ns = 10'000'000;  // and at last
    uint32_t repeats_before_backoff = 8; // then each wait is twice as long as the one before
    uint32_t repeats_max = 64;           // then what is sent for them is lost time and again: ten times `repeat_max_ns`
};

class LossScan {
  public:
    static constexpr size_t gaps_max = 8; // that are followed at a time, the lowest ones

    explicit LossScan(const LossOptions &options) : options_(options) {}

    // Calls `send_nak(from, to)` for each gap below `high` that is due. `random()` gives 64 bits.
    template <class Random, class SendNak>
    void scan(int64_t now, const Ranges &ranges, uint64_t high, const RoundTrips &trips, Random &&random, SendNak &&send_nak) {
        if (count_ == 0 && ranges.is_contiguous() && high <= ranges.floor()) return;
        std::array<Gap, gaps_max> found;
        size_t count = 0;
        ranges.gaps(high, [&](uint64_t from, uint64_t to) {
            found[count++] = track(now, from, to, random);
            return count < gaps_max;
        });
        gaps_ = found;
        count_ = count;
        // A slow path has more than its answers to carry: it is the slower, the more often it is asked.
        const int64_t repeat = std::clamp(trips.median_ns() / 4, options_.repeat_ns, 10 * options_.repeat_max_ns);
        for (size_t i = 0; i < count_; ++i) {
            Gap &gap = gaps_[i];
            if (now < gap.due) continue;
            send_nak(gap.from, gap.to);
            const uint32_t over = std::max(gap.naks_sent, options_.repeats_before_backoff) - options_.repeats_before_backoff;
            const int64_t most = options_.repeat_max_ns * (gap.naks_sent < options_.repeats_max ? 1 : 10);
            gap.due = now + std::min(std::max(most, repeat), repeat << std::min(over, 20u));
            ++gap.naks_sent;
        }
    }
    // When a gap that is followed is due.
    int64_t next() const {
        int64_t next = INT64_MAX;
        for (size_t i = 0; i < count_; ++i) next = std::min(next, gaps_[i].due);
        return next;
    }

  private:
    struct Gap {
        uint64_t from = 0, to = 0;
        int64_t due = 0;
        uint32_t naks_sent = 0;
    };

    template <class Random> Gap track(int64_t now, uint64_t from, uint64_t to, Random &&random) {
        for (size_t i = 0; i < count_; ++i) {
            if (gaps_[i].from != from) continue;
            gaps_[i].to = to;
            return gaps_[i];
        }
        const int64_t spread =
            options_.spread_ns == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(options_.spread_ns));
        return {from, to, now + options_.delay_ns + spread, 0};
    }

    const LossOptions options_;
    std::array<Gap, gaps_max> gaps_;
    size_t count_ = 0;
};

} // namespace penstock
