// How a caller and the keeper share the work on one socket: who turned last, who sleeps on it, and how a sleeper is woken.
#pragma once

#include "net/io/announcement.hpp"
#include "net/io/keeper.hpp"
#include "net/io/net_calls.hpp"
#include "net/io/socket_sleepers.hpp"

namespace penstock {

class Caller {
  public:
    static constexpr int64_t deep_check_ns = 100'000'000;

    explicit Caller(NetCalls &calls) : calls_(calls) {}

    void turned(int64_t now) { turned_ns_.relaxed(now); }

    // A caller means to sleep and looks once more. Another thread that turns from now on, and finds something, ends the sleep.
    void announce() { announced_.announce(me()); }
    // Something has come, or has changed: for threads other than this one.
    void tell() {
        if (announced_.claim(me())) wake_.set();
    }
    void interrupt() {
        announced_.withdraw();
        wake_.set();
    }
    enum class Woken { time, socket, told }; // told: by tell(), or a signal
    // Until the socket has something, tell(), a signal, or `ns` are over. The caller turns afterwards, and sleeps again or says
    // done().
    Woken sleep(int socket, int64_t ns) {
        sleepers_.enter();
        pollfd descriptors[2] = {{wake_.fd(), POLLIN, 0}, {socket, POLLIN, 0}};
        const int came = calls_.wait(descriptors, socket < 0 ? 1 : 2, std::max<int64_t>(ns, 0));
        const bool told = came > 0 && (descriptors[0].revents & POLLIN) != 0;
        if (sleepers_.leave() && told) wake_.clear(); // by the last of several sleepers
        turned(monotonic_ns());
        return told || came < 0 ? Woken::told : came == 0 ? Woken::time : Woken::socket;
    }
    // It may not come back soon. The keeper looks at the socket again if it relied on this caller: not at once, since a caller
    // that answers a message sleeps again before that.
    void done() {
        if (sleepers_.relied_on()) Keeper::instance().come_in(Keeper::caller_ns);
    }

    // A caller turned less than so long ago.
    bool turned_within(int64_t now, int64_t ns) const { return now - turned_ns_.relaxed() < ns; }
    // For the keeper: a caller sleeps on the socket, and does the work.
    bool sleeps(int64_t now, Kept::Visit &visit) {
        if (!sleepers_.rely()) return false;
        visit.due = now + deep_check_ns;
        return true;
    }
    // For the keeper: whether callers do the work, and when to look at them again.
    bool busy(int64_t now, Kept::Visit &visit) {
        if (sleeps(now, visit)) return true;
        const bool turned = turned_within(now, Keeper::caller_ns);
        if (turned) visit.due = now + look_ns_;
        look_ns_ = turned ? std::min(2 * look_ns_, Keeper::look_max_ns) : Keeper::caller_ns;
        return turned;
    }

  private:
    static uint64_t me() { // this thread
        static thread_local uint64_t here;
        return reinterpret_cast<uintptr_t>(&here);
    }

    NetCalls &calls_;
    const WakeUp wake_;
    int64_t look_ns_ = Keeper::caller_ns; // between the keeper's looks at a caller that goes on; the keeper's thread
    Atomic<int64_t> turned_ns_{};         // only a hint: relaxed
    SocketSleepers sleepers_;
    Announcement announced_; // threads that mean to sleep
};

} // namespace penstock
