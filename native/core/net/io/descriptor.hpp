// A descriptor that a forked child does not keep: the child closes it before it runs anything else. A socket that a child kept
// would hold its port after the parent's death, and would take the parent's datagrams.
#pragma once

#include "ground/error.hpp"

#include <mutex>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace penstock {

class Descriptor {
  public:
    explicit Descriptor(int fd = -1) : fd_(fd) { all().add(this); }
    ~Descriptor() {
        all().remove(this);
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int get() const { return fd_; } // -1 in a forked child

  private:
    struct All {
        All() {
            pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                           [] {
                               for (Descriptor *one = all().first; one != nullptr; one = one->next_) {
                                   if (one->fd_ >= 0) ::close(one->fd_);
                                   one->fd_ = -1;
                               }
                               all().mutex.unlock();
                           });
        }
        void add(Descriptor *one) {
            const std::lock_guard hold(mutex);
            one->next_ = first;
            if (first != nullptr) first->before_ = one;
            first = one;
        }
        void remove(Descriptor *one) {
            const std::lock_guard hold(mutex);
            (one->before_ == nullptr ? first : one->before_->next_) = one->next_;
            if (one->next_ != nullptr) one->next_->before_ = one->before_;
        }
        std::mutex mutex;
        Descriptor *first = nullptr;
    };
    static All &all() {
        static All *all = new All; // never destroyed: a descriptor may outlive static destruction
        return *all;
    }

    int fd_;
    Descriptor *next_ = nullptr, *before_ = nullptr;
};

// An eventfd that wakes a thread which sleeps on descriptors.
class WakeUp {
  public:
    WakeUp() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (fd_.get() < 0) fail_system("cannot make an eventfd");
    }
    int fd() const { return fd_.get(); }
    void set() const {
        const uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
    }
    void clear() const {
        uint64_t count;
        [[maybe_unused]] const auto got = ::read(fd_.get(), &count, sizeof count);
    }

  private:
    const Descriptor fd_;
};

} // namespace penstock
