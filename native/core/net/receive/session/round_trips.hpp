// How long a round trip to a source takes: numbers that it has to send back, when each was sent, and the last replies. A lost
// request or reply measures nothing; one late reply among several does not count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock {

class RoundTrips {
  public:
    static constexpr size_t requests_max = 32, samples_max = 5; // requests: of some seconds

    // Records a request that is sent now. `number` is random and not 0; the source sends it back.
    void on_request(int64_t now, int64_t number) {
        requests_[next_request_++ % requests_max] = {number, now};
        ++unanswered_;
    }
    // False: no request has this number. `delay_ns`: how long the source kept it, as it reports.
    bool on_reply(int64_t now, int64_t number, int64_t delay_ns) {
        if (number == 0) return false;
        for (Request &one : requests_) {
            if (one.number != number) continue;
            const int64_t took = std::max<int64_t>(now - one.at, 0);
            samples_[count_++ % samples_max] = took - std::clamp<int64_t>(delay_ns, 0, took);
            one = {};
            unanswered_ = 0;
            return true;
        }
        return false;
    }
    // Measured otherwise.
    void add(int64_t took_ns) { samples_[count_++ % samples_max] = took_ns; }
    // Requests since the last answer: each waits twice as long as the one before.
    int64_t wait_ns(int64_t first_ns, int64_t most_ns) const {
        return std::min(most_ns, first_ns << std::min<uint32_t>(std::max(unanswered_, 1u) - 1, 16));
    }
    uint32_t unanswered() const { return unanswered_; } // requests since the last answer
    bool has_any() const { return count_ != 0; }
    bool has_enough() const { return count_ >= samples_max; }
    // The median of the last answers; 0 before the first one.
    int64_t median_ns() const {
        std::array<int64_t, samples_max> sorted = samples_;
        const size_t known = std::min(count_, samples_max);
        if (known == 0) return 0;
        std::sort(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(known));
        return sorted[(known - 1) / 2];
    }

  private:
    struct Request {
        int64_t number = 0, at = 0;
    };
    std::array<Request, requests_max> requests_;
    std::array<int64_t, samples_max> samples_{};
    size_t next_request_ = 0, count_ = 0;
    uint32_t unanswered_ = 0;
};

} // namespace penstock
