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
#include <unistd.h>
#include <utility>
#include <vector>

namespace penstock {

// Guard pages lie before and after it: an access outside of it stops there, and in no other object's memory.
class Mapping {
  public:
    Mapping(int fd, uint64_t size, bool writable) : size_(size) {
        void *around = mmap(nullptr, reserved(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (around == MAP_FAILED) fail("reserve address space for", size, errno);
        bytes_ = static_cast<uint8_t *>(around) + guard;
        const int allowed = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        if (mmap(bytes_, size, allowed, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            const int number = errno;
            munmap(around, reserved());
            fail("map", size, number);
        }
    }
    ~Mapping() { munmap(bytes_ - guard, reserved()); }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    // From now on this mapping only reads the whole pages from one offset to another: a write to them by mistake ends this
    // process, and changes nothing that others read. Ranges come in order, before anybody else uses the mapping.
    void protect(uint64_t from, uint64_t to) {
        const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        from = (from + page - 1) / page * page;
        to = to / page * page;
        if (from >= to) return;
        if (mprotect(bytes_ + from, to - from, PROT_READ) != 0) fail("protect", to - from, errno);
        protected_.emplace_back(from, to);
    }
    bool protects() const { return !protected_.empty(); }
    // Brings all of it into memory now, so that no later access faults. False where the kernel cannot (before 5.14).
    bool populate() const {
        constexpr int populate_read = 22, populate_write = 23; // MADV_POPULATE_READ, MADV_POPULATE_WRITE
        uint64_t done = 0;
        auto fetch = [&](uint64_t to, int how) {
            const bool there = done >= to || madvise(bytes_ + done, to - done, how) == 0;
            done = to;
            return there;
        };
        bool there = true;
        for (const auto &[from, to] : protected_) there = fetch(from, populate_write) && fetch(to, populate_read) && there;
        return fetch(size_, populate_write) && there;
    }
    uint8_t *bytes() const { return bytes_; }
    uint64_t size() const { return size_; }

  private:
    static constexpr uint64_t guard = 64 * 1024; // a page of any machine
    [[noreturn]] static void fail(const char *what, uint64_t size, int number) {
        const char *advice = number == ENOMEM ? " (there may be too many mappings: sysctl vm.max_map_count)" : "";
        fail_system(std::string("cannot ") + what + ' ' + std::to_string(size) + " bytes" + advice, number);
    }
    uint64_t reserved() const { return ((size_ + guard - 1) & ~(guard - 1)) + 2 * guard; }

    uint8_t *bytes_;
    uint64_t size_;
    std::vector<std::pair<uint64_t, uint64_t>> protected_;
};

inline uint64_t size_of_file(int fd) {
    struct stat about;
    if (fstat(fd, &about) != 0) fail_system("cannot read the size of a file");
    return static_cast<uint64_t>(about.st_size);
}

} // namespace penstock

#endif
