// Liveness under the checker: the kernel's byte locks become a table. A byte that its dead owner held can be taken, and the
// thread that takes it sees all that the owner did, as the kernel's own lock guarantees.
#pragma once

#include "ground/error.hpp"

#include <cstdint>
#include <string>

namespace penstock {

namespace model {
bool byte_lock_take(const void *owner, uint64_t byte);
void byte_lock_leave(const void *owner, uint64_t byte, bool all);
void byte_lock_pass(const void *from, const void *to);
bool byte_lock_taken_by_other(const void *owner, uint64_t byte);
} // namespace model

class ForkGuard {
  public:
    static uint32_t generation() { return 0; }
};

// The kernel locks of one participant on bytes of its channel's file.
class ByteLocks {
  public:
    ByteLocks(int fd, std::string path) : path_(std::move(path)), file_(fd < 0 ? 0 : uint64_t(fd) << 32) {}
    ~ByteLocks() { leave(); }
    ByteLocks(const ByteLocks &) = delete;
    ByteLocks &operator=(const ByteLocks &) = delete;
    ByteLocks(ByteLocks &&other) : path_(other.path_), file_(other.file_) { model::byte_lock_pass(&other, this); }
    int again() const { return -1; }
    bool try_take(uint64_t byte) { return model::byte_lock_take(this, file_ + byte); }
    void give_back(uint64_t byte) { model::byte_lock_leave(this, file_ + byte, false); }
    void enter(uint64_t) {}
    int descriptor() const { return -1; }
    bool member_at(uint64_t byte) const { return model::byte_lock_taken_by_other(this, file_ + byte); }
    bool taken_by_other(uint64_t byte) { return model::byte_lock_taken_by_other(this, file_ + byte); }
    const std::string &path() const { return path_; }
    const std::string &where() const { return path_; }
    void leave() { model::byte_lock_leave(this, 0, true); }
    void return_after_fork() {}

  private:
    std::string path_;
    uint64_t file_; // each has bytes of its own
};

} // namespace penstock
