// Long runs of bytes, a page at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock {

// Calls piece(done, length) for pieces of a page, in order. `to` is written, `from` is read; either may be null. Before each
// piece it asks for a line two pages further. A processor fetches ahead within a page only. The first access to the next page
// waits for the page tables, and shared memory has small pages. It asks behind the end, too: long runs come in steps, and where
// no memory is, a hint does nothing.
template <class IoVec> void by_pages(const void *to, const void *from, size_t length, IoVec &&piece) {
    constexpr size_t page = 4096, ahead = 2 * page;
    for (size_t done = 0; done < length; done += page) {
        if (to != nullptr) __builtin_prefetch(static_cast<const uint8_t *>(to) + done + ahead, 1);
        if (from != nullptr) __builtin_prefetch(static_cast<const uint8_t *>(from) + done + ahead, 0);
        size_t now = std::min(page, length - done);
        __asm__("" : "+r"(now)); // a compiler that knows the bound copies by itself, and slower than the C library
        piece(done, now);
    }
}
inline constexpr size_t long_bytes = 16 * 1024; // shorter runs are not worth it

} // namespace penstock
