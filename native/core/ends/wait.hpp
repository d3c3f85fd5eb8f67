// The one wait of all handles, with a deadline. Its loop is wait_on (waiting.hpp); a wait sleeps on a `Target`. A `Host` says how
// a thread of its program sleeps and is interrupted: Python's is in bind/ground/wait.hpp.
#pragma once

#include "ends/watch_set.hpp"

#include "ground/clock.hpp"
#include "ground/liveness.hpp"
#include "ground/wait_note.hpp"
#include "ground/waiting.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace penstock {

// When a wait ends. timeout: nanoseconds from now, or for_ever.
class Deadline {
  public:
    explicit Deadline(int64_t timeout) : Deadline(timeout, monotonic_ns()) {}
    Deadline(int64_t timeout, int64_t now) : at_(timeout >= for_ever - now ? for_ever : now + timeout) {}
    int64_t at() const { return at_; }
    int64_t left(int64_t now) const { return at_ == for_ever ? for_ever : std::max<int64_t>(at_ - now, 0); }

  private:
    int64_t at_;
};

inline constexpr int64_t room_spin_ns = 50'000;      // about the time to sleep and be woken
inline constexpr int64_t alone_ns = 4000;            // a longer spin lets others have the interpreter and the core in between
inline constexpr int64_t first_slice_ns = 1'000'000; // where the dead may have to be looked for

// The kernel's number of this thread, asked for once per thread and fork.
inline uint32_t thread_number() {
    struct Known {
        uint32_t generation = ~0u, number = 0;
    };
    static thread_local Known known;
    if (known.generation != ForkGuard::generation())
        known = {ForkGuard::generation(), static_cast<uint32_t>(syscall(SYS_gettid))};
    return known.number;
}

// The words that a wait sleeps on. A target redefines some of these methods and adds sleep(ns), which ends at an event and after
// `ns` at the latest. All but sleep() and changed() run with the GIL held.
class Target {
  public:
    // An attempt failed: remembers what will change.
    void failed() {}
    // A cheap look between two attempts: whether the next one is worth it. It looks for spin_ns() before it sleeps.
    bool changed() const { return false; }
    int64_t spin_ns() { return 0; }
    // A spin has ended: whether it saw a change.
    void spun(bool) {}
    // Whether it looks as fast as it can. If not, about a microsecond lies between two looks: a writer keeps its cache line.
    static constexpr bool often = true;
    // Called now and then while spinning: receives what has arrived, where only callers do that. Returns how many pauses follow.
    int serve_socket() { return 64; }
    // The first sleep; each is twice as long as the one before, up to the longest.
    int64_t slice_ns() const { return slice_ns_max; }
    int64_t longest_ns() const { return slice_ns_max; }
    // Before an attempt: from now on an event ends the next sleep.
    void prepare() {}
    // After each sleep.
    void awake() {}
    // After each slice in which nothing arrived: repairs the state that dead participants left.
    void idle() {}
    // What the wait is for, as a look from outside reads it in the participant's slot, and where to note that. Before a sleep
    // that is a WaitNote; 0 when the wait is over.
    static constexpr WaitsFor what = WaitsFor::nothing;
    void note(uint64_t) {}
    // The reason of a wait that is still noted: for the error that ends it, and for the log after `waited_ns`.
    void explain(WaitsFor) {}
    void warn(int64_t waited_ns) { static_cast<void>(waited_ns); }
    // Whether the clock ends the wait. If not, a test does.
    bool timed() const { return true; }
    bool over() const { return false; }
};

