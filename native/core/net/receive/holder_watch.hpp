// The process that has a seat, watched by one that is ready to take it: its death wakes a poller at once, where the kernel tells
// of it. The seat's lock decides.
#pragma once

#include "net/io/descriptor.hpp"

#include <memory>
#include <optional>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {

// How this process came to hold the seat after another one's death, for measurements: monotonic times.
struct Takeover {
    int64_t noticed_ns = 0;              // the conductor knows of the death; 0: a caller took the seat before that
    int64_t seated_ns = 0, first_ns = 0; // the images are gone on with; the first datagram has come
    uint32_t tries = 0;                  // of the seat, since the death was noticed
};

class HolderWatch {
  public:
    static constexpr uint32_t dead_checks_max = 50; // while nobody takes a dead holder's seat

    Takeover takeover;

    // Watches a process; 0: there is none. False: it has died, and the seat is worth another try soon.
    bool watch(uint32_t pid) {
        if (pid == 0) return true;
        if (pid != pid_) {
            dead_checks_ = 0;
            takeover = {};
        }
        bool dead = ended();
        if (pid != pid_ || !process_) {
            pid_ = pid;
            process_.emplace(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
            dead = process_->get() < 0 ? errno == ESRCH : ended();
        }
        return !dead || ++dead_checks_ > dead_checks_max; // in another namespace of processes every number seems dead
    }
    bool ended() const {
        pollfd about{descriptor(), POLLIN, 0};
        return about.fd >= 0 && ::poll(&about, 1, 0) == 1;
    }
    int descriptor() const { return process_ ? process_->get() : -1; }
    void stop() { process_.reset(); }

  private:
    std::optional<Descriptor> process_;
    uint32_t pid_ = 0, dead_checks_ = 0;
};

} // namespace penstock
