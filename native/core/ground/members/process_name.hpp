// A process by its number, for errors. A member's number is that of its own PID namespace, in which another process may have it
// here: so only a process that has the channel's file open is called by its number alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
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

// A process' command line, any bytes; empty if there is none or it is hidden.
inline std::string command_of(uint32_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
    std::string words{std::istreambuf_iterator<char>(file), {}};
    while (!words.empty() && words.back() == '\0') words.pop_back();
    const size_t folder = words.substr(0, words.find('\0')).rfind('/');
    if (folder != std::string::npos) words.erase(0, folder + 1);
    std::replace(words.begin(), words.end(), '\0', ' ');
    return words;
}

// The number of a process that has a file open, and what of its command line fits.
inline std::string named_process(uint32_t pid, int fd) {
    constexpr size_t shown = 80; // of a command line
    if (find_process(pid, fd) != Found::it) return process_name(pid, fd);
    std::string command = command_of(pid);
    if (command.size() > shown) command = command.substr(0, shown) + "...";
    return "process " + std::to_string(pid) + (command.empty() ? "" : " (" + command + ")");
}

} // namespace penstock
