// Makes futex events visible to selectors: one thread per process sleeps on the events of all armed watches and signals
// each one's eventfd. It starts when the first fileno() is asked for, and touches no interpreter. It may hold the last reference
// to a watched channel, so no watched channel may own a Python object.
#pragma once

#include "ground/background_thread.hpp"
#include "ground/clock.hpp"
#include "ground/waiting.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <sys/eventfd.h>
#include <vector>

namespace penstock {

// A channel as the bridge sees it; outlives the handle.
class Waitable {
  public:
    virtual ~Waitable() = default;
    virtual Atomic<uint32_t> &event() = 0;                 // something was committed
    virtual bool readable(uint64_t position) const = 0;    // whether something can be read there
    virtual bool stalled(uint64_t position) const = 0;     // something was begun there and is not finished
    virtual bool settled(uint64_t) const { return false; } // no: stalled() may change without an event
};

class Bridge {
  public:
    // One subscription's readiness as a descriptor. Level-triggered: it stays readable until arm() is called again.
    class Watch {
      public:
        explicit Watch(std::shared_ptr<Waitable> channel)
            : channel_(std::move(channel)), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
            if (fd_ < 0) fail_system("cannot make an eventfd");
        }
        ~Watch() { ::close(fd_); }
        Watch(const Watch &) = delete;
        Watch &operator=(const Watch &) = delete;
        int fd() const { return fd_; }
        // Relaxed: the mutex orders changes, and after a stale `true` the descriptor is readable, which is noticed as well.
        bool armed() const { return armed_.relaxed(); }

      private:
        friend class Bridge;
        void signal() {
            armed_.relaxed(false);
            const uint64_t one = 1;
            [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);
        }

        std::shared_ptr<Waitable> channel_;
        uint64_t position_ = 0;
        int fd_;
        Atomic<bool> armed_{false};
        bool closed_ = false;
    };

    // Use instance(): there is one in a process.
    Bridge() { control_.relaxed(0); }
    static Bridge &instance() { return of_this_process<Bridge>(); }

    std::shared_ptr<Watch> watch(std::shared_ptr<Waitable> channel) {
        auto made = std::make_shared<Watch>(std::move(channel));
        const std::lock_guard hold(mutex_);
        if (!started_) start_background_thread("watches channels for fileno()", [this] { run(); });
        started_ = true; // not before: a system without threads may have one later
        watches_.push_back(made);
        return made;
    }
    // Nothing to read at `position`: the descriptor becomes unreadable until there is.
    void arm(Watch &watch, uint64_t position) {
        {
            const std::lock_guard hold(mutex_);
            uint64_t count;
            [[maybe_unused]] const auto got = ::read(watch.fd_, &count, sizeof count);
            watch.position_ = position;
            watch.armed_.relaxed(true);
        }
        kick();
    }
    void signal(Watch &watch) {
        const std::lock_guard hold(mutex_);
        watch.signal();
    }
    void forget(const std::shared_ptr<Watch> &watch) {
        {
            const std::lock_guard hold(mutex_);
            std::erase(watches_, watch);
            watch->signal(); // a thread that selects on it looks, and learns that it is closed
        }
        kick();
    }

  private:
    void kick() {
        control_.add(2); // SYNC -: the word carries no data; the fence of event_notify follows, and the mutex orders the watches
        event_notify(control_);
    }

    void run() {
        for (;;) {
            std::vector<WaitEntry> entries;
            std::vector<std::shared_ptr<Watch>> pinned; // keeps the events that we sleep on mapped
            entries.push_back(wait_entry(control_, event_announce(control_)));
            int64_t slice = platform::registered_for_fences ? calm_slice_ns : slice_ns_max;
            {
                const std::lock_guard hold(mutex_);
                for (const std::shared_ptr<Watch> &watch : watches_) {
                    if (!watch->armed()) continue;
                    if (!watch->channel_->settled(watch->position_)) slice = std::min(slice, slice_ns_max);
                    Atomic<uint32_t> &event = watch->channel_->event();
                    const uint32_t expected = event_announce(event);
                    if (entries.size() < wait_many_max) {
                        entries.push_back(wait_entry(event, expected));
                        pinned.push_back(watch);
                    } else {
                        slice = 1'000'000; // more than one call can sleep on: look at the others soon
                    }
                }
                event_announced();
                for (const std::shared_ptr<Watch> &watch : watches_) {
                    if (!watch->armed() || !watch->channel_->readable(watch->position_)) continue;
                    watch->signal();
                    slice = 0; // look again at once; arming the watch again kicks this thread
                }
            }
            event_sleep_many(entries.data(), entries.size(), slice);
            // Not each time that a watch is armed: a wait that looks and arms again would never sleep.
            if (const int64_t now = monotonic_ns(); now - looked_ns_ >= end_interval_ns) {
                looked_ns_ = now;
                wake_stalled();
            }
        }
    }

    // A claim that stays open for a slice may have lost its owner: the subscription must look and repair it.
    void wake_stalled() {
        const std::lock_guard hold(mutex_);
        for (const std::shared_ptr<Watch> &watch : watches_)
            if (watch->armed() && watch->channel_->stalled(watch->position_)) watch->signal();
    }

    std::mutex mutex_;
    std::vector<std::shared_ptr<Watch>> watches_;
    Atomic<uint32_t> control_;
    bool started_ = false;
    int64_t looked_ns_ = 0; // this thread's
};

} // namespace penstock
