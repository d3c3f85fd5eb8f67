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
// Appending `length` zero bytes to a message is a linear map of its sum; `shift` applies that of one chunk.
inline constexpr size_t chunk = 1024;
constexpr uint32_t zero_bytes(uint32_t state, size_t length) {
    for (size_t i = 0; i < length; ++i) state = (state >> 8) ^ table[state & 0xff];
    return state;
}
constexpr std::array<std::array<uint32_t, 256>, 4> make_shift() {
    std::array<std::array<uint32_t, 256>, 4> shift{};
    for (int byte = 0; byte < 4; ++byte) {
        for (int bit = 0; bit < 8; ++bit) shift[byte][1u << bit] = zero_bytes(1u << (8 * byte + bit), chunk);
        for (uint32_t value = 1; value < 256; ++value) {
            const uint32_t low = value & (~value + 1);
            if (value != low) shift[byte][value] = shift[byte][low] ^ shift[byte][value ^ low];
        }
    }
    return shift;
}
inline constexpr std::array<std::array<uint32_t, 256>, 4> shift_table = make_shift();
inline uint32_t shift(uint32_t state) {
    return shift_table[0][state & 0xff] ^ shift_table[1][state >> 8 & 0xff] ^ shift_table[2][state >> 16 & 0xff] ^
           shift_table[3][state >> 24];
}

// The instruction takes three cycles but a new one may start in each: three chunks are summed side by side, then joined. A long
// message is asked for two rounds ahead: the machine follows each chunk by itself only to the end of its page.
inline constexpr size_t side_by_side = 3 * chunk;
__attribute__((target("sse4.2"))) inline uint32_t sum_chunks(uint32_t state, const uint8_t *data, bool ahead) {
    uint64_t sums[3] = {state, 0, 0};
    for (size_t line = 0; line < chunk; line += 64) {
        if (ahead)
            for (size_t k = 0; k < 3; ++k) __builtin_prefetch(data + 2 * side_by_side + k * chunk + line);
        for (size_t i = line; i < line + 64; i += 8) {
            uint64_t words[3];
            std::memcpy(&words[0], data + i, 8);
            std::memcpy(&words[1], data + chunk + i, 8);
            std::memcpy(&words[2], data + 2 * chunk + i, 8);
            sums[0] = _mm_crc32_u64(sums[0], words[0]);
            sums[1] = _mm_crc32_u64(sums[1], words[1]);
            sums[2] = _mm_crc32_u64(sums[2], words[2]);
        }
    }
    return shift(shift(static_cast<uint32_t>(sums[0])) ^ static_cast<uint32_t>(sums[1])) ^ static_cast<uint32_t>(sums[2]);
}
__attribute__((target("sse4.2"))) inline uint32_t by_instruction(uint32_t state, const uint8_t *data, size_t length) {
    for (; length >= side_by_side; data += side_by_side, length -= side_by_side)
        state = sum_chunks(state, data, length >= 3 * side_by_side);
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
