// A file in memory. It maps and nothing else; it does not know the meaning of the bytes.
#pragma once

#ifdef PENSTOCK_FILES
#include PENSTOCK_FILES
#else

#include "ground/error.hpp"

#include <cerrno>
#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>

namespace penstock {

// Pages that nobody may touch lie before and after it: what runs out of it stops there, and in nobody else's memory.
class Mapping {
  public:
    Mapping(int fd, uint64_t size, bool writable) : size_(size) {
        void *around = mmap(nullptr, reserved(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (around == MAP_FAILED) fail_system("cannot reserve " + std::to_string(size) + " bytes of address space");
        bytes_ = static_cast<uint8_t *>(around) + guard;
        const int allowed = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        if (mmap(bytes_, size, allowed, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            const int number = errno;
            munmap(around, reserved());
            fail_system("cannot map " + std::to_string(size) + " bytes", number);
        }
    }
    ~Mapping() { munmap(bytes_ - guard, reserved()); }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    // Brings all of it into memory now, so that no later access faults. False where the kernel cannot (before 5.14).
    bool populate() const {
        constexpr int populate_write = 23; // MADV_POPULATE_WRITE
        return madvise(bytes_, size_, populate_write) == 0;
    }
    uint8_t *bytes() const { return bytes_; }
    uint64_t size() const { return size_; }

  private:
    static constexpr uint64_t guard = 64 * 1024; // a page of any machine
    uint64_t reserved() const { return ((size_ + guard - 1) & ~(guard - 1)) + 2 * guard; }

    uint8_t *bytes_;
    uint64_t size_;
};

inline uint64_t size_of_file(int fd) {
    struct stat about;
    if (fstat(fd, &about) != 0) fail_system("cannot read the size of a file");
    return static_cast<uint64_t>(about.st_size);
}

} // namespace penstock

#endif
