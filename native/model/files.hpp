// Files under the checker: a few windows of the shared bytes, and a folder that says which of them have a name. Names are given
// and taken as the kernel does, at once for everybody. Files outside the windows are mapped as ever.
#pragma once

#include "ground/atomics.hpp"
#include "ground/error.hpp"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace penstock {

namespace model {

[[noreturn]] void fail(const std::string &what);

// One folder for all executions; its stage makes the files.
struct Folder {
    static constexpr int first_fd = 1 << 20, windows_max = 4;
    uint8_t *bytes[windows_max] = {};
    uint64_t size[windows_max] = {};
    Atomic<uint32_t> *named = nullptr; // a word for each window
    bool made[windows_max] = {};

    static bool has(int fd) { return fd >= first_fd; }
    static int fd_of(int window) { return first_fd + window; }
    static int window_of(int fd) { return fd - first_fd; }
    // FILE.NUMBER.image; each number has a window of its own.
    static int number_in(const std::string &path) { return std::atoi(path.c_str() + path.find('.') + 1); }
};
inline Folder folder;

} // namespace model

class Mapping {
  public:
    Mapping(int fd, uint64_t size, bool writable) : size_(size), ours_(!model::Folder::has(fd)) {
        if (!ours_) {
            bytes_ = model::folder.bytes[model::Folder::window_of(fd)];
            return;
        }
        void *at = mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) fail_system("cannot map " + std::to_string(size) + " bytes");
        bytes_ = static_cast<uint8_t *>(at);
    }
    ~Mapping() {
        if (ours_) munmap(bytes_, size_);
    }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    void protect(uint64_t, uint64_t) {} // one mapping serves every participant here
    bool protects() const { return false; }
    bool populate() const { return true; }
    uint8_t *bytes() const { return bytes_; }
    uint64_t size() const { return size_; }

  private:
    uint64_t size_;
    bool ours_;
    uint8_t *bytes_;
};

inline uint64_t size_of_file(int fd) {
    if (model::Folder::has(fd)) return model::folder.size[model::Folder::window_of(fd)];
    struct stat about;
    if (fstat(fd, &about) != 0) fail_system("cannot read the size of a file");
    return static_cast<uint64_t>(about.st_size);
}

class OpenFile {
  public:
    explicit OpenFile(int fd) : fd_(fd) {}
    OpenFile(OpenFile &&other) : fd_(other.fd_) {}
    OpenFile &operator=(const OpenFile &) = delete;
    int fd() const { return fd_; }

  private:
    const int fd_;
};

inline constexpr const char *unnamed_suffix = ".new";

template <class Fill> OpenFile make_file(const std::string &path, uint64_t size, Fill &&fill) {
    model::Folder &folder = model::folder;
    const int window = model::Folder::number_in(path);
    if (window >= model::Folder::windows_max || folder.made[window] || size != folder.size[window])
        model::fail("a file of another size, or one too many: " + path);
    folder.made[window] = true;
    const int fd = model::Folder::fd_of(window);
    fill(fd);
    folder.named[window].add(1);
    return OpenFile(fd);
}
inline OpenFile open_file(const std::string &path) {
    const int window = model::Folder::number_in(path);
    errno = ENOENT;
    if (window >= model::Folder::windows_max || model::folder.named[window].add(0) != 1) return OpenFile(-1);
    return OpenFile(model::Folder::fd_of(window));
}
inline void remove_file(const std::string &path) {
    const int window = model::Folder::number_in(path);
    if (path.ends_with(unnamed_suffix) || window >= model::Folder::windows_max) return;
    uint32_t named = 1;
    model::folder.named[window].cas(named, 2);
}

} // namespace penstock
