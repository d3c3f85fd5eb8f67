// Any bytes as a recorded block: its frames are walked, or refused.
#include "fuzz.hpp"
#include "record/recorded_block.hpp"

using namespace penstock;

void penstock::hostile::parse(const uint8_t *data, size_t size) {
    hostile::Input input(data, size);
    IndexEntry entry;
    entry.position = static_cast<int64_t>(uint64_t{input.take<uint8_t>()} * 32);
    size_t length = input.left();
    const auto block = input.block(length);
    entry.length = static_cast<uint32_t>(length);
    uint64_t sum = 0;
    const uint64_t walked = walk_frames(block.get(), entry, 256, [&](uint64_t word0, uint64_t at) {
        const int32_t bytes = frame_length(word0);
        for (int32_t i = 0; i < bytes; ++i) sum += block[at + static_cast<size_t>(i)];
#ifdef PENSTOCK_CANARY // a planted fault that every run must find
        if (bytes == 40) sum += block[length + static_cast<size_t>(bytes)];
#endif
    });
    if (walked > length) __builtin_trap();
    ByteError error;
    find_byte_error(crc32c(block.get(), length), static_cast<uint32_t>(sum), length, error);
}
