// Shares the work on one socket between the program's threads and the conductor: which of them ran the last duty cycle, which
// sleep on the socket, and how a sleeper is woken.
#pragma once

#include "net/io/announcement.hpp"
#include "net/io/conductor.hpp"
#include "net/io/net_calls.hpp"
#include "net/io/socket_sleepers.hpp"

namespace penstock {

class SocketWaiter {
  public:
    static constexpr int64_t sleeper_check_ns = 100'000'000;

    explicit SocketWaiter(NetCalls &calls) : calls_(calls) {}

    void record_duty_cycle(int64_t now) { last_duty_cycle_ns_.relaxed(now); }

    // Call it before the last look before a sleep. If another thread finds something afterwards, it ends the sleep.
    void announce() { announced_.announce(me()); }
    // Wakes the other threads that sleep or are about to: something has arrived or changed.
    void wake_sleepers() {
        if (announced_.claim(me())) wake_.set();
    }
    void interrupt() {
        announced_.withdraw();
        wake_.set();
    }
    enum class Woken { time, socket, event }; // event: by wake_sleepers() or a signal
    // Sleeps until the socket is readable, wake_sleepers(), a signal, or the end of `ns`. The caller then runs a duty cycle, and
    // sleeps again or calls end_wait().
    Woken sleep(int socket, int64_t ns) {
        sleepers_.enter();
        pollfd descriptors[2] = {{wake_.fd(), POLLIN, 0}, {socket, POLLIN, 0}};
        const int ready = calls_.wait(descriptors, socket < 0 ? 1 : 2, std::max<int64_t>(ns, 0));
        const bool event = ready > 0 && (descriptors[0].revents & POLLIN) != 0;
        if (sleepers_.leave() && event) wake_.clear(); // by the last of several sleepers
        record_duty_cycle(monotonic_ns());
        return event || ready < 0 ? Woken::event : ready == 0 ? Woken::time : Woken::socket;
    }
    // The thread may not sleep again soon. If the conductor relied on it, the conductor looks at the socket again, after a delay:
    // a thread that answers a message usually sleeps again before that.
    void end_wait() {
        if (sleepers_.relied_on()) Conductor::instance().wake_within(Conductor::waiter_ns);
    }

    // Whether a caller ran a duty cycle within the last `ns`.
    bool ran_within(int64_t now, int64_t ns) const { return now - last_duty_cycle_ns_.relaxed() < ns; }
    // For the conductor: whether a thread sleeps on the socket, and so does the work.
    bool has_sleeper(int64_t now, Agent::Schedule &schedule) {
        if (!sleepers_.rely()) return false;
        schedule.due = now + sleeper_check_ns;
        return true;
    }
    // For the conductor: whether callers do the work, and when to look at them again.
    bool busy(int64_t now, Agent::Schedule &schedule) {
        if (has_sleeper(now, schedule)) return true;
        const bool is_recent = ran_within(now, Conductor::waiter_ns);
        if (is_recent) schedule.due = now + check_ns_;
        check_ns_ = is_recent ? std::min(2 * check_ns_, Conductor::check_max_ns) : Conductor::waiter_ns;
        return is_recent;
    }

  private:
    static uint64_t me() { // this thread
        static thread_local uint64_t here;
        return reinterpret_cast<uintptr_t>(&here);
    }

    NetCalls &calls_;
    const WakeUp wake_;
    int64_t check_ns_ = Conductor::waiter_ns; // between the conductor's looks while callers do the work; its thread
    Atomic<int64_t> last_duty_cycle_ns_{};    // only a hint: relaxed
    SocketSleepers sleepers_;
    Announcement announced_; // threads that mean to sleep
};

} // namespace penstock
