"""Who may enter the channel folder: its user alone, or, by `PENSTOCK_SHARE=group`, the members of a group.

A private folder has mode 0700 and its files 0600; a shared one has mode 2770, and its files 0660 and its group. Everything else is refused.
Knows owners, groups and modes; knows no channel.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import os
import stat
from collections.abc import Callable
from pathlib import Path

from penstock._native import core as _native
from penstock.errors import Invalid, SystemFailure

VARIABLE, GROUP = "PENSTOCK_SHARE", "group"
FOLDER_MODE, FILE_MODE = 0o700, 0o600
SHARED_FOLDER_MODE, SHARED_FILE_MODE = 0o2770, 0o660
OTHERS = 0o007  # of a mode
AT_FDCWD = -100  # the kernel's name of the working directory
ACCESS_LISTS = ("system.posix_acl_access", "system.posix_acl_default")
NEW_FOLDER = "set PENSTOCK_DIR to a folder that does not exist yet, which is made for "


def is_shared() -> bool:
    """Whether `PENSTOCK_SHARE` asks for a folder that a group shares. `Invalid` for another value, and without `PENSTOCK_DIR`."""
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return False
    if chosen != GROUP:
        raise Invalid(f"{VARIABLE} is {chosen!r}: the only value is {GROUP!r}; unset it for channels of one user")
    if not os.environ.get("PENSTOCK_DIR"):
        raise Invalid(
            f"{VARIABLE}={GROUP} without PENSTOCK_DIR: each user has a folder of their own then. Set PENSTOCK_DIR to one folder in all "
            "programs, such as /dev/shm/penstock-robot"
        )
    return True


def file_mode() -> int:
    """The mode of files beside the channels."""
    return SHARED_FILE_MODE if is_shared() else FILE_MODE


def group_name(group: int) -> str:
    """A group by its number, and its name if it has one here: containers often have none."""
    with contextlib.suppress(KeyError):
        return f"{group} ({_name(group)})"
    return str(group)


@functools.cache
def _name(group: int) -> str:
    return grp.getgrgid(group).gr_name


def is_member(group: int) -> bool:
    """Whether this process is in a group."""
    return group == os.getegid() or group in os.getgroups()


def make_folder(path: str | Path, at: int | None = None) -> None:
    """Makes a folder with the mode that is asked for, whatever the umask. An existing one is not changed. at: of a relative path."""
    if not is_shared():
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, FOLDER_MODE, dir_fd=at)
        return
    failed = _native.make_shared_folder(AT_FDCWD if at is None else at, os.fspath(path))
    if failed not in (0, errno.EEXIST):
        raise OSError(failed, os.strerror(failed), str(path))


def grant(fd: int, at: int) -> None:
    """Gives a new file without a name its mode and group, whatever the umask. at: its folder."""
    if not is_shared():
        return
    group = os.fstat(at).st_gid
    if os.fstat(fd).st_gid != group:
        os.fchown(fd, -1, group)
    os.fchmod(fd, SHARED_FILE_MODE)


def unnamed_file(at: int, path: Path) -> tuple[int, str | None]:
    """A new file without a name where the kernel can, else under a temporary one, with its mode and group. at: its folder. path: the same, for
    errors."""
    try:
        fd, name = _unnamed(at)
        try:
            grant(fd, at)
        except BaseException:
            drop_unnamed(at, fd, name)
            raise
        return fd, name
    except OSError as error:
        raise SystemFailure(error.errno or 0, f"cannot make a file in {path}: {error.strerror}") from error


def _unnamed(at: int) -> tuple[int, str | None]:
    if os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, FILE_MODE, dir_fd=at), None
    name = f".new-{os.getpid()}-{os.urandom(8).hex()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, FILE_MODE, dir_fd=at), name


def name_file(at: int, fd: int, temporary: str | None, name: str) -> None:
    """Gives an unnamed file its name. `FileExistsError` if that is taken."""
    if temporary is None:
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=at, follow_symlinks=True)
    else:
        os.link(temporary, name, src_dir_fd=at, dst_dir_fd=at)


def drop_unnamed(at: int, fd: int, temporary: str | None) -> None:
    """Closes a file that was unnamed, and removes its temporary name."""
    if temporary is not None:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=at)
    os.close(fd)


def open_own(name: str, at: int, path: Path) -> int:
    """Opens a tool's file, made empty if it does not exist, for reading and writing. It has its mode before it has its name. at: its folder.
    path: the same, for errors."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(name, flags, dir_fd=at)
        fd, temporary = unnamed_file(at, path)
        try:
            with contextlib.suppress(FileExistsError):
                name_file(at, fd, temporary, name)
        finally:
            drop_unnamed(at, fd, temporary)


# ---- refusals: one line each, which says what to do ----


