// By how much the clock of a source is ahead of this machine's, and how sure that is. A request has a number; the answer
// has the source's wall clock, read between the arrival of the request and the departure of the answer. So the reading belongs to
// a moment within the round trip, and half of the round trip bounds the error, whatever the way there and the way back take
// (Cristian 1989; of NTP's four times the two of the source are one here). Of the last answers the one with the least bound
// counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace penstock {

class ClockOffset {
  public:
    static constexpr size_t samples_max = 8;
    static constexpr int64_t drift_ppm = 15; // of two clocks against each other, as NTP assumes: an old answer says less

    void on_request(int64_t now, uint64_t number) {
        number_ = number;
        at_ = now;
    }
    // False: no request has this number. `wall_ns`, `source_ns`: this machine's clock now, the source's clock then.
    bool on_answer(int64_t now, int64_t wall_ns, uint64_t number, int64_t source_ns) {
        if (number == 0 || number != number_) return false;
        number_ = 0;
        round_trip_ns_ = std::max<int64_t>(now - at_, 0);
        samples_[count_++ % samples_max] = {now, source_ns - (wall_ns - round_trip_ns_ / 2), round_trip_ns_ / 2 + 1};
        best_ = {};
        for (size_t i = 0; i < std::min(count_, samples_max); ++i) {
            Sample one = samples_[i];
            one.error_ns += (now - one.at) / 1'000'000 * drift_ppm;
            if (best_.error_ns == 0 || one.error_ns < best_.error_ns) best_ = one;
        }
        return true;
    }
    bool known() const { return best_.error_ns != 0; }
    int64_t offset_ns() const { return best_.offset_ns; } // above 0: the source's clock is ahead
    int64_t error_ns() const { return best_.error_ns; }
    // By how much a latency by the two clocks is too short. 0 where the clocks may be the same one.
    int64_t correction_ns() const { return std::abs(best_.offset_ns) > best_.error_ns ? best_.offset_ns : 0; }
    int64_t round_trip_ns() const { return round_trip_ns_; } // of the last answer

  private:
    struct Sample {
        int64_t at = 0, offset_ns = 0, error_ns = 0;
    };
    uint64_t number_ = 0;
    int64_t at_ = 0, round_trip_ns_ = 0;
    std::array<Sample, samples_max> samples_{};
    size_t count_ = 0;
    Sample best_;
};

} // namespace penstock
