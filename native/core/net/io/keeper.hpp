// The keeper: one thread per process, asleep on the sockets of endpoints and publications that no caller turns, and on the next
// deadline. It starts with the first of them, owns no Python object, and does nothing in a forked child: a child starts afresh.
#pragma once

#include "ground/background_thread.hpp"
#include "ground/clock.hpp"
#include "net/io/descriptor.hpp"
#include "net/io/wake_request.hpp"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace penstock {

// Something that has to be turned when no caller does.
class Kept {
  public:
    struct Visit {
        int64_t due = INT64_MAX; // when to come again
        bool done = false;       // never again
    };
    virtual ~Kept() = default;
    virtual Visit keep(int64_t now) = 0;           // the keeper's thread
    virtual bool leaving() const { return false; } // its handle has closed; it still has something to send

  private:
    friend class Keeper;
    int watched_ = -1; // the descriptor that epoll knows; the keeper's thread
};

class Keeper {
  public:
    using Clock = int64_t (*)();                       // monotonic, in ns
    static constexpr int64_t caller_ns = 1'000'000;    // a caller that turned so lately is left alone
    static constexpr int64_t look_max_ns = 10'000'000; // between two looks at one that goes on

    using Unsent = std::vector<std::pair<std::string, uint64_t>>; // channels, and bytes
    static constexpr size_t unsent_max = 64;

    // With `thread` false it starts no thread: a test calls its cycles.
    explicit Keeper(Clock clock = monotonic_ns, bool thread = true)
        : clock_(clock), epoll_(epoll_create1(EPOLL_CLOEXEC)),
          timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)), started_(!thread) {
        if (epoll_.get() < 0 || timer_.get() < 0) fail_system("cannot make an epoll descriptor");
        control(wake_.fd(), EPOLLIN, EPOLL_CTL_ADD);
        control(timer_.get(), EPOLLIN, EPOLL_CTL_ADD);
    }

    static Keeper &instance() { return of_this_process<Keeper>(); }

    void add(std::shared_ptr<Kept> kept) {
        const std::lock_guard hold(mutex_);
        if (!started_) start();
        entries_.push_back({std::move(kept), 0});
        wake_.set();
    }
    void remove(const Kept *kept) {
        std::shared_ptr<Kept> gone; // freed without the lock
        const std::lock_guard hold(mutex_);
        for (Entry &entry : entries_)
            if (entry.kept.get() == kept) gone = std::move(entry.kept);
        std::erase_if(entries_, [](const Entry &entry) { return !entry.kept; });
        changed_.notify_all();
    }
    // It looks at all of them again, now.
    void wake() { wake_.set(); }
    // It looks again in so long, at the latest. Cheap while it is said already.
    void come_in(int64_t ns) {
        if (!request_.make()) return;
        const itimerspec in{{0, 0}, {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)}};
        timerfd_settime(timer_.get(), 0, &in, nullptr);
    }
    // Waits until everything that has closed has sent what it had to; at most so long. For the end of a process.
    bool finish(int64_t ns) {
        std::unique_lock hold(mutex_);
        return changed_.wait_for(hold, std::chrono::nanoseconds(ns), [&] {
            return std::none_of(entries_.begin(), entries_.end(), [](const Entry &entry) { return entry.kept->leaving(); });
        });
    }
    // A closed publication has no handle any more that could tell of it: these bytes of its stream were never sent.
    void gave_up(const std::string &uri, uint64_t bytes) {
        const std::lock_guard hold(mutex_);
        if (unsent_.size() < unsent_max) unsent_.emplace_back(uri, bytes);
    }
    Unsent take_unsent() {
        const std::lock_guard hold(mutex_);
        return std::exchange(unsent_, {});
    }
    // From within keep(): comes again as soon as `fd` has something. The caller sees to it that nobody closes it meanwhile.
    void watch(Kept &kept, int fd) {
        const uint32_t events = EPOLLIN | EPOLLONESHOT; // a socket that a caller empties must not wake this thread each time
        if (fd < 0 || (fd == kept.watched_ && control(fd, events, EPOLL_CTL_MOD))) return;
        if (!control(fd, events, EPOLL_CTL_ADD)) control(fd, events, EPOLL_CTL_MOD);
        kept.watched_ = fd;
    }
    uint64_t visits() const { return visits_.relaxed(); }

    // The duty cycle: waits for an event for at most so long, then visits those whose time has come by the clock, or all of them
    // after an event. Returns when the next one is due.
    int64_t cycle(int64_t wait_ns) {
        const bool all = sleep(wait_ns);
        if (all) request_.clear();
        const int64_t now = clock_();
        std::vector<std::shared_ptr<Kept>> due;
        {
            const std::lock_guard hold(mutex_);
            for (const Entry &entry : entries_)
                if (all || entry.due <= now) due.push_back(entry.kept);
        }
        std::vector<Kept::Visit> said;
        for (const std::shared_ptr<Kept> &kept : due) said.push_back(kept->keep(now));
        visits_.increment(due.size());
        int64_t next = now + 1'000'000'000;
        const std::lock_guard hold(mutex_);
        for (size_t i = 0; i < due.size(); ++i) note(due[i].get(), said[i]);
        for (const Entry &entry : entries_) next = std::min(next, entry.due);
        return next;
    }

  private:
    struct Entry {
        std::shared_ptr<Kept> kept;
        int64_t due;
    };

    void start() {
        start_background_thread("keeps network channels", [this] {
            for (int64_t next = 0;;) next = cycle(std::max<int64_t>(next - clock_(), 0));
        });
        started_ = true;
    }

    bool control(int fd, uint32_t events, int how) {
        epoll_event event{};
        event.events = events;
        event.data.fd = fd;
        return epoll_ctl(epoll_.get(), how, fd, &event) == 0;
    }
    // Whether there was an event.
    bool sleep(int64_t ns) {
        epoll_event events[16];
        int count;
        const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
        // As a system call: glibc has the function from 2.35 on, and wheels are for 2.34.
        count = static_cast<int>(syscall(SYS_epoll_pwait2, epoll_.get(), events, 16, &time, nullptr, 0));
        if (count < 0 && errno == ENOSYS) // before Linux 5.11: in milliseconds
            count = epoll_wait(epoll_.get(), events, 16, static_cast<int>(std::min<int64_t>(ns / 1'000'000 + 1, 1000)));
        for (int i = 0; i < count; ++i) {
            const int fd = events[i].data.fd;
            if (fd == wake_.fd()) wake_.clear();
            if (fd != timer_.get()) continue;
            uint64_t times;
            [[maybe_unused]] const auto got = ::read(timer_.get(), &times, sizeof times);
        }
        return count > 0;
    }

    void note(const Kept *kept, const Kept::Visit &said) {
        const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry &e) { return e.kept.get() == kept; });
        if (found == entries_.end()) return;
        if (said.done) {
            entries_.erase(found);
            changed_.notify_all();
            return;
        }
        found->due = said.due;
    }

    const Clock clock_;
    const Descriptor epoll_, timer_;
    const WakeUp wake_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Entry> entries_;
    Unsent unsent_;
    bool started_;
    WakeRequest request_; // by come_in()
    Atomic<uint64_t> visits_{};
};

} // namespace penstock
