// copy_bytes copies what memcpy does, and nothing else: every distance within a page at which it goes another way, and its
// neighbours. Two ranges that overlap, as wrong words in shared memory can have it, are defined: nothing beside the target
// changes.
#include "check.hpp"
#include "ground/atomics.hpp"

#include <vector>

using namespace penstock;

namespace {

constexpr size_t page = 4096, room = 20 * page;

uint8_t filler(size_t i) { return static_cast<uint8_t>(i * 131 >> 3 ^ i); }

void copies(size_t length, size_t from_offset, size_t above) {
    static const std::vector<uint8_t> zero(2 * room);
    std::vector<uint8_t> from_room(room), to_room(2 * room);
    const auto aligned = [](std::vector<uint8_t> &in) {
        return in.data() + (page - reinterpret_cast<uintptr_t>(in.data()) % page) % page;
    };
    uint8_t *from = aligned(from_room) + from_offset, *to = aligned(to_room) + page + from_offset + above;
    for (size_t i = 0; i < length; ++i) from[i] = filler(i);
    copy_bytes(to, from, length);
    CHECK(std::memcmp(to, from, length) == 0, "%zu bytes from %zu, %zu above", length, from_offset, above);
    const size_t begin = static_cast<size_t>(to - to_room.data()), end = begin + length;
    CHECK(std::memcmp(to_room.data(), zero.data(), begin) == 0, "%zu bytes from %zu, %zu above: before", length, from_offset,
          above);
    CHECK(std::memcmp(to_room.data() + end, zero.data(), to_room.size() - end) == 0, "%zu bytes from %zu, %zu above: behind",
          length, from_offset, above);
}

void overlaps(size_t length, size_t from_offset, size_t to_offset) {
    std::vector<uint8_t> memory(room);
    for (size_t i = 0; i < room; ++i) memory[i] = filler(i);
    std::vector<uint8_t> expected = memory;
    std::memmove(expected.data() + to_offset, expected.data() + from_offset, length);
    copy_bytes(memory.data() + to_offset, memory.data() + from_offset, length);
    if (length > 2048) // by blocks, which may copy what they have just written
        std::memcpy(expected.data() + to_offset, memory.data() + to_offset, length);
    CHECK(memory == expected, "%zu bytes from %zu to %zu, which overlap", length, from_offset, to_offset);
}

} // namespace

int main() {
    for (const size_t length :
         {size_t{0}, size_t{1}, size_t{64}, size_t{2048}, size_t{2049}, size_t{2111}, size_t{2112}, size_t{65537}})
        for (size_t above = 0; above <= 33; ++above)
            for (const size_t from_offset : {size_t{0}, size_t{32}, page - 16}) copies(length, from_offset, above);
    for (const size_t length : {size_t{64}, size_t{2048}, size_t{7165}, 4 * page})
        for (const size_t apart : {size_t{1}, size_t{8}, size_t{31}, size_t{32}, size_t{63}}) {
            overlaps(length, page, page + apart);
            overlaps(length, page + apart, page);
        }
    std::printf("copies are whole\n");
    return 0;
}
