// The parts of a stream of bytes that have arrived: everything below the floor, and some ranges above it. Bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

class Ranges {
  public:
    static constexpr size_t ranges_max = 1024; // ranges above the floor
    struct Range {
        uint64_t from, to;
    };

    explicit Ranges(uint64_t floor) : floor_(floor) {}
    uint64_t floor() const { return floor_; }
    uint64_t end() const { return above_.empty() ? floor_ : above_.back().to; }
    bool is_contiguous() const { return above_.empty(); }
    // Whether nothing of it has arrived.
    bool is_free(uint64_t from, uint64_t to) const {
        if (from < floor_) return false;
        if (from >= end()) return true;
        const size_t after = first_after(from);
        return (after == 0 || above_[after - 1].to <= from) && (after == above_.size() || above_[after].from >= to);
    }
    bool has(uint64_t from, uint64_t to) const {
        if (to <= floor_) return true;
        const size_t after = first_after(from);
        return after != 0 && above_[after - 1].to >= to;
    }
    // A range that is free. False: there are too many already, nothing is noted.
    bool add(uint64_t from, uint64_t to) {
        if (from == floor_) {
            floor_ = to;
            size_t reached = 0;
            while (reached < above_.size() && above_[reached].from <= floor_) floor_ = above_[reached++].to;
            above_.erase(above_.begin(), above_.begin() + static_cast<ptrdiff_t>(reached));
            return true;
        }
        const size_t at = first_after(from);
        const bool joins_left = at != 0 && above_[at - 1].to == from;
        const bool joins_right = at != above_.size() && above_[at].from == to;
        if (joins_left && joins_right) {
            above_[at - 1].to = above_[at].to;
            above_.erase(above_.begin() + static_cast<ptrdiff_t>(at));
        } else if (joins_left) above_[at - 1].to = to;
        else if (joins_right) above_[at].from = from;
        else if (above_.size() == ranges_max) return false;
        else above_.insert(above_.begin() + static_cast<ptrdiff_t>(at), {from, to});
        return true;
    }
    // The gaps below `high`, the lowest first, until `each` returns false.
    template <class Each> void gaps(uint64_t high, Each &&each) const {
        uint64_t from = floor_;
        for (const Range &range : above_) {
            if (range.from >= high) break;
            if (!each(from, range.from)) return;
            from = range.to;
        }
        if (from < high) each(from, high);
    }

  private:
    // The first range that begins behind `position`.
    size_t first_after(uint64_t position) const {
        size_t low = 0, high = above_.size();
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (above_[middle].from <= position) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    uint64_t floor_;
    std::vector<Range> above_; // sorted, apart from each other and from the floor
};

} // namespace penstock
