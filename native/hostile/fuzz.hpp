// What the fuzz targets share: input taken apart, copied to heap blocks of its exact size.
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

} // namespace penstock::hostile
