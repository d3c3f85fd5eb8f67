// The requests for retransmission to a sender: ranges to send, and ranges sent so lately that another request for them is
// ignored. Bounded in number, and in bytes per interval. A range that is asked for again and again is sent later and later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock {

class Retransmits {
  public:
    static constexpr size_t ranges_max = 64;
    static constexpr uint32_t times_before_backoff = 8;    // then each wait is twice as long as the one before
    static constexpr int64_t linger_max_ns = 200'000'000;  // at last
    static constexpr int64_t forget_ns = 1'000'000'000;    // nobody has asked for a range for so long
    static constexpr int64_t stuck_after_ns = 300'000'000; // since a range was first sent again

    Retransmits(int64_t interval_ns, uint64_t bytes_max) : interval_ns_(interval_ns), bytes_max_(bytes_max) {}

    // False if it is ignored: asked for already, sent just now, or too much.
    bool request(int64_t now, uint64_t from, uint64_t to) {
        if (now - since_ >= interval_ns_) {
            since_ = now;
            bytes_ = 0;
        }
        Range *room = nullptr, *again = nullptr;
        for (Range &range : ranges_) {
            const bool over = range.to != 0 && range.at == range.to && now >= range.until;
            if (over && now - range.until >= forget_ns) range = {};
            if (over && range.from == from) again = &range; // what it begins with has not arrived
            else if (range.to == 0 || over) room = room == nullptr || range.to == 0 || range.until < room->until ? &range : room;
            else if (from < range.to && range.from < to) return false;
        }
        if (again != nullptr) room = again;
        if (room == nullptr || bytes_ + (to - from) > bytes_max_) return false;
        bytes_ += to - from;
        const uint32_t times = again == nullptr ? 0 : again->times;
        *room = {from, to, from, 0, times, times == 0 ? now : again->since};
        return true;
    }
    // A range was sent once more now that was sent many times before: its beginning never arrives. Told once.
    bool take_stuck() { return std::exchange(stuck_, false); }
    // `send(from, to)` sends some of a range and returns where it stopped; `from` when the way is full.
    // `linger_ns`: how long afterwards another request for the same is ignored.
    template <class Send> bool serve(int64_t now, int64_t linger_ns, Send &&send) {
        for (Range &range : ranges_) {
            if (range.at == range.to) continue;
            const uint32_t over = range.times < times_before_backoff ? 0 : range.times - times_before_backoff;
            const int64_t most = linger_ns > linger_max_ns ? linger_ns : linger_max_ns;
            const int64_t later = over > 20 || linger_ns << over > most ? most : linger_ns << over;
            while (range.at < range.to) {
                const uint64_t at = send(range.at, range.to);
                if (at == range.at) return false;
                range.at = at < range.to ? at : range.to;
                range.until = now + later;
            }
            stuck_ |= ++range.times > times_before_backoff && now - range.since >= stuck_after_ns;
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
        uint32_t times = 0;        // that it was sent again, in a row
        int64_t since = 0;         // when it was first asked for
    };
    std::array<Range, ranges_max> ranges_;
    const int64_t interval_ns_;
    const uint64_t bytes_max_;
    uint64_t bytes_ = 0; // asked for since `since_`
    int64_t since_ = INT64_MIN / 2;
    bool stuck_ = false;
};

} // namespace penstock
