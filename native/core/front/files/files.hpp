// Channel files: opened and made safely, as Python does (channels/storage/files.py, access.py). One folder per user, 0700, files
// 0600; or, by PENSTOCK_SHARE=group, one of a group, 2770, files 0660. Owner, group and type are checked, no links are followed.
// Knows nothing of a file's content.
#pragma once

#include "front/files/channel_name.hpp"
#include "ground/files/shared_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <random>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <utility>
#include <vector>

namespace penstock {

class FileDescriptor {
  public:
    explicit FileDescriptor(int fd = -1) : fd_(fd) {}
    FileDescriptor(FileDescriptor &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor &operator=(FileDescriptor &&other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~FileDescriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int number() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

  private:
    int fd_;
};

// For errors: a channel's URI and its file's path.
inline std::string place_of(const ChannelName &channel) {
    return channel.uri() + " (" + channel_folder() + "/" + channel.file() + ")";
}

// Whether PENSTOCK_SHARE asks for a folder that a group shares.
inline bool shares_folder() {
    const char *chosen = std::getenv("PENSTOCK_SHARE");
    if (chosen == nullptr || *chosen == '\0') return false;
    if (std::string_view(chosen) != "group")
        throw Error(Code::invalid, "PENSTOCK_SHARE is '" + std::string(chosen) +
                                       "': the only value is group; unset it for channels of one user");
    const char *folder = std::getenv("PENSTOCK_DIR");
    if (folder == nullptr || *folder == '\0')
        throw Error(Code::invalid,
                    "PENSTOCK_SHARE=group without PENSTOCK_DIR: each user has a folder of their own then. Set PENSTOCK_DIR to "
                    "one folder in all programs, such as /dev/shm/penstock-robot");
    return true;
}

inline bool is_in_group(gid_t group) {
    std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
    const int found = getgroups(static_cast<int>(groups.size()), groups.data());
    groups.resize(static_cast<size_t>(std::max(found, 0)));
    return group == getegid() || std::find(groups.begin(), groups.end(), group) != groups.end();
}

// Why a folder cannot be shared; empty if it can.
inline std::string problem_of_shared(int fd, const struct stat &about) {
    if (!is_in_group(about.st_gid))
        return "belongs to group " + std::to_string(about.st_gid) +
               ", which this process is not in: run it with that group (docker run --group-add, Kubernetes fsGroup)";
    if ((about.st_mode & 07777) != shared_folder_mode)
        return "has a mode other than 2770, which PENSTOCK_SHARE=group needs: set PENSTOCK_DIR to a folder that does not exist "
               "yet, which is made for the group";
    if (fgetxattr(fd, "system.posix_acl_access", nullptr, 0) > 0 || fgetxattr(fd, "system.posix_acl_default", nullptr, 0) > 0)
        return "has an access control list, which may let others in: run setfacl -b on it";
    return {};
}

// The folder, checked: a directory of this user that no other user may enter, or one that a group shares. None where it does not
// exist and is not to be made.
inline FileDescriptor open_folder(bool create) {
    const std::string path = channel_folder();
    const bool shared = shares_folder();
    const int made = !create ? 0 : shared ? make_shared_folder(AT_FDCWD, path) : mkdir(path.c_str(), 0700) == 0 ? 0 : errno;
    if (made != 0 && made != EEXIST)
        fail_system("cannot make the channel folder " + path + ". Set PENSTOCK_DIR to a folder on a memory file system", made);
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) {
        if (errno == ENOENT && !create) return fd;
        const int failed = errno;
        struct stat link;
        if (lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode))
            throw Error(Code::system,
                        "cannot open the channel folder " + path +
                            ": it is a symbolic link, which channels do not follow: set PENSTOCK_DIR to the folder itself",
                        failed);
        fail_system("cannot open the channel folder " + path, failed);
    }
    struct stat about;
    if (fstat(fd.number(), &about) != 0) fail_system("cannot read " + path);
    std::string problem;
    const bool is_shared = (about.st_mode & 07777) == shared_folder_mode && is_in_group(about.st_gid);
    if (shared) problem = problem_of_shared(fd.number(), about);
    else if (about.st_uid != geteuid())
        problem = "belongs to user " + std::to_string(about.st_uid) + ", not to you (" + std::to_string(geteuid()) + ")" +
                  (is_shared ? ": set PENSTOCK_SHARE=group to share it with its group" : "");
    else if ((about.st_mode & 077) != 0)
        problem =
            "may be entered by others, and must be private: set PENSTOCK_DIR to a folder that does not exist yet, which is made "
            "for you alone, or PENSTOCK_SHARE=group to share a folder with a group";
    if (!problem.empty()) throw Error(Code::system, "the channel folder " + path + " " + problem, EPERM);
    return fd;
}

// The channel's file, for reading and writing; none if there is no such channel.
inline FileDescriptor open_existing(const ChannelName &channel) {
    const FileDescriptor folder = open_folder(false);
    if (!folder) return FileDescriptor();
    FileDescriptor fd(openat(folder.number(), channel.file().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) {
        if (errno == ENOENT) return fd;
        if (errno == ELOOP) throw Error(Code::system, "cannot open " + place_of(channel) + ": it is a symbolic link", ELOOP);
        fail_system("cannot open " + place_of(channel));
    }
    struct stat about;
    if (fstat(fd.number(), &about) != 0) fail_system("cannot read " + place_of(channel));
    struct stat in;
    if (fstat(folder.number(), &in) != 0) fail_system("cannot read " + channel_folder());
    const bool shared = (in.st_mode & 07777) == shared_folder_mode;
    std::string problem;
    if (!S_ISREG(about.st_mode)) problem = "it is not a regular file";
    else if (!shared && about.st_uid != geteuid()) problem = "it belongs to user " + std::to_string(about.st_uid);
    else if (about.st_nlink > 1) problem = "it has a second name (hard link)";
    else if (!shared && (about.st_mode & 077) != 0) problem = "others may open it: run chmod 600 on it";
    else if ((about.st_mode & 07) != 0) problem = "others than the group may open it: run chmod 660 on it";
    else if (shared && (about.st_mode & 070) != 0 && about.st_gid != in.st_gid)
        problem = "it belongs to group " + std::to_string(about.st_gid) + ", not to that of its folder: run chgrp on it";
    if (!problem.empty()) throw Error(Code::system, "refusing " + place_of(channel) + ": " + problem, EPERM);
    return fd;
}

// A new file without a name where the kernel can make one, else under a temporary name, which is returned.
inline FileDescriptor make_unnamed(int folder, std::string &temporary) {
    FileDescriptor fd(openat(folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
    if (fd && access("/proc/self/fd", F_OK) == 0) return fd;
    std::random_device random;
    temporary = ".new-" + std::to_string(getpid()) + "-" + std::to_string(random()) + std::to_string(random());
    fd = FileDescriptor(openat(folder, temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) fail_system("cannot make a file in " + channel_folder());
    return fd;
}

// Makes a channel's file of `size` bytes, filled by `fill(fd)` before it gets its name. Its memory is allocated now: a full file
// system is an error here and never a signal later. Nothing is replaced, and a failure or a crash leaves no file.
template <class Fill> void create_file(const ChannelName &channel, uint64_t size, Fill &&fill) {
    const FileDescriptor folder = open_folder(true);
    std::string temporary;
    const FileDescriptor fd = make_unnamed(folder.number(), temporary);
    const auto unlink_temporary = [&] {
        if (!temporary.empty()) unlinkat(folder.number(), temporary.c_str(), 0);
    };
    try {
        share_file(fd.number(), folder.number(), ".");
        if (const int failed = posix_fallocate(fd.number(), 0, static_cast<off_t>(size)); failed != 0)
            throw Error(Code::system,
                        "cannot make " + channel.uri() + ": it takes " + std::to_string(size) + " bytes of shared memory in " +
                            channel_folder() + ": " + std::strerror(failed) +
                            ". Give a smaller capacity, or frames a smaller shape or fewer buffers, or " +
                            "remove channels that nobody has open (penstock rm --unused)",
                        failed);
        fill(fd.number());
        const std::string same = "/proc/self/fd/" + std::to_string(fd.number());
        const int linked = temporary.empty()
                               ? linkat(AT_FDCWD, same.c_str(), folder.number(), channel.file().c_str(), AT_SYMLINK_FOLLOW)
                               : linkat(folder.number(), temporary.c_str(), folder.number(), channel.file().c_str(), 0);
        if (linked != 0 && errno != EEXIST) fail_system("cannot name the file of " + channel.uri());
    } catch (...) {
        unlink_temporary();
        throw;
    }
    unlink_temporary();
}

// Sixteen bytes that change with every boot; zeros if the kernel does not have them.
struct BootId {
    BootId() {
        std::ifstream file("/proc/sys/kernel/random/boot_id");
        std::string digits{std::istreambuf_iterator<char>(file), {}};
        std::erase_if(digits, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) == 0; });
        for (size_t i = 0; digits.size() == 32 && i < sizeof bytes; ++i)
            bytes[i] = static_cast<uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
    }
    uint8_t bytes[16] = {};
};

// What tells a channel from another one that is made under the same name.
inline uint64_t random_epoch() {
    std::random_device random;
    return (uint64_t{random()} << 32 | random()) >> 1;
}

} // namespace penstock