// For waits without an event: looks again after a nap.
class NapTarget : public Target {
  public:
    int64_t slice_ns() const { return 50'000; }
    void sleep(int64_t ns) { platform::nap(std::min<int64_t>(ns, 1'000'000)); }
};

// How a thread of a C++ program waits: as it is.
struct PlainHost {
    static int64_t warn_after_ns() { return for_ever; } // a longer wait is logged once
    template <class Work> static void let_others_run(Work &&work) { work(); }
    static bool is_only_thread() { return false; }
    static void handle_signals() {} // throws where one is to end the wait
};

// Carries one wait from attempt to attempt. It spins first, in slices, so that Ctrl-C and other threads are served; an answer
// that comes at once is had without giving the interpreter away if no other thread has use for it. Then it sleeps. Only an
// attempt that is followed by a sleep is announced, as an announcement costs a system call.
template <class Host, class On> class Waiter {
  public:
    Waiter(On &target, int64_t timeout) : target_(target), timeout_(timeout) {}

    ~Waiter() {
        // In a forked child the word may still be its parent's.
        if (On::what != WaitsFor::nothing && noted_ && fork_ == ForkGuard::generation()) target_.note(0);
    }
    Waiter(const Waiter &) = delete;
    Waiter &operator=(const Waiter &) = delete;

    void prepare() {
        if (announced_) target_.prepare();
    }
    // Until the next attempt is worth it; false when the wait is over.
    bool sleep() {
        if (timeout_ == 0) return false;
        if (std::exchange(served_, false)) serve();
        target_.failed();
        if (!begun_) begin();
        if (spin()) return true;
        if (!announced_) {
            announced_ = true;
            return true;
        }
        const int64_t now = monotonic_ns();
        if (target_.over() || (target_.timed() && now >= deadline_.at())) {
            if constexpr (On::what != WaitsFor::nothing) {
                if (!noted_) note(); // it has only spun
                target_.explain(On::what);
            }
            return false;
        }
        if (noted_ && !warned_ && now - begun_ns_ >= Host::warn_after_ns()) [[unlikely]] {
            warned_ = true;
            target_.warn(now - begun_ns_);
        }
        if constexpr (On::what != WaitsFor::nothing) note();
        Host::let_others_run([&] { target_.sleep(target_.timed() ? std::min(slice_, deadline_.left(now)) : slice_); });
        target_.awake();
        slice_ = std::min(slice_ * 2, target_.longest_ns());
        announced_ = false;
        served_ = true;
        return true;
    }

  private:
    void begin() {
        begun_ = true;
        begun_ns_ = monotonic_ns();
        deadline_ = Deadline(timeout_, begun_ns_);
        const int64_t spin_ns = target_.spin_ns();
        spin_end_ = spin_ns == 0 ? 0 : std::min(Deadline(spin_ns, begun_ns_).at(), deadline_.at());
        alone_ = On::often && spin_ns > 0 && Host::is_only_thread();
        patient_ = spin_ns < for_ever;
        slice_ = target_.slice_ns();
    }
    // Again before each sleep: another thread of the same handle may have ended its own wait meanwhile.
    void note() {
        noted_ = true;
        fork_ = ForkGuard::generation();
        target_.note(WaitNote{On::what, timeout_ != for_ever, thread_number(), begun_ns_, Host::is_only_thread()}.word());
    }
    void serve() {
        Host::handle_signals();
        target_.idle();
    }
    // Whether a look found that an attempt is worth it, or a slice of spinning is over.
    bool spin() {
        if (spin_end_ == 0 || announced_) return false;
        if (std::exchange(alone_, false) && seen_by(std::min(begun_ns_ + alone_ns, spin_end_))) return spun(true);
        const int64_t now = monotonic_ns();
        if (now >= spin_end_) {
            spin_end_ = 0;
            return spun(false);
        }
        bool seen = false;
        Host::let_others_run([&] { seen = seen_by(std::min(spin_end_, now + slice_ns_max)); });
        if (seen) spun(true);
        served_ = true;
        return true;
    }
    bool spun(bool found) {
        target_.spun(found);
        return found;
    }
    bool seen_by(int64_t end) {
        for (;;) {
            const int pauses = target_.serve_socket();
            if (target_.changed()) return true;
            for (int i = 0; i < pauses && !(On::often && target_.changed()); ++i) spin_pause();
            const int64_t now = monotonic_ns();
            if (now >= end) return false;
            if (patient_ && now - begun_ns_ >= alone_ns) platform::yield(); // others may need this core more
        }
    }

    On &target_;
    const int64_t timeout_;
    Deadline deadline_{0, 0};
    int64_t begun_ns_ = 0, spin_end_ = 0, slice_ = 0;
    uint32_t fork_ = 0; // the generation of the note
    bool noted_ = false, warned_ = false;
    bool begun_ = false, announced_ = false, served_ = false, alone_ = false, patient_ = true;
};

// Waits until `attempt` returns true; false when `timeout` nanoseconds are over. With 0 it makes one attempt.
template <class Host, class On, class Attempt> bool wait_as(int64_t timeout, On &&target, Attempt &&attempt) {
    Waiter<Host, std::remove_reference_t<On>> waiter(target, timeout);
    return wait_on(waiter, attempt);
}

} // namespace penstock