def check_folder(path: Path, fd: int, holds_channels: Callable[[], bool]) -> None:
    """`SystemFailure` unless an opened channel folder is private to this user, or shared as asked for. holds_channels: whether it has
    channels and nothing else."""
    about = os.fstat(fd)
    problem = (
        _problem_of_shared(path, fd, about, holds_channels) if is_shared() else _problem(path, about, holds_channels)
    )
    if problem:
        raise SystemFailure(errno.EPERM, f"the channel folder {path} {problem}")


def _problem(path: Path, about: os.stat_result, holds_channels: Callable[[], bool]) -> str | None:
    mode = stat.S_IMODE(about.st_mode)
    for_group = mode == SHARED_FOLDER_MODE and is_member(about.st_gid)
    if about.st_uid != os.geteuid():
        advice = (
            f". It is shared by group {group_name(about.st_gid)}: set {VARIABLE}={GROUP} to use it" if for_group else ""
        )
        return f"belongs to user {about.st_uid}, not to you ({os.geteuid()}){advice}"
    if not mode & 0o077:
        return None
    advice = f"run chmod 700 {path}" if holds_channels() else f"{NEW_FOLDER}you alone"
    if for_group:
        advice = f"set {VARIABLE}={GROUP} if group {group_name(about.st_gid)} is to share it, else {advice}"
    return f"has mode {mode:o}, and must be private: {advice}"


def _foreign_group(group: int) -> str:
    return (
        f"group {group_name(group)}, which this process is not in: run it with that group "
        f"(docker run --group-add {group}, Kubernetes fsGroup: {group}), or {NEW_FOLDER}a group of yours"
    )


def why_denied(path: Path) -> str:
    """Why the kernel lets this process not enter a folder, and what to do."""
    try:
        about = os.stat(path)
    except OSError:  # a folder above it is closed, too
        return f"this user may not enter a folder above it: {NEW_FOLDER}you"
    if stat.S_IMODE(about.st_mode) == SHARED_FOLDER_MODE and not is_member(about.st_gid):
        return f"it belongs to {_foreign_group(about.st_gid)}"
    return f"it has mode {stat.S_IMODE(about.st_mode):o} and belongs to user {about.st_uid}, not to you ({os.geteuid()}): {NEW_FOLDER}you"


def _problem_of_shared(path: Path, fd: int, about: os.stat_result, holds_channels: Callable[[], bool]) -> str | None:
    mode = stat.S_IMODE(about.st_mode)
    if mode & OTHERS:
        return f"has mode {mode:o}, so that others than a group may enter: {NEW_FOLDER}the group, such as {path / 'penstock'}"
    if not is_member(about.st_gid):
        return f"belongs to {_foreign_group(about.st_gid)}"
    if mode != SHARED_FOLDER_MODE:
        empty = not os.listdir(fd) or holds_channels()
        advice = f"run chmod 2770 {path}" if empty and not mode & stat.S_ISVTX else f"{NEW_FOLDER}the group"
        return f"has mode {mode:o}, and {VARIABLE}={GROUP} needs 2770: {advice}"
    if any(_has_attribute(fd, name) for name in ACCESS_LISTS):
        return f"has an access control list, which may let others in: run setfacl -b {path}"
    return None


def _has_attribute(fd: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(os.getxattr(fd, name))
    return False


def problem_of_file(about: os.stat_result, at: int) -> str | None:
    """Why a file of the channel folder is not opened; None if it may be. at: the opened folder."""
    if not stat.S_ISREG(about.st_mode):
        return "it is not a regular file"
    shared = is_shared()
    if not shared and about.st_uid != os.geteuid():
        return f"it belongs to user {about.st_uid}"
    if about.st_nlink > 1:
        return "it has a second name (hard link)"
    if not shared and about.st_mode & 0o077:
        return "others may open it: run chmod 600 on it"
    if about.st_mode & OTHERS:
        return "others than the group may open it: run chmod 660 on it"
    if about.st_mode & 0o070 and about.st_gid != (group := os.fstat(at).st_gid):
        return f"it belongs to group {about.st_gid}, not to that of its folder: run chgrp {group} on it"
    return None


def problem_of_opening(error: OSError, name: str, at: int) -> str:
    """Why the kernel refuses a file of the channel folder."""
    if error.errno == errno.ELOOP:
        return "it is a symbolic link"
    if error.errno == errno.EROFS:
        return f"{error.strerror}: mount it for writing, as readers write there how far they have read"
    with contextlib.suppress(OSError):
        about = os.stat(name, dir_fd=at, follow_symlinks=False)
        if error.errno == errno.EACCES and about.st_mode & 0o070 and not is_member(about.st_gid):
            return f"it belongs to group {about.st_gid}, which this process is not in: run chgrp {os.fstat(at).st_gid} on it"
        if error.errno == errno.EACCES and about.st_uid != os.geteuid():
            return f"it is private to user {about.st_uid}, who made it before the folder was shared: chmod 660 it, or remove it"
    return reason(error)


def reason(error: OSError) -> str:
    """What the kernel says, and which limit to raise where this process has too many files open."""
    return f"{error.strerror}: raise the limit, ulimit -n" if error.errno == errno.EMFILE else str(error.strerror)
