// Watches the process that owns a socket, for a process that is ready to take over. Its death wakes a poller at once, where the
// kernel reports it. The owner's lock decides.
#pragma once

#include "net/io/descriptor.hpp"

#include <memory>
#include <optional>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {

// How this process came to own the socket after another one's death, for measurements: monotonic times.
struct Takeover {
    int64_t noticed_ns = 0;             // the conductor knows of the death; 0: a caller took ownership before that
    int64_t owned_ns = 0, first_ns = 0; // the images are adopted; the first datagram has arrived
    uint32_t tries = 0;                 // to take ownership, since the death was noticed
};

class OwnerWatch {
  public:
    static constexpr uint32_t dead_checks_max = 50; // while nobody takes a dead owner's place

    Takeover takeover;

    // Watches a process; 0: there is none. False: it has died, so try to take ownership again soon.
    bool watch(uint32_t pid) {
        if (pid == 0) return true;
        if (pid != pid_) {
            dead_checks_ = 0;
            takeover = {};
        }
        bool dead = has_died();
        if (pid != pid_ || !process_) {
            pid_ = pid;
            process_.emplace(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
            dead = process_->get() < 0 ? errno == ESRCH : has_died();
        }
        return !dead || ++dead_checks_ > dead_checks_max; // in another namespace of processes every number seems dead
    }
    bool has_died() const {
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
