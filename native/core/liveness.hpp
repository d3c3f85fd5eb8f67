// Who is alive: a participant holds an open-file-description lock on one byte of the channel's file, and the kernel
// releases it when the process ends in whatever way. Knows descriptors and fork; knows nothing of what a slot contains.
#pragma once

#ifdef PENSTOCK_LIVENESS
#include PENSTOCK_LIVENESS
#else

#include "error.hpp"

#include <cstdint>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace penstock {

class Seat;

// A forked child shares its parent's open file descriptions and so would keep a dead parent's locks alive. The child
// closes them before it runs anything else; each handle takes a seat of its own when it is next used.
class ForkGuard {
  public:
    static ForkGuard &instance() {
        static ForkGuard *guard = new ForkGuard; // never destroyed: handles may outlive static destruction
        return *guard;
    }
    void add(Seat *seat);
    void remove(Seat *seat);
    static uint32_t generation() { return generation_; }

  private:
    ForkGuard() {
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().in_child(); });
    }
    void in_child();

    static inline uint32_t generation_ = 0;
    std::mutex mutex_;
    Seat *first_ = nullptr;
};

class Seat {
  public:
    // Opens the file of `fd` once more. The lock must be on a description that no mapping refers to: a forked child
    // inherits mappings, and would keep the lock of a dead parent alive by them.
    Seat(int fd, std::string path) : fd_(reopen(fd, path)), path_(std::move(path)) {
        struct stat about;
        if (fstat(fd_, &about) != 0) fail_system("cannot read " + path_);
        device_ = about.st_dev;
        inode_ = about.st_ino;
        ForkGuard::instance().add(this);
    }
    ~Seat() {
        ForkGuard::instance().remove(this);
        leave();
    }
    Seat(const Seat &) = delete;
    Seat &operator=(const Seat &) = delete;

    bool try_take(uint64_t byte) { return lock(byte, F_WRLCK) == 0; }
    void give_back(uint64_t byte) { lock(byte, F_UNLCK); }
    // Whether another open file description holds the byte. One's own lock is not seen.
    bool taken_by_other(uint64_t byte) {
        struct flock range = whole(byte, F_WRLCK);
        if (fcntl(fd_, F_OFD_GETLK, &range) != 0) return true;
        return range.l_type != F_UNLCK;
    }
    bool seated() const { return fd_ >= 0; }
    const std::string &path() const { return path_; }
    void leave() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    // After a fork: a new open file description of the same file, or an error that says that it is gone.
    void return_after_fork() {
        leave();
        const int fd = open_path(path_);
        struct stat about;
        if (fstat(fd, &about) != 0 || about.st_dev != device_ || about.st_ino != inode_) {
            ::close(fd);
            throw Error(Code::closed, path_ + " was replaced by another channel since the fork");
        }
        fd_ = fd;
    }

  private:
    friend class ForkGuard;
    static struct flock whole(uint64_t byte, short type) {
        struct flock range = {};
        range.l_type = type;
        range.l_whence = SEEK_SET;
        range.l_start = static_cast<off_t>(byte);
        range.l_len = 1;
        return range;
    }
    static int open_path(const std::string &path) {
        const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) fail_system("cannot open " + path + " again");
        return fd;
    }
    static int reopen(int fd, const std::string &path) {
        const std::string same = "/proc/self/fd/" + std::to_string(fd);
        const int again = ::open(same.c_str(), O_RDWR | O_CLOEXEC);
        return again >= 0 ? again : open_path(path); // without /proc
    }
    int lock(uint64_t byte, short type) {
        struct flock range = whole(byte, type);
        return fcntl(fd_, F_OFD_SETLK, &range);
    }

    int fd_;
    std::string path_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    Seat *next_ = nullptr, **link_ = nullptr;
};

inline void ForkGuard::add(Seat *seat) {
    const std::lock_guard hold(mutex_);
    seat->next_ = first_;
    seat->link_ = &first_;
    if (first_ != nullptr) first_->link_ = &seat->next_;
    first_ = seat;
}

inline void ForkGuard::remove(Seat *seat) {
    const std::lock_guard hold(mutex_);
    *seat->link_ = seat->next_;
    if (seat->next_ != nullptr) seat->next_->link_ = seat->link_;
}

inline void ForkGuard::in_child() {
    ++generation_;
    for (Seat *seat = first_; seat != nullptr; seat = seat->next_) seat->leave();
    mutex_.unlock();
}

} // namespace penstock

#endif
