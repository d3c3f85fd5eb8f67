// Which process has a UDP port, for an error: from /proc, as far as it may be read.
#pragma once

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace penstock {

// "; process 4711 (python3) has the port", or nothing if it cannot be found.
inline std::string port_owner_text(uint16_t port) {
    std::string wanted;
    for (const char *table : {"/proc/net/udp", "/proc/net/udp6"}) {
        std::ifstream lines(table);
        std::string line;
        while (wanted.empty() && std::getline(lines, line)) {
            std::istringstream words(line);
            std::string number, local, word, inode;
            words >> number >> local;
            for (int i = 0; i < 7; ++i) words >> word; // remote, state, queues, timer, retransmits, user, timeout
            words >> inode;
            const size_t colon = local.find(':');
            unsigned at = 0;
            if (colon != std::string::npos && std::sscanf(local.c_str() + colon + 1, "%x", &at) == 1 && at == port)
                wanted = "socket:[" + inode + "]";
        }
    }
    if (wanted.empty()) return {};
    std::error_code error;
    for (std::filesystem::directory_iterator process("/proc", error), end; !error && process != end; process.increment(error)) {
        const std::string pid = process->path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        std::error_code hidden; // another user's, or gone
        for (std::filesystem::directory_iterator fd(process->path() / "fd", hidden); !hidden && fd != end; fd.increment(hidden)) {
            std::error_code gone;
            if (std::filesystem::read_symlink(fd->path(), gone) != wanted || gone) continue;
            std::string name;
            std::getline(std::ifstream(process->path() / "comm"), name);
            return "; process " + pid + " (" + name + ") has the port";
        }
    }
    return {};
}

} // namespace penstock
