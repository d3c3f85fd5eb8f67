// A process by its number, for errors. A member's number is that of its own PID namespace, in which another process may have it
// here: so only a process that has the channel's file open is called by its number alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/stat.h>

namespace penstock {

enum class Found { no, it, another }; // nothing to be seen; a process that has the file; one that has not

// Whether the process of this number here has the file of a descriptor open.
inline Found find_process(uint32_t pid, int fd) {
    struct stat file, open;
    if (fstat(fd, &file) != 0) return Found::no;
    std::error_code error;
    Found found = Found::no;
    std::filesystem::directory_iterator entry("/proc/" + std::to_string(pid) + "/fd", error);
    for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) {
        found = Found::another;
        if (stat(entry->path().c_str(), &open) == 0 && open.st_dev == file.st_dev && open.st_ino == file.st_ino) return Found::it;
    }
    return found;
}

inline std::string process_name(uint32_t pid, int fd) {
    return "process " + std::to_string(pid) + (find_process(pid, fd) == Found::another ? " of another PID namespace" : "");
}

} // namespace penstock
