// The requests for retransmission to a sender: ranges to send, and ranges sent so lately that another request for them is
// ignored. Bounded in number, and in bytes per interval.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock {

class Retransmits {
  public:
    static constexpr size_t ranges_max = 64;

    Retransmits(int64_t interval_ns, uint64_t bytes_max) : interval_ns_(interval_ns), bytes_max_(bytes_max) {}

    // False if it is ignored: asked for already, sent just now, or too much.
    bool request(int64_t now, uint64_t from, uint64_t to) {
        if (now - since_ >= interval_ns_) {
            since_ = now;
            bytes_ = 0;
        }
        Range *room = nullptr;
        for (Range &range : ranges_) {
            if (range.to != 0 && range.at == range.to && now >= range.until) range = {};
            if (range.to == 0) room = &range;
            else if (from < range.to && range.from < to) return false;
        }
        if (room == nullptr || bytes_ + (to - from) > bytes_max_) return false;
        bytes_ += to - from;
        *room = {from, to, from, 0};
        return true;
    }
    // `send(from, to)` sends some of a range and returns where it stopped; `from` when the way is full.
    // `linger_ns`: how long afterwards another request for the same is ignored.
    template <class Send> bool serve(int64_t now, int64_t linger_ns, Send &&send) {
        for (Range &range : ranges_) {
            while (range.at < range.to) {
                const uint64_t at = send(range.at, range.to);
                if (at == range.at) return false;
                range.at = at < range.to ? at : range.to;
                range.until = now + linger_ns;
            }
        }
        return true;
    }
    bool pending() const {
        for (const Range &range : ranges_)
            if (range.at < range.to) return true;
        return false;
    }

  private:
    struct Range {
        uint64_t from = 0, to = 0; // to 0: no range
        uint64_t at = 0;           // sent up to here
        int64_t until = 0;         // once all of it is sent: what overlaps is ignored until then
    };
    std::array<Range, ranges_max> ranges_;
    const int64_t interval_ns_;
    const uint64_t bytes_max_;
    uint64_t bytes_ = 0; // asked for since `since_`
    int64_t since_ = INT64_MIN / 2;
};

} // namespace penstock
