// Shared by the fuzz targets: input taken apart, copied to heap blocks of its exact size; every input with its neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace penstock::hostile {

class Input {
  public:
    Input(const uint8_t *data, size_t size) : at_(data), left_(size) {}
    template <class T> T take() {
        T value{};
        const size_t length = sizeof(T) < left_ ? sizeof(T) : left_;
        std::memcpy(&value, at_, length);
        skip(length);
        return value;
    }
    // A heap block of exactly so many bytes, or of as many as are left.
    std::unique_ptr<uint8_t[]> block(size_t &length) {
        if (length > left_) length = left_;
        auto made = std::make_unique<uint8_t[]>(length);
        std::memcpy(made.get(), at_, length);
        skip(length);
        return made;
    }
    size_t left() const { return left_; }

  private:
    void skip(size_t length) {
        at_ += length;
        left_ -= length;
    }
    const uint8_t *at_;
    size_t left_;
};

// A target: one input, parsed once.
void parse(const uint8_t *data, size_t size);

// How often an input is parsed: as it is, and with one place changed.
inline constexpr uint64_t parses_each = 16;

} // namespace penstock::hostile

// The fuzzer's own work for an input costs more than most parsers do, so each input brings its neighbours along: the same
// bytes with one to eight of them replaced by what parsers stumble over. They follow from the input alone.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace penstock::hostile;
    parse(data, size);
    if (size == 0 || size > 4096) return 0;
    static constexpr uint64_t stones[] = {0,
                                          1,
                                          31,
                                          32,
                                          33,
                                          64,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fff'ffff,
                                          0x8000'0000,
                                          0xffff'ffff,
                                          0xffff'ffe0,
                                          0x7fff'ffff'ffff'ffff,
                                          0x8000'0000'0000'0000,
                                          ~uint64_t{0}};
    static uint8_t neighbour[4096];
    std::memcpy(neighbour, data, size);
    uint64_t dice = size * 0x9e37'79b9'7f4a'7c15;
    for (size_t i = 0; i < size; ++i) dice = (dice ^ data[i]) * 0x100'0000'01b3;
    for (uint64_t i = 1; i < parses_each; ++i) {
        dice = dice * 6364136223846793005 + 1442695040888963407;
        const size_t at = (dice >> 40) % size;
        const size_t width = size_t{1} << (dice >> 36 & 3), fits = width < size - at ? width : size - at;
        std::memcpy(neighbour + at, &stones[dice >> 32 & 15], fits);
        parse(neighbour, size);
        std::memcpy(neighbour + at, data + at, fits);
    }
    return 0;
}
