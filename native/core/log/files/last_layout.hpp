// Byte layout of the last values of a log: control words, buckets, records. They follow the terms. docs/design/last_values.md.
#pragma once

#include "ground/atomics.hpp"
#include "ground/cache_line.hpp"

#include <cstddef>
#include <cstdint>

namespace penstock {

//     0            LastWords
//     256          Atomic<uint32_t> × buckets: 0, or the number of a record + 1
//     then         LastRecord × (keys + 1), each with room for `max` bytes: one more than keys, for the message on its way

inline constexpr uint32_t last_key_max = 128;
inline constexpr uint32_t last_keys_max = 1u << 20;

// All but `lock`: the holder of `lock`.
struct LastWords {
    Paired<Atomic<uint64_t>> lock; // 0: generation << 32 | slot + 1 of its holder in the log, or 0
    Atomic<uint32_t> count;        // 128: of keys
    Atomic<uint32_t> spare;        // 132: the record that the next message is written to
    Atomic<uint32_t> pending;      // 136: 1 while the words below tell of a message on its way
    Atomic<uint32_t> bucket;       // 140: of its key
    Atomic<uint32_t> record;       // 144: that has its key, and gets it
    Atomic<uint32_t> next_spare;   // 148: `spare` once it is there
    Atomic<uint32_t> next_count;   // 152: `count` once it is there
    Atomic<uint32_t> unused;       // 156
    Atomic<uint64_t> tail;         // 160: where the log ended before it
    uint8_t zero[256 - 168];
};
static_assert(sizeof(LastWords) == 256 && offsetof(LastWords, count) == 128 && offsetof(LastWords, spare) == 132);
static_assert(offsetof(LastWords, pending) == 136 && offsetof(LastWords, bucket) == 140);
static_assert(offsetof(LastWords, record) == 144 && offsetof(LastWords, next_spare) == 148);
static_assert(offsetof(LastWords, next_count) == 152 && offsetof(LastWords, tail) == 160);

// The holder of `lock`; the payload follows.
struct LastRecord {
    uint64_t position;         // 0: of the frame
    int64_t time_ns;           // 8: when it was sent
    int32_t session;           // 16
    uint32_t length;           // 20: of the payload
    uint32_t key_length;       // 24
    uint32_t unused;           // 28
    uint8_t key[last_key_max]; // 32
};
static_assert(sizeof(LastRecord) == 160 && offsetof(LastRecord, session) == 16 && offsetof(LastRecord, length) == 20);
static_assert(offsetof(LastRecord, key_length) == 24 && offsetof(LastRecord, key) == 32);

// How many keys there may be, and bytes of a message at most. No keys: the log has no such table.
struct LastShape {
    uint32_t keys = 0, max = 0;

    constexpr uint32_t buckets() const { // a power of two, at least twice the keys
        uint32_t count = 2;
        while (count < 2 * keys) count *= 2;
        return count;
    }
    constexpr uint64_t record_bytes() const { return (sizeof(LastRecord) + uint64_t{max} + 31) & ~uint64_t{31}; }
    constexpr uint64_t records_offset() const { return (sizeof(LastWords) + 4 * uint64_t{buckets()} + 127) & ~uint64_t{127}; }
    // Whole cache line pairs, as latencies follow.
    constexpr uint64_t size() const {
        return keys == 0 ? 0 : (records_offset() + (uint64_t{keys} + 1) * record_bytes() + 127) & ~uint64_t{127};
    }
};

} // namespace penstock
