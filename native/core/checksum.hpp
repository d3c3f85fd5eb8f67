// CRC32C (Castagnoli, RFC 3720), by the processor's instruction where it has one. Also finds the one byte that, changed
// back, explains a wrong sum: CRC is linear, so the difference of two sums names place and bits of a single error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace penstock {

namespace crc_detail {
inline constexpr uint32_t polynomial = 0x82f63b78; // reflected
constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
        table[i] = value;
    }
    return table;
}
inline constexpr std::array<uint32_t, 256> table = make_table();

inline uint32_t by_table(uint32_t state, const uint8_t *data, size_t length) {
    for (size_t i = 0; i < length; ++i) state = (state >> 8) ^ table[(state ^ data[i]) & 0xff];
    return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) inline uint32_t by_instruction(uint32_t state, const uint8_t *data, size_t length) {
    uint64_t wide = state;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        std::memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    auto narrow = static_cast<uint32_t>(wide);
    for (; length != 0; ++data, --length) narrow = _mm_crc32_u8(narrow, *data);
    return narrow;
}
#endif
} // namespace crc_detail

// `before` is the sum of the bytes in front, so that a long run may be summed in parts.
inline uint32_t crc32c(const void *data, size_t length, uint32_t before = 0) {
    const auto *bytes = static_cast<const uint8_t *>(data);
#if defined(__x86_64__)
    static const bool fast = __builtin_cpu_supports("sse4.2");
    if (fast) return ~crc_detail::by_instruction(~before, bytes, length);
#endif
    return ~crc_detail::by_table(~before, bytes, length);
}

struct ByteError {
    size_t offset;
    uint8_t change; // xor this onto the byte to mend it
};

// The only single-byte change that turns `found` into `expected`, if one does. Walks the difference of the sums
// backwards, a zero byte at a time. O(length).
inline bool find_byte_error(uint32_t found, uint32_t expected, size_t length, ByteError &error) {
    static const auto by_top = [] { // the top byte of a table entry is unique: it undoes one step
        std::array<uint8_t, 256> index{};
        for (uint32_t i = 0; i < 256; ++i) index[crc_detail::table[i] >> 24] = static_cast<uint8_t>(i);
        return index;
    }();
    uint32_t difference = found ^ expected;
    for (size_t offset = length; offset-- > 0;) {
        const uint8_t index = by_top[difference >> 24];
        if (crc_detail::table[index] == difference) {
            error = {offset, index};
            return true;
        }
        difference = ((difference ^ crc_detail::table[index]) << 8) | index;
    }
    return false;
}

} // namespace penstock
