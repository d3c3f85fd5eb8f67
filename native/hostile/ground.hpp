// A channel in memory that each input finds as it was made.
#pragma once

#include "ground/files/mapping.hpp"

#include <memory>
#include <sys/mman.h>

namespace penstock::hostile {

struct Ground {
    // `format` fills the new file.
    template <class Format> Ground(uint64_t size, Format &&format) : fd(memfd_create("fuzz", MFD_CLOEXEC)), size(size) {
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) __builtin_trap();
        const uint8_t boot[16] = {};
        format(fd, boot);
        map = std::make_shared<Mapping>(fd, size, true);
        pristine = std::make_unique<uint8_t[]>(size);
        std::memcpy(pristine.get(), map->bytes(), size);
    }
    void restore() const { std::memcpy(map->bytes(), pristine.get(), size); }
    int fd;
    uint64_t size;
    std::shared_ptr<Mapping> map;
    std::unique_ptr<uint8_t[]> pristine;
};

} // namespace penstock::hostile
