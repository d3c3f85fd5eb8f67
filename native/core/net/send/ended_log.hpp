// The log of a publication that has ended, left for the recorders of this machine that have not opened it yet. A recorder holds a
// lock on a byte of FOLDER/.recorders/CHANNEL.lock as long as it runs. docs/design/network_log.md.
#pragma once

#include "net/io/new_file.hpp"

#include <string>

namespace penstock {

inline constexpr int ended_logs_max = 64; // of a channel: beyond that a log is removed, and counted by a byte in the lock's file

// Gives the log at FOLDER/CHANNEL.SESSION.log the name FOLDER/.recorders/CHANNEL.NUMBER beside its own, if a recorder runs. What
// is beyond the limit is counted.
inline void leave_for_recorders(const std::string &path) {
    const size_t name = path.rfind('/') + 1, end = path.rfind('.', path.rfind('.') - 1);
    const std::string left = path.substr(0, name) + ".recorders/" + path.substr(name, end - name) + ".";
    const OpenFile lock(::open((left + "lock").c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
    if (lock.fd() < 0) return;
    struct flock any = {};
    any.l_type = F_WRLCK;
    any.l_whence = SEEK_SET;
    if (fcntl(lock.fd(), F_OFD_GETLK, &any) != 0 || any.l_type == F_UNLCK) return;
    for (int n = 0; n < ended_logs_max; ++n) {
        if (::link(path.c_str(), (left + std::to_string(n)).c_str()) == 0) return;
        if (errno != EEXIST) break;
    }
    [[maybe_unused]] const ssize_t noted = ::write(lock.fd(), "", 1); // without room for a byte it is not counted
}

} // namespace penstock
