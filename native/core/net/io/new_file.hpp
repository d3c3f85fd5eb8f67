// A new file of shared memory: made without a name, allocated whole, filled, and only then named. The folder says whether a group
// shares it: a thread that serves a socket must not read the environment.
#pragma once

#include "ground/files/mapping.hpp"
#include "ground/files/shared_folder.hpp"

#include <cstdint>
#include <fcntl.h>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>

namespace penstock {

#ifndef PENSTOCK_FILES

// The number of an open descriptor; closed by its owner.
class OpenFile {
  public:
    explicit OpenFile(int fd) : fd_(fd) {}
    OpenFile(OpenFile &&other) : fd_(other.fd_) { other.fd_ = -1; }
    ~OpenFile() {
        if (fd_ >= 0) ::close(fd_);
    }
    OpenFile &operator=(const OpenFile &) = delete;
    int fd() const { return fd_; }

  private:
    int fd_;
};

inline constexpr const char *unnamed_suffix = ".new";

// A new file without a name where the kernel can: no other process can remove it, or give its name to another file. Else under
// `unnamed`.
class UnnamedFile {
  public:
    explicit UnnamedFile(const std::string &path) : unnamed_(path + unnamed_suffix), file_(opened()) {}
    ~UnnamedFile() {
        if (!anonymous_) ::unlink(unnamed_.c_str());
    }
    UnnamedFile(const UnnamedFile &) = delete;
    UnnamedFile &operator=(const UnnamedFile &) = delete;

    int fd() const { return file_.fd(); }
    // Throws if there is such a file.
    OpenFile named(const std::string &path) {
        const std::string from = anonymous_ ? descriptors + std::to_string(file_.fd()) : unnamed_;
        if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) fail_system("cannot make " + path);
        return std::move(file_);
    }

  private:
    static constexpr const char *descriptors = "/proc/self/fd/";

    OpenFile opened() {
        const std::string folder = unnamed_.substr(0, unnamed_.rfind('/') + 1) + ".";
        OpenFile file = made(folder);
        share_file(file.fd(), AT_FDCWD, folder.c_str());
        return file;
    }
    OpenFile made(const std::string &folder) {
        if (::access(descriptors, X_OK) == 0) {
            OpenFile file(::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
            anonymous_ = file.fd() >= 0;
            if (anonymous_) return file;
        }
        ::unlink(unnamed_.c_str()); // of a process that was killed here
        OpenFile file(::open(unnamed_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (file.fd() < 0) fail_system("cannot make " + unnamed_);
        return file;
    }

    std::string unnamed_;
    bool anonymous_ = false;
    OpenFile file_;
};

// `fill(fd)` fills it before it has its name. Throws if there is such a file, or no memory.
template <class Fill> OpenFile make_file(const std::string &path, uint64_t size, Fill &&fill) {
    UnnamedFile file(path);
    int failed;
    do failed = posix_fallocate(file.fd(), 0, static_cast<off_t>(size));
    while (failed == EINTR);
    if (failed != 0) fail_system("cannot allocate " + std::to_string(size) + " bytes for " + path, failed);
    fill(file.fd());
    return file.named(path);
}
inline void remove_file(const std::string &path) { ::unlink(path.c_str()); }
// The descriptor is -1 where there is none, and errno says why.
inline OpenFile open_file(const std::string &path) { return OpenFile(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)); }

#endif

// 64 random bits for sessions, receivers and proofs. Not secret, not guessable from outside.
class NetRandom {
  public:
    uint64_t operator()() { return engine_(); }

  private:
    static std::mt19937_64 seeded() {
        std::random_device device;
        std::seed_seq seed{device(), device(), device(), device(), device(), device()};
        return std::mt19937_64(seed);
    }
    std::mt19937_64 engine_ = seeded();
};

} // namespace penstock
