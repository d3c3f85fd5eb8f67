// Bytes that grow, for batches. Large blocks are kept for the next batch: the kernel would take them back, and give each page
// again at the price of a fault, which costs more than filling them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace penstock {

// Unused blocks of this process; any thread. A thread that finds it busy (or locked for ever, in a forked child) does
// without it.
class SpareBlocks {
  public:
    static SpareBlocks &instance() {
        static SpareBlocks *spare = new SpareBlocks; // never destroyed: batches may outlive static destruction
        return *spare;
    }
    // A block of at least `need` bytes and at most four times as many, and its size; or null.
    uint8_t *take(size_t need, size_t &size) {
        if (need < least) return nullptr;
        const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock()) return nullptr;
        Block *best = nullptr;
        for (Block &block : blocks_)
            if (block.size >= need && block.size / 4 <= need && (best == nullptr || block.size < best->size)) best = &block;
        if (best == nullptr) return nullptr;
        uint8_t *bytes = best->bytes;
        size = best->size;
        cached_bytes_ -= size;
        *best = {};
        return bytes;
    }
    // False: it is the caller's to free.
    bool keep(uint8_t *bytes, size_t size) {
        if (size < least || size > most - least) return false;
        const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
        if (!lock.owns_lock() || cached_bytes_ + size > most) return false;
        for (Block &block : blocks_) {
            if (block.bytes != nullptr) continue;
            block = {bytes, size};
            cached_bytes_ += size;
            return true;
        }
        return false;
    }

  private:
    struct Block {
        uint8_t *bytes = nullptr;
        size_t size = 0;
    };
#ifdef __SANITIZE_ADDRESS__
    static constexpr size_t least = SIZE_MAX / 8, most = SIZE_MAX / 4; // so that it detects a use after it was given back
#else
    static constexpr size_t least = 64 * 1024, most = 16 * 1024 * 1024;
#endif
    std::mutex mutex_;
    Block blocks_[16];
    size_t cached_bytes_ = 0;
};

// Bytes that grow without being zeroed first.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Buffer &&other) noexcept : bytes_(other.bytes_), size_(other.size_), room_(other.room_) {
        other.bytes_ = nullptr;
        other.size_ = other.room_ = 0;
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() {
        if (bytes_ != nullptr && !SpareBlocks::instance().keep(bytes_, room_)) std::free(bytes_);
    }
    // Room for `more` bytes and some slack behind the end.
    uint8_t *grow(size_t more) {
        constexpr size_t slack = 64;
        if (size_ + more + slack > room_) enlarge((size_ + more + slack) * 2);
        return bytes_ + size_;
    }
    void reserve(size_t bytes) {
        grow(bytes / 2); // which makes room for twice as much
    }
    void add(size_t more) { size_ += more; }
    template <class T> void push(T value) {
        std::memcpy(grow(sizeof(T)), &value, sizeof(T));
        size_ += sizeof(T);
    }
    const uint8_t *data() const { return bytes_; }
    size_t size() const { return size_; }

  private:
    void enlarge(size_t room) {
        if (bytes_ == nullptr) {
            bytes_ = SpareBlocks::instance().take(room, room_);
            if (bytes_ != nullptr) return;
        }
        auto *moved = static_cast<uint8_t *>(std::realloc(bytes_, room));
        if (moved == nullptr) throw std::bad_alloc();
        bytes_ = moved;
        room_ = room;
    }

    uint8_t *bytes_ = nullptr;
    size_t size_ = 0, room_ = 0;
};

} // namespace penstock
