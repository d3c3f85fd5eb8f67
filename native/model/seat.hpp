// Liveness under the checker: the kernel's byte locks become a table. A byte that its dead owner held can be taken, and
// whoever takes it sees all that the owner did, as the kernel's own lock guarantees.
#pragma once

#include "error.hpp"

#include <cstdint>
#include <string>

namespace penstock {

namespace model {
bool seat_take(const void *owner, uint64_t byte);
void seat_leave(const void *owner, uint64_t byte, bool all);
bool seat_taken_by_other(const void *owner, uint64_t byte);
} // namespace model

class ForkGuard {
  public:
    static uint32_t generation() { return 0; }
};

class Seat {
  public:
    Seat(int, std::string path) : path_(std::move(path)) {}
    ~Seat() { leave(); }
    Seat(const Seat &) = delete;
    Seat &operator=(const Seat &) = delete;
    bool try_take(uint64_t byte) { return model::seat_take(this, byte); }
    void give_back(uint64_t byte) { model::seat_leave(this, byte, false); }
    bool taken_by_other(uint64_t byte) { return model::seat_taken_by_other(this, byte); }
    bool seated() const { return true; }
    const std::string &path() const { return path_; }
    void leave() { model::seat_leave(this, 0, true); }
    void return_after_fork() {}

  private:
    std::string path_;
};

} // namespace penstock
