// Liveness: a participant holds an open-file-description lock on one byte of the channel's file, and the kernel releases it
// when the process ends, however it ends. Knows descriptors and fork; does not know a slot's content.
#pragma once

#ifdef PENSTOCK_LIVENESS
#include PENSTOCK_LIVENESS
#else

#include "ground/error.hpp"

#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <pthread.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace penstock {

class ByteLocks;

// A forked child shares its parent's open file descriptions and so would keep a dead parent's locks alive. The child
// closes them before it runs anything else; each handle takes a slot of its own when it is next used.
class ForkGuard {
  public:
    static ForkGuard &instance() {
        static ForkGuard *guard = new ForkGuard; // never destroyed: handles may outlive static destruction
        return *guard;
    }
    void add(ByteLocks *locks);
    void replace(ByteLocks *locks, ByteLocks *by);
    void remove(ByteLocks *locks);
    static uint32_t generation() { return generation_; }

  private:
    ForkGuard() {
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); }, [] { instance().in_child(); });
    }
    void in_child();

    static inline uint32_t generation_ = 0;
    std::mutex mutex_;
    ByteLocks *first_ = nullptr;
};

inline struct flock whole_byte(uint64_t byte, short type) {
    struct flock range = {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    range.l_start = static_cast<off_t>(byte);
    range.l_len = 1;
    return range;
}

// The kernel's lock on this byte of the file: F_UNLCK for nobody's, F_RDLCK for that of a member, which has entered the byte,
// F_WRLCK for that of a process that takes the byte or clears what is there. By F_OFD_GETLK the locks of `fd` itself are not
// seen; by F_GETLK they are.
inline short lock_on(int fd, int command, uint64_t byte) {
    struct flock range = whole_byte(byte, F_WRLCK);
    return fcntl(fd, command, &range) != 0 ? short{F_RDLCK} : range.l_type;
}
// For looks from outside. A handle looks at its own file through the description that holds its own lock.
inline bool holds_any(int fd, uint64_t byte) { return lock_on(fd, F_GETLK, byte) != F_UNLCK; }
inline bool holds_member(int fd, uint64_t byte) { return lock_on(fd, F_GETLK, byte) == F_RDLCK; }

// The kernel locks of one participant on bytes of its channel's file. They end with the process.
class ByteLocks {
  public:
    // Opens the file of `fd` once more. The lock must be on a description that no mapping refers to: a forked child
    // inherits mappings, and would keep the lock of a dead parent alive by them.
    // path: a file's, or a channel's URI and its file's path: `log:imu (/dev/shm/penstock-0/imu.log)`.
    ByteLocks(int fd, std::string path) : fd_(reopen(fd, path)), path_(std::move(path)), place_(uri_of(path_)) {
        struct stat about;
        if (fstat(fd_, &about) != 0) fail_system("cannot read " + path_);
        device_ = about.st_dev;
        inode_ = about.st_ino;
        ForkGuard::instance().add(this);
    }
    ~ByteLocks() {
        ForkGuard::instance().remove(this);
        leave();
    }
    ByteLocks(const ByteLocks &) = delete;
    ByteLocks &operator=(const ByteLocks &) = delete;
    // Takes over the other's description with the locks on it, for the same bytes of the same file.
    ByteLocks(ByteLocks &&other) : path_(other.path_), place_(other.place_), device_(other.device_), inode_(other.inode_) {
        ForkGuard::instance().replace(&other, this);
    }
    // The same file under a separate open file description, for a mapping; the caller closes it.
    int again() const { return reopen(fd_, path_); }

    bool try_take(uint64_t byte) { return lock(byte, F_WRLCK) == 0; }
    void give_back(uint64_t byte) { lock(byte, F_UNLCK); }
    // The byte's owner is a member from now on. Its lock becomes a shared one, without a gap: no other process gets the byte. A
    // count tells it from the lock of a process that takes the byte, or clears a dead owner's slot.
    void enter(uint64_t byte) {
        if (lock(byte, F_RDLCK) != 0) fail_system(place_ + ": cannot lock a slot");
    }
    int descriptor() const { return fd_; } // for looks at the file; -1 once it is closed
    // Whether another open file description holds the byte. One's own lock is not seen.
    bool taken_by_other(uint64_t byte) const { return lock_on(fd_, F_OFD_GETLK, byte) != F_UNLCK; }
    // Whether another description has entered the byte.
    bool member_at(uint64_t byte) const { return lock_on(fd_, F_OFD_GETLK, byte) == F_RDLCK; }
    const std::string &path() const { return path_; }
    const std::string &where() const { return place_; }
    void leave() {
        if (fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    // After a fork: a new open file description of the same file, or an error that says that it is gone.
    void return_after_fork() {
        leave();
        const int fd = file_of(path_)[0] == '/' ? open_path(path_) : open_inherited();
        struct stat about;
        if (fstat(fd, &about) != 0 || about.st_dev != device_ || about.st_ino != inode_) {
            ::close(fd);
            throw Error(Code::closed, place_ + " was replaced by another channel since the fork");
        }
        fd_ = fd;
    }

  private:
    // A channel without a file: its memory is open under another descriptor, which the child has from its parent.
    int open_inherited() const {
        std::error_code error;
        for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
            struct stat about;
            if (stat(entry.path().c_str(), &about) == 0 && about.st_dev == device_ && about.st_ino == inode_)
                return reopen(std::stoi(entry.path().filename()), path_);
        }
        throw Error(Code::closed, place_ + " was removed before the fork: a forked child cannot open it again");
    }
    friend class ForkGuard;
    // A URI has no space, and a path begins with a slash: so this finds where the one ends and the other begins.
    static std::string uri_of(const std::string &path) { return path.substr(0, path[0] == '/' ? path.size() : path.find(" (")); }
    static std::string file_of(const std::string &path) {
        const size_t uri = uri_of(path).size();
        return uri == path.size() ? path : path.substr(uri + 2, path.size() - uri - 3);
    }
    static int open_path(const std::string &path) {
        const int fd = ::open(file_of(path).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0) return fd;
        const int number = errno;
        const char *advice =
            number == EACCES ? ": a forked child that changes its user must use each handle once before that" : "";
        fail_system("cannot open " + path + " again" + advice, number);
    }
    static int reopen(int fd, const std::string &path) {
        const std::string same = "/proc/self/fd/" + std::to_string(fd);
        const int again = ::open(same.c_str(), O_RDWR | O_CLOEXEC);
        return again >= 0 ? again : open_path(path); // without /proc
    }
    int lock(uint64_t byte, short type) {
        struct flock range = whole_byte(byte, type);
        return fcntl(fd_, F_OFD_SETLK, &range);
    }

    int fd_ = -1;
    std::string path_, place_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    ByteLocks *next_ = nullptr, **link_ = nullptr;
};

inline void ForkGuard::add(ByteLocks *locks) {
    const std::lock_guard hold(mutex_);
    locks->next_ = first_;
    locks->link_ = &first_;
    if (first_ != nullptr) first_->link_ = &locks->next_;
    first_ = locks;
}

inline void ForkGuard::replace(ByteLocks *locks,
                               ByteLocks *by) { // never without a place in the list: a fork may come at any time
    add(by);
    const std::lock_guard hold(mutex_);
    by->fd_ = std::exchange(locks->fd_, -1);
}

inline void ForkGuard::remove(ByteLocks *locks) {
    const std::lock_guard hold(mutex_);
    *locks->link_ = locks->next_;
    if (locks->next_ != nullptr) locks->next_->link_ = locks->link_;
}

inline void ForkGuard::in_child() {
    ++generation_;
    for (ByteLocks *locks = first_; locks != nullptr; locks = locks->next_) locks->leave();
    mutex_.unlock();
}

} // namespace penstock

#endif
