// Cache lines, as the file formats fix them: words of different owners lie on different pairs of lines.
#pragma once

#include <cstddef>

namespace penstock {

inline constexpr size_t cache_line = 64;  // fixed by the format: files outlive the compiler's opinion
inline constexpr size_t cache_pair = 128; // the adjacent-line prefetcher moves pairs

template <class T> struct alignas(cache_pair) Paired {
    T value;
};

} // namespace penstock
