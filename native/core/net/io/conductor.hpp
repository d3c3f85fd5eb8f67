// The conductor: one thread per process that runs the duty cycles of endpoints and publications while the program makes no call.
// It sleeps on their sockets and until the next deadline. It starts with the first agent and owns no Python object. A forked
// child starts its own.
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

// An endpoint or a publication, as the conductor runs it.
class Agent {
  public:
    struct Schedule {
        int64_t due = INT64_MAX; // of the next duty cycle
        bool done = false;       // there is none
    };
    virtual ~Agent() = default;
    virtual Schedule do_work(int64_t now) = 0;        // the conductor's thread
    virtual bool is_closing() const { return false; } // its handle has closed; it still has something to send

  private:
    friend class Conductor;
    int watched_ = -1; // the descriptor that epoll knows; the conductor's thread
};

class Conductor {
  public:
    using Clock = int64_t (*)();                    // monotonic, in ns
    static constexpr int64_t waiter_ns = 1'000'000; // an endpoint whose duty cycle a caller ran within this time is left to it
    static constexpr int64_t check_max_ns = 10'000'000; // between two checks of one that callers keep serving

    using Unsent = std::vector<std::pair<std::string, uint64_t>>; // channels, and bytes
    static constexpr size_t unsent_max = 64;

    // With `thread` false it starts no thread: a test calls cycle().
    explicit Conductor(Clock clock = monotonic_ns, bool thread = true)
        : clock_(clock), epoll_(epoll_create1(EPOLL_CLOEXEC)),
          timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)), started_(!thread) {
        if (epoll_.get() < 0 || timer_.get() < 0) fail_system("cannot make an epoll descriptor");
        control(wake_.fd(), EPOLLIN, EPOLL_CTL_ADD);
        control(timer_.get(), EPOLLIN, EPOLL_CTL_ADD);
    }

    static Conductor &instance() { return of_this_process<Conductor>(); }

    void add(std::shared_ptr<Agent> agent) {
        const std::lock_guard hold(mutex_);
        if (!started_) start();
        entries_.push_back({std::move(agent), 0});
        wake_.set();
    }
    void remove(const Agent *agent) {
        std::shared_ptr<Agent> gone; // freed without the lock
        const std::lock_guard hold(mutex_);
        for (Entry &entry : entries_)
            if (entry.agent.get() == agent) gone = std::move(entry.agent);
        std::erase_if(entries_, [](const Entry &entry) { return !entry.agent; });
        changed_.notify_all();
    }
    // Runs all agents now.
    void wake() { wake_.set(); }
    // Runs all agents after `ns` at the latest. Cheap while an earlier request is pending.
    void wake_within(int64_t ns) {
        if (!request_.make()) return;
        const itimerspec in{{0, 0}, {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)}};
        timerfd_settime(timer_.get(), 0, &in, nullptr);
    }
    // Waits until all closed publications have sent their rest, for `ns` at most. For the end of a process.
    bool finish(int64_t ns) {
        std::unique_lock hold(mutex_);
        return changed_.wait_for(hold, std::chrono::nanoseconds(ns), [&] {
            return std::none_of(entries_.begin(), entries_.end(), [](const Entry &entry) { return entry.agent->is_closing(); });
        });
    }
    // Reports bytes of a closed publication that were never sent: it has no handle left to report them.
    void report_unsent(const std::string &uri, uint64_t bytes) {
        const std::lock_guard hold(mutex_);
        if (unsent_.size() < unsent_max) unsent_.emplace_back(uri, bytes);
    }
    Unsent take_unsent() {
        const std::lock_guard hold(mutex_);
        return std::exchange(unsent_, {});
    }
    // From within do_work(): runs the agent again when `fd` becomes readable. The agent must keep `fd` open during the call.
    void watch(Agent &agent, int fd) {
        const uint32_t events = EPOLLIN | EPOLLONESHOT; // a socket that a caller empties must not wake this thread each time
        if (fd < 0 || (fd == agent.watched_ && control(fd, events, EPOLL_CTL_MOD))) return;
        if (!control(fd, events, EPOLL_CTL_ADD)) control(fd, events, EPOLL_CTL_MOD);
        agent.watched_ = fd;
    }
    uint64_t agents_run() const { return agents_run_.relaxed(); }

    // One turn of the loop: waits for an event, for `wait_ns` at most. Then it runs the agents that are due, or all of them after
    // an event. Returns when the next one is due.
    int64_t cycle(int64_t wait_ns) {
        const bool all = sleep(wait_ns);
        if (all) request_.clear();
        const int64_t now = clock_();
        std::vector<std::shared_ptr<Agent>> due;
        {
            const std::lock_guard hold(mutex_);
            for (const Entry &entry : entries_)
                if (all || entry.due <= now) due.push_back(entry.agent);
        }
        std::vector<Agent::Schedule> schedules;
        for (const std::shared_ptr<Agent> &agent : due) schedules.push_back(agent->do_work(now));
        agents_run_.increment(due.size());
        int64_t next = now + 1'000'000'000;
        const std::lock_guard hold(mutex_);
        for (size_t i = 0; i < due.size(); ++i) reschedule(due[i].get(), schedules[i]);
        for (const Entry &entry : entries_) next = std::min(next, entry.due);
        return next;
    }

  private:
    struct Entry {
        std::shared_ptr<Agent> agent;
        int64_t due;
    };

    void start() {
        start_background_thread("serves network channels", [this] {
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

    void reschedule(const Agent *agent, const Agent::Schedule &schedule) {
        const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry &e) { return e.agent.get() == agent; });
        if (found == entries_.end()) return;
        if (schedule.done) {
            entries_.erase(found);
            changed_.notify_all();
            return;
        }
        found->due = schedule.due;
    }

    const Clock clock_;
    const Descriptor epoll_, timer_;
    const WakeUp wake_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Entry> entries_;
    Unsent unsent_;
    bool started_;
    WakeRequest request_; // by wake_within()
    Atomic<uint64_t> agents_run_{};
};

} // namespace penstock
