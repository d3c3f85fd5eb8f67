// How a wait sleeps for an end: on its event, or as the end itself does where more than shared memory can wake it.
#pragma once

#include "bind/ends/ends.hpp"
#include "bind/ground/wait.hpp"

namespace penstock::bind {

class EndTarget : public Target {
  public:
    EndTarget() = default;
    ~EndTarget() {
        if (end_ != nullptr) end_->end_wait();
    }
    EndTarget(const EndTarget &) = delete;
    EndTarget &operator=(const EndTarget &) = delete;
    void sleep(int64_t ns) {
        if (end_ != nullptr) end_->sleep(expected_, ns);
        else event_sleep(*event_, expected_, ns);
    }

  protected:
    bool end_sleeps() const { return end_ != nullptr; }
    void announce(End &end, Atomic<uint32_t> &event) {
        end_ = end.sleeps() ? &end : nullptr;
        event_ = &event;
        expected_ = end_ != nullptr ? end_->prepare() : event_prepare(event);
    }

  private:
    End *end_ = nullptr; // pinned by the wait's Busy
    Atomic<uint32_t> *event_ = nullptr;
    uint32_t expected_ = 0;
};

} // namespace penstock::bind
