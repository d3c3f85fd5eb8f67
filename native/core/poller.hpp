// Descriptors and timers of one thread, over epoll. Its thread alone calls it; only the load may be asked for by others.
// After ZeroMQ's epoll_t. docs/design/io_thread.md.
#pragma once

#include "atomics.hpp"
#include "clock.hpp"
#include "error.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <sys/epoll.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace penstock {

class Poller {
  public:
    // What is told of a descriptor or a timer.
    class Events {
      public:
        virtual void readable() {}
        virtual void writable() {}
        virtual void timer(int) {}

      protected:
        ~Events() = default;
    };
    struct Entry {
        int fd;
        uint32_t wanted;
        Events *events; // null once it was removed
    };
    using Handle = Entry *;

    Poller() : fd_(epoll_create1(EPOLL_CLOEXEC)) {
        if (fd_ < 0) fail_system("cannot make an epoll descriptor");
        load_.relaxed(0);
    }
    ~Poller() { ::close(fd_); }
    Poller(const Poller &) = delete;
    Poller &operator=(const Poller &) = delete;

    // Tells `events` when the descriptor is readable or writable, as far as it is watched for: at first, for neither.
    Handle add(int fd, Events &events) {
        entries_.push_back(std::make_unique<Entry>(Entry{fd, 0, &events}));
        Entry *entry = entries_.back().get();
        if (!control(EPOLL_CTL_ADD, entry)) {
            entries_.pop_back();
            fail_system("cannot watch a descriptor");
        }
        load_.bump(1);
        return entry;
    }
    // Nothing more is told of it, not even what happened already. Before the descriptor is closed.
    void remove(Handle entry) {
        control(EPOLL_CTL_DEL, entry);
        entry->events = nullptr; // it may stand in what epoll has just returned: it goes when that is done with
        load_.bump(~uint32_t{0});
        removed_ = true;
    }
    void watch_readable(Handle entry, bool on) { want(entry, EPOLLIN, on); }
    void watch_writable(Handle entry, bool on) { want(entry, EPOLLOUT, on); }

    // At that time of the monotonic clock, in ns, or soon after, `events.timer(id)` is called, once.
    void add_timer(int64_t when_ns, Events &events, int id) { timers_.emplace(when_ns, Timer{&events, id}); }
    void cancel_timers(const Events &events) {
        std::erase_if(timers_, [&](const auto &timer) { return timer.second.events == &events; });
    }

    uint32_t load() const { return load_.relaxed(); } // descriptors; any thread

    // Waits for at most `most_ns` (-1: for ever) until something happens, and tells of it.
    void turn(int64_t most_ns) {
        epoll_event found[64];
        const int count = epoll_wait(fd_, found, std::size(found), milliseconds(most_ns));
        if (count < 0 && errno != EINTR) fail_system("cannot wait for descriptors");
        for (int i = 0; i < count; ++i) {
            const auto *entry = static_cast<Entry *>(found[i].data.ptr);
            const uint32_t what = found[i].events;
            const bool broken = (what & (EPOLLERR | EPOLLHUP)) != 0; // who reads or writes learns of it
            if (entry->events != nullptr && (broken || (what & EPOLLOUT) != 0) && (entry->wanted & EPOLLOUT) != 0)
                entry->events->writable();
            if (entry->events != nullptr && (broken || (what & EPOLLIN) != 0) && (entry->wanted & EPOLLIN) != 0)
                entry->events->readable();
        }
        if (std::exchange(removed_, false)) std::erase_if(entries_, [](const auto &entry) { return entry->events == nullptr; });
        for (const int64_t now = monotonic_ns(); !timers_.empty() && timers_.begin()->first <= now;) {
            const Timer due = timers_.begin()->second;
            timers_.erase(timers_.begin());
            due.events->timer(due.id);
        }
    }

  private:
    struct Timer {
        Events *events;
        int id;
    };

    bool control(int what, Entry *entry) const {
        epoll_event event{};
        event.events = entry->wanted;
        event.data.ptr = entry;
        return epoll_ctl(fd_, what, entry->fd, &event) == 0;
    }
    void want(Handle entry, uint32_t what, bool on) {
        const uint32_t wanted = on ? entry->wanted | what : entry->wanted & ~what;
        if (wanted == entry->wanted) return;
        entry->wanted = wanted;
        if (!control(EPOLL_CTL_MOD, entry)) fail_system("cannot watch a descriptor");
    }
    int milliseconds(int64_t most_ns) const { // rounded up: a timer is never early
        if (!timers_.empty()) {
            const int64_t left = std::max<int64_t>(timers_.begin()->first - monotonic_ns(), 0);
            most_ns = most_ns < 0 ? left : std::min(most_ns, left);
        }
        return most_ns < 0 ? -1 : static_cast<int>(std::min<int64_t>((most_ns + 999'999) / 1'000'000, 60'000));
    }

    int fd_;
    std::vector<std::unique_ptr<Entry>> entries_;
    std::multimap<int64_t, Timer> timers_;
    Atomic<uint32_t> load_;
    bool removed_ = false;
};

} // namespace penstock
