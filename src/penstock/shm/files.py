"""Channel files: where they lie, how they are made and opened safely.

One folder per user on the shared-memory file system, 0700, files 0600, owner and type checked, no links followed.
Knows descriptors and names; knows nothing of what a file contains.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.channel import Channel
from penstock.errors import NotFound, SystemFailure
from penstock.shm import memory

FOLDER_MODE = 0o700
FILE_MODE = 0o600
STREAM_MARK = "@"  # stands for the slash of `frames:NAME/STREAM`; no name has one


def folder() -> Path:
    """The folder of this user's channels: `PENSTOCK_DIR`, else one per user below /dev/shm."""
    return _folder(os.environ.get("PENSTOCK_DIR") or f"/dev/shm/penstock-{os.getuid()}")


@functools.lru_cache(maxsize=8)
def _folder(path: str) -> Path:
    return Path(path)


def file_name(channel: Channel) -> str:
    """A channel's file name; the kind is part of it."""
    return f"{channel.name.replace('/', STREAM_MARK)}.{channel.kind}"


@contextlib.contextmanager
def opened_folder(*, create: bool) -> Iterator[int]:
    """A descriptor of the folder, checked: a real directory of ours that nobody else may enter."""
    path = folder()
    if create:
        try:
            os.mkdir(path, FOLDER_MODE)
        except FileExistsError:
            pass
        except OSError as error:
            raise SystemFailure(
                error.errno,
                f"cannot make the channel folder {path}: {error.strerror}. Set PENSTOCK_DIR to a folder on a memory file system",
            ) from error
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound(errno.ENOENT, f"no channel exists yet: there is no folder {path}") from error
    except OSError as error:
        raise SystemFailure(error.errno, f"cannot open the channel folder {path}: {error.strerror}") from error
    try:
        about = os.fstat(fd)
        if about.st_uid != os.getuid():
            raise SystemFailure(
                errno.EPERM, f"the channel folder {path} belongs to user {about.st_uid}, not to you ({os.getuid()})"
            )
        if about.st_mode & 0o077:
            raise SystemFailure(errno.EPERM, f"others may enter the channel folder {path}: run chmod 700 {path}")
        yield fd
    finally:
        os.close(fd)


def open_existing(channel: Channel) -> int:
    """A descriptor of the channel's file, for reading and writing. `NotFound` if there is none."""
    if channel.fake:
        return memory.open_existing(channel)
    path = folder() / file_name(channel)
    with opened_folder(create=False) as at:
        try:
            fd = os.open(file_name(channel), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        except FileNotFoundError as error:
            raise NotFound(errno.ENOENT, f"there is no channel {channel} ({path})") from error
        except OSError as error:
            what = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise SystemFailure(error.errno, f"cannot open {channel} ({path}): {what}") from error
    about = os.fstat(fd)
    problem = None
    if not stat.S_ISREG(about.st_mode):
        problem = "it is not a regular file"
    elif about.st_uid != os.getuid():
        problem = f"it belongs to user {about.st_uid}"
    elif about.st_nlink > 1:
        problem = "it has a second name (hard link)"
    elif about.st_mode & 0o077:
        problem = "others may open it: run chmod 600 on it"
    if problem:
        os.close(fd)
        raise SystemFailure(errno.EPERM, f"refusing {channel} ({path}): {problem}")
    return fd


def create(channel: Channel, size: int, fill: Callable[[int], None]) -> bool:
    """Makes a channel's file of `size` bytes, filled by `fill(fd)` before it gets its name.

    The memory is allocated now: a full file system is an error here and never a signal later. False if the name was
    taken meanwhile; nothing is replaced, and nothing is left behind when this fails or dies.
    """
    if channel.fake:
        return memory.create(channel, size, fill)
    with opened_folder(create=True) as at:
        fd, temporary = _unnamed_file(at)
        try:
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as error:
                raise SystemFailure(error.errno, _no_room(channel, size, error)) from error
            fill(fd)
            try:
                if temporary is None:
                    os.link(f"/proc/self/fd/{fd}", file_name(channel), dst_dir_fd=at, follow_symlinks=True)
                else:
                    os.link(temporary, file_name(channel), src_dir_fd=at, dst_dir_fd=at)
            except FileExistsError:
                return False
            except OSError as error:
                raise SystemFailure(error.errno, f"cannot name the file of {channel}: {error.strerror}") from error
            return True
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=at)
            os.close(fd)


def _unnamed_file(at: int) -> tuple[int, str | None]:
    """A new file without a name where the kernel can, else under a temporary one."""
    if os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return os.open(".", os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, FILE_MODE, dir_fd=at), None
    name = f".new-{os.getpid()}-{secrets.token_hex(8)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, FILE_MODE, dir_fd=at), name
    except OSError as error:
        raise SystemFailure(error.errno, f"cannot make a file in {folder()}: {error.strerror}") from error


def _no_room(channel: Channel, size: int, error: OSError) -> str:
    if error.errno != errno.ENOSPC:
        return f"cannot allocate {size} bytes for {channel} in {folder()}: {error.strerror}"
    about = os.statvfs(folder())
    free = about.f_bavail * about.f_frsize
    return (
        f"cannot make {channel}: it takes {size / 1e6:.1f} MB of shared memory and {folder()} has {free / 1e6:.1f} MB free. "
        "Give a smaller term_length, remove channels that are no longer used (penstock doctor lists them), or enlarge "
        "the shared memory"
    )


def unlink(channel: Channel) -> None:
    """Removes a channel's name. Those who have it open keep it; `NotFound` if there is none."""
    if channel.fake:
        memory.unlink(channel)
        return
    with opened_folder(create=False) as at:
        try:
            os.unlink(file_name(channel), dir_fd=at)
        except FileNotFoundError as error:
            raise NotFound(errno.ENOENT, f"there is no channel {channel} in {folder()}") from error


def list_names() -> list[tuple[str, str]]:
    """(name, kind) of every channel file, sorted. Empty without a folder."""
    try:
        with opened_folder(create=False) as at:
            names = os.listdir(at)
    except NotFound:
        return []
    pairs = [name.rpartition(".") for name in names if not name.startswith(".")]
    return sorted((name.replace(STREAM_MARK, "/"), kind) for name, dot, kind in pairs if dot)


@functools.cache
def boot_id() -> bytes:
    """Sixteen bytes that change when the machine starts anew; zeros where the kernel does not tell."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)
