// How a wait sleeps for an end: on its event, or as the end itself does where more than shared memory can wake it.
#pragma once

#include "ends/ends.hpp"
#include "ends/wait.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

inline void note_wait(End &end, uint64_t word) {
    if (Atomic<uint64_t> *noted = end.wait_word(); noted != nullptr) noted->relaxed(end.awaits != 0 ? end.await_note : word);
}

class EndTarget : public Target {
  public:
    EndTarget() = default;
    ~EndTarget() {
        if (end_ != nullptr) end_->end_wait();
    }
    EndTarget(const EndTarget &) = delete;
    EndTarget &operator=(const EndTarget &) = delete;
    void note(uint64_t word) {
        if (noted_ != nullptr) note_wait(*noted_, word);
    }
    void sleep(int64_t ns) {
        if (end_ != nullptr) end_->sleep(expected_, ns);
        else event_sleep(*event_, expected_, brief_ ? std::min(ns, brief_ns) : ns);
    }

  protected:
    bool end_sleeps() const { return end_ != nullptr; }
    End *noted() const { return noted_; } // the end with this wait's note, if there is one
    void announce(End &end, Atomic<uint32_t> &event) {
        end_ = end.sleeps() ? &end : nullptr;
        noted_ = &end;
        event_ = &event;
        // A notifier on this core needs no fence: the kernel's switch between the two orders all. One that has moved to another
        // core may miss this announcement, so the sleep is brief. The next one is announced to all cores, which are interrupted
        // for it.
        brief_ = std::exchange(first_, false) && end_ == nullptr && event_woken_from_here(event);
        expected_ = end_ != nullptr ? end_->prepare() : brief_ ? event_announce(event) : event_prepare(event);
    }

  private:
    static constexpr int64_t brief_ns = 10'000'000; // longer than a tick: an earlier timer is set anew for each sleep

    End *end_ = nullptr, *noted_ = nullptr; // pinned by the wait's Busy
    Atomic<uint32_t> *event_ = nullptr;
    uint32_t expected_ = 0;
    bool first_ = true, brief_ = false; // this wait's first sleep; one that other cores do not know of
};

} // namespace penstock
