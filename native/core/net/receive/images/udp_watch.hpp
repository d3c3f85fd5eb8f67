// What the thread of a descriptor sees of a network subscription, beside its reader: whether anything has arrived.
#pragma once

#include "net/receive/files/endpoint_file.hpp"

#include <memory>

namespace penstock {

// For the bridge's thread, beside the reader.
class UdpWatch {
  public:
    explicit UdpWatch(const EndpointFile &file) : map_(file.mapping()), control_(file.control()) {
        seen_.relaxed(0);
        withheld_.relaxed(0);
    }
    Atomic<uint32_t> &event() const { return control_.event.value; }
    // Whether anything has arrived since the reader found nothing. Not while it has a message that it may not give yet: a wait
    // would not sleep.
    bool readable() const { return withheld_.relaxed() == 0 && control_.activity.value.relaxed() != seen_.relaxed(); }
    bool withheld() const { return withheld_.relaxed() != 0; }
    void set_withheld(bool withheld) { withheld_.relaxed(withheld); }
    void set_seen(uint64_t activity) { seen_.relaxed(activity); }
    uint64_t seen() const { return seen_.relaxed(); }

  private:
    const std::shared_ptr<Mapping> map_;
    EndpointControl &control_;
    Atomic<uint64_t> seen_;
    Atomic<uint32_t> withheld_; // only its value counts
};

} // namespace penstock
