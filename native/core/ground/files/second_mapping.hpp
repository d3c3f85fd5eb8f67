// A second mapping of a participant's file, for bytes that the first one maps otherwise. Knows byte locks and nothing of the
// bytes.
#pragma once

#include "ground/files/mapping.hpp"
#include "ground/liveness.hpp"

#include <memory>
#include <unistd.h>

namespace penstock {

inline std::shared_ptr<Mapping> map_again(const ByteLocks &locks, uint64_t size, bool writable) {
    struct Descriptor {
        ~Descriptor() { ::close(number); }
        const int number;
    };
    const Descriptor file{locks.again()}; // its own open file description: a mapping would keep a lock alive in a forked child
    return std::make_shared<Mapping>(file.number, size, writable);
}

} // namespace penstock
