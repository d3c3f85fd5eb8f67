// A channel file in memory that every execution of a scenario finds as it was formatted.
#pragma once

#include "explorer.hpp"
#include "scenarios.hpp"

#include "ring/ring_layout.hpp"

#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace penstock::model {

class Pristine {
  public:
    // The file's mapping, its bytes as `format(fd)` left them. `variant` says which format that is: another one is made again.
    template <class Format> const std::shared_ptr<Mapping> &restore(uint64_t variant, uint64_t size, Format &&format) {
        return restore_first(variant, size, size, format);
    }
    // The same for its first `used` bytes: the caller sees to the rest.
    template <class Format>
    const std::shared_ptr<Mapping> &restore_first(uint64_t variant, uint64_t size, uint64_t used, Format &&format) {
        if (!mapping_ || variant != variant_) {
            const HeapOff off;
            const int fd = memfd_create("model", MFD_CLOEXEC);
            if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) std::abort();
            format(fd);
            mapping_ = std::make_shared<Mapping>(fd, size, true);
            ::close(fd);
            bytes_.assign(mapping_->bytes(), mapping_->bytes() + used);
            variant_ = variant;
        }
        std::memcpy(mapping_->bytes(), bytes_.data(), bytes_.size());
        return mapping_;
    }

  private:
    std::shared_ptr<Mapping> mapping_;
    std::vector<uint8_t> bytes_;
    uint64_t variant_ = 0;
};

// Of a ring, or of a frame pool's ring: the words whose values change no behaviour.
inline void quiet_ring(const Mapping &mapping, uint32_t slots) {
    const auto *control = reinterpret_cast<const RingControl *>(mapping.bytes() + control_offset);
    World::quiet(&control->writer.bytes_sent, 16); // and joined_ns
    World::quiet(&control->writer.pid, 4);
    World::quiet(&control->writer.deaths, sizeof control->writer.deaths);
    for (uint32_t i = 0; i < slots; ++i) {
        const auto *slot = reinterpret_cast<const RingSlot *>(mapping.bytes() + slots_offset + i * sizeof(RingSlot));
        World::quiet(&slot->identity.pid, offsetof(RingSlot::Identity, waits) - 4);
        World::quiet(&slot->reader.counts, sizeof slot->reader.counts);
        World::quiet(&slot->reader.sent_messages, 20); // and bytes, session
    }
}

// A handle of one thread; it outlives the execution.
template <class Handle, class... Arguments> Handle &handle_of(int thread, Arguments &&...arguments) {
    World::owner(thread);
    auto &made = *new Handle(std::forward<Arguments>(arguments)...);
    World::owner(-1);
    return made;
}

} // namespace penstock::model
