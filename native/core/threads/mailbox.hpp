// Many writers, one reader, within a process. Writers take turns under a lock at a lock-free pipe, which costs the reader
// nothing; a descriptor is signalled only when the pipe says that the reader sleeps. After ZeroMQ's mailbox and signaler.
// docs/design/mailbox.md.
#pragma once

#include "ground/error.hpp"
#include "threads/ypipe.hpp"

#include <cerrno>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace penstock {

// A flag that one thread raises and another waits for, as a descriptor.
class Signaler {
  public:
    Signaler() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (fd_ < 0) fail_system("cannot make an eventfd");
    }
    ~Signaler() { ::close(fd_); }
    Signaler(const Signaler &) = delete;
    Signaler &operator=(const Signaler &) = delete;
    int fd() const { return fd_; }
    void raise() {
        const uint64_t one = 1;
        while (::write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
        }
    }
    void lower() {
        uint64_t count;
        while (::read(fd_, &count, sizeof count) < 0 && errno == EINTR) {
        }
    }
    // Whether it is up within that many milliseconds (-1: for ever). A signal handler ends the wait early.
    bool wait(int ms) const {
        pollfd entry{fd_, POLLIN, 0};
        return ::poll(&entry, 1, ms) > 0;
    }

  private:
    int fd_;
};

// The lock of a mailbox with one writer.
struct NoLock {
    void lock() {}
    void unlock() {}
};

template <class T, class Lock = std::mutex, size_t N = 64> class Mailbox {
  public:
    Mailbox() { pipe_.check_read(); } // the reader sleeps: the first message signals

    // Any thread, or with NoLock one. Never blocks for longer than another's write.
    void send(T value) {
        bool awake;
        {
            const std::lock_guard hold(lock_);
            pipe_.write(std::move(value));
            awake = pipe_.flush();
        }
        if (!awake) signaler_.raise();
    }
    // The reader: one thread at a time. Whether there was a message.
    bool try_recv(T &value) {
        if (!take(value)) return false;
        if (watched_) show();
        return true;
    }
    // The two halves of waiting: the first may be called without the lock that guards the reader.
    bool wait(int ms) const { return signaler_.wait(ms); }
    void woken() {
        signaler_.lower();
        up_ = false;
    }
    void interrupt() { signaler_.raise(); } // any thread: a waiting reader looks again
    // Readable while there are messages. From now on each message taken costs a look at the next.
    int fd() {
        if (!watched_) {
            watched_ = true;
            show();
        }
        return signaler_.fd();
    }

  private:
    bool take(T &value) {
        if (pipe_.read(value)) return true;
        if (!watched_) return false;
        // The reader sleeps as the pipe sees it: the next message raises the signal. One that was raised before is taken down;
        // if it was raised this moment, its message is there already, and found by looking once more.
        woken();
        return pipe_.read(value);
    }
    void show() {
        if (up_ || !pipe_.check_read()) return;
        signaler_.raise();
        up_ = true;
    }

    YPipe<T, N> pipe_;
    Signaler signaler_;
    Lock lock_;
    bool watched_ = false, up_ = false; // the program has the descriptor; the reader raised it itself. Both are the reader's
};

} // namespace penstock
