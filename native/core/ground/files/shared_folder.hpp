// A channel folder that the members of a group share: its mode is 2770, and its files have mode 0660 and its group, whatever the
// umask. Knows modes and names. Which folder may be shared is decided above (channels/storage/access.py, front/files/files.hpp).
#pragma once

#include "ground/error.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock {

inline constexpr mode_t shared_folder_mode = 02770, shared_file_mode = 0660;

// Gives a new file the mode and the group of a shared folder. A folder of one user leaves it as it is. `folder`: relative to
// `at`.
inline void share_file(int fd, int at, const char *folder) {
    struct stat in, about;
    if (fstatat(at, folder, &in, 0) != 0 || (in.st_mode & 07777) != shared_folder_mode) return;
    const bool given =
        fstat(fd, &about) == 0 && (about.st_gid == in.st_gid || fchown(fd, static_cast<uid_t>(-1), in.st_gid) == 0);
    if (!given || fchmod(fd, shared_file_mode) != 0)
        fail_system("cannot give a new file to group " + std::to_string(in.st_gid) + " of its folder");
}

// Makes a folder that a group shares: of the parent's group if the parent hands its group down, else of the process's. It has its
// mode before it has its name, so no process finds it half made. The result is an errno: EEXIST if the name is taken.
inline int make_shared_folder(int at, const std::string &name) {
    constexpr unsigned no_replace = 1;
    struct stat there;
    if (fstatat(at, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    const size_t slash = name.rfind('/') + 1;
    std::random_device random;
    const std::string made =
        name.substr(0, slash) + ".new-" + std::to_string(getpid()) + "-" + std::to_string(random()) + std::to_string(random());
    if (mkdirat(at, made.c_str(), 0700) != 0) return errno;
    int failed = fchmodat(at, made.c_str(), shared_folder_mode, 0) == 0 ? 0 : errno;
    if (failed == 0 && syscall(SYS_renameat2, at, made.c_str(), at, name.c_str(), no_replace) != 0) failed = errno;
    if (failed != 0) unlinkat(at, made.c_str(), AT_REMOVEDIR);
    if (failed != EINVAL && failed != ENOSYS) return failed;
    // A file system, or a kernel, that cannot rename without replacing.
    if (mkdirat(at, name.c_str(), 0700) != 0 || fchmodat(at, name.c_str(), shared_folder_mode, 0) != 0) return errno;
    return 0;
}

} // namespace penstock
