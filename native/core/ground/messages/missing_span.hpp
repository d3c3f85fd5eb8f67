// Positions of a stream that memory has no more, as a look at a channel finds them.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

// [start, end)
struct MissingSpan {
    uint64_t start, end;
};

// Adds a span; one that follows the last makes that one longer.
inline void add_missing(std::vector<MissingSpan> &spans, uint64_t start, uint64_t end) {
    if (!spans.empty() && spans.back().end == start) spans.back().end = end;
    else spans.push_back({start, end});
}

} // namespace penstock
