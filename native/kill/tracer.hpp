// A child that another process walks through one operation, instruction by instruction, and may kill at any of them.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

namespace penstock::kill_room {

class Victim {
  public:
    // Runs `prepare`, then stands still before `act`. Both run in the child, which then ends.
    Victim(const std::function<void()> &prepare, const std::function<void()> &act) : pid_(fork()) {
        if (pid_ < 0) die("fork");
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(99);
            try {
                prepare();
                raise(SIGSTOP);
                act();
                raise(SIGSTOP);
            } catch (const std::exception &error) {
                std::fprintf(stderr, "the victim threw: %s\n", error.what());
                _exit(98);
            }
            _exit(0);
        }
        wait_stop();
        if (!WIFSTOPPED(status_) || WSTOPSIG(status_) != SIGSTOP) {
            std::fprintf(stderr, "the victim did not come to its operation (status %x)\n", status_);
            std::exit(3);
        }
    }
    ~Victim() { end(); }
    Victim(const Victim &) = delete;
    Victim &operator=(const Victim &) = delete;

    // One instruction further; false when the operation is over.
    bool step() {
        if (over_) return false;
        if (ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) != 0) die("ptrace");
        wait_stop();
        if (WIFSTOPPED(status_) && WSTOPSIG(status_) == SIGTRAP) return true;
        over_ = true;
        if (WIFSTOPPED(status_) && WSTOPSIG(status_) == SIGSTOP) return false;
        std::fprintf(stderr, "the victim ended within its operation (status %x)\n", status_);
        std::exit(3);
    }
    // Where the next instruction lies.
    uint64_t place() const {
#if defined(__x86_64__)
        return static_cast<uint64_t>(ptrace(PTRACE_PEEKUSER, pid_, offsetof(struct user, regs.rip), nullptr));
#else
        return 0;
#endif
    }
    // Runs until it stands before the instruction at `place` for the `times`-th time, or the operation is over. Much
    // faster than stepping: a debug register stops it. False where that cannot be had.
    bool run_to(uint64_t place, uint64_t times) {
#if defined(__x86_64__)
        for (;;) {
            if (!debug_register(0, place) || !debug_register(7, 1)) return false;
            if (ptrace(PTRACE_CONT, pid_, nullptr, nullptr) != 0) die("ptrace");
            wait_stop();
            over_ = !WIFSTOPPED(status_) || WSTOPSIG(status_) != SIGTRAP;
            if (over_ || --times == 0) return true;
            if (!debug_register(7, 0)) return false;
            if (!step()) return true;
        }
#else
        (void)place, (void)times;
        return false;
#endif
    }
    // kill -9, and nothing of it is left when this returns.
    void end() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        while (waitpid(pid_, &status_, 0) == pid_ && !WIFEXITED(status_) && !WIFSIGNALED(status_)) {
        }
        pid_ = 0;
    }

  private:
    [[noreturn]] static void die(const char *what) {
        std::perror(what);
        std::exit(3);
    }
    void wait_stop() {
        while (waitpid(pid_, &status_, 0) < 0)
            if (errno != EINTR) die("waitpid");
    }
#if defined(__x86_64__)
    bool debug_register(int number, uint64_t value) {
        const size_t at = offsetof(struct user, u_debugreg) + static_cast<size_t>(number) * sizeof(uint64_t);
        return ptrace(PTRACE_POKEUSER, pid_, at, value) == 0;
    }
#endif
    pid_t pid_;
    int status_ = 0;
    bool over_ = false;
};

} // namespace penstock::kill_room
