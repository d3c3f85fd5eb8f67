"""Channel files: their folder, and how they are created and opened safely.

One folder per user on the shared-memory file system, or one that a group shares (`access`); owner and type checked, no links followed.
Knows descriptors and names; knows nothing of a file's content.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock.channels.kind import Kind, nothing_beside
from penstock.channels.storage import access, memory
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.registry import kind_named, kind_names
from penstock.errors import Invalid, NotFound, SystemFailure

SLASH = "@"  # replaces the slashes of a name in file names; no name has an @


class Stranger(NamedTuple):
    """A file in the channel folder with a name like a channel's that is not a channel. path: printable text, also if it is not UTF-8."""

    path: str
    why: str


def folder() -> Path:
    """The folder of this user's channels: `PENSTOCK_DIR`, else one per user below /dev/shm. The effective user decides.

    A relative path is resolved once per process, and a forked child inherits the result: a later change of the working directory has no
    effect.
    """
    return _folder(os.environ.get("PENSTOCK_DIR") or f"/dev/shm/penstock-{os.geteuid()}")


@functools.cache
def _folder(path: str) -> Path:
    return Path(path).absolute()


def usage() -> Any:
    """Total, used and free bytes of the file system with this user's channels: a value of `shutil.disk_usage`."""
    return shutil.disk_usage(next(path for path in (folder(), *folder().parents) if path.exists()))


def private_folder(name: str, *, create: bool = False) -> Path:
    """A folder for a tool's own files beside the channels, for those who may use these. name: begins with a dot. create: creates it if it
    does not exist."""
    if not name.startswith(".") or "/" in name:
        raise Invalid(f"name is {name!r}: a folder beside the channels begins with a dot and holds no slash")
    if create:
        with opened_folder(create=True) as at:
            access.make_folder(name, at)
    return folder() / name


def file_name(channel: Channel) -> str:
    """A channel's file name, which includes the kind."""
    return f"{channel.name.replace('/', SLASH)}.{channel.kind.name}"


@contextlib.contextmanager
def opened_folder(*, create: bool) -> Iterator[int]:
    """A descriptor of the folder, checked: a real directory of this user that no other user may enter, or one that a group shares as
    `PENSTOCK_SHARE` asks for."""
    access.is_shared()  # a wrong wish is said before anything about the folder
    path = folder()
    if not _is_text(path):
        raise SystemFailure(
            errno.EILSEQ, f"the channel folder {printable(path)} is not UTF-8: set PENSTOCK_DIR to another"
        )
    if create:
        try:
            access.make_folder(path)
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
        why = access.reason(error)
        if error.errno == errno.EACCES:
            why = f"{why}: {access.why_denied(path)}"
        elif path.is_symlink():
            chosen = f"the folder itself, {printable(os.path.realpath(path))}"
            where = chosen if os.environ.get("PENSTOCK_DIR") else "a folder of yours, and find out who made the link"
            why = f"it is a symbolic link, which channels do not follow: set PENSTOCK_DIR to {where}"
        raise SystemFailure(error.errno, f"cannot open the channel folder {path}: {why}") from error
    try:
        access.check_folder(path, fd, lambda: _holds_channels(fd))
        yield fd
    finally:
        os.close(fd)


def _holds_channels(fd: int) -> bool:
    """Whether a folder has nothing but channels: only its mode is one to change."""
    try:
        names = os.listdir(fd)
    except OSError:
        names = []
    return bool(names) and all(name.startswith(".new-") or name.rpartition(".")[2] in kind_names() for name in names)


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
            why = access.problem_of_opening(error, file_name(channel), at)
            raise SystemFailure(error.errno, f"cannot open {channel} ({path}): {why}") from error
        problem = access.problem_of_file(os.fstat(fd), at)
    if problem:
        os.close(fd)
        raise SystemFailure(errno.EPERM, f"refusing {channel} ({path}): {problem}")
    return fd


def create(channel: Channel, size: int, fill: Callable[[int], None]) -> bool:
    """Makes a channel's file of `size` bytes, filled by `fill(fd)` before it gets its name.

    The memory is allocated now: a full file system is an error here and never a signal later. False if the name was
    taken in the meantime; nothing is replaced, and a failure or a crash leaves no file.
    """
    if channel.fake:
        return memory.create(channel, size, fill)
    with opened_folder(create=True) as at:
        fd, temporary = access.unnamed_file(at, folder())
        try:
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as error:
                raise SystemFailure(error.errno, no_room(channel, size, error)) from error
            fill(fd)
            try:
                access.name_file(at, fd, temporary, file_name(channel))
            except FileExistsError:
                return False
            except OSError as error:
                raise SystemFailure(error.errno, f"cannot name the file of {channel}: {error.strerror}") from error
            return True
        finally:
            access.drop_unnamed(at, fd, temporary)


def no_room(channel: Channel, size: int, error: OSError) -> str:
    """The error's text when a channel's memory cannot be allocated."""
    if error.errno != errno.ENOSPC:
        return f"cannot allocate {size} bytes for {channel} in {folder()}: {error.strerror}"
    about = os.statvfs(folder())
    free = about.f_bavail * about.f_frsize
    names = channel.kind.option_names("publish")
    less = "capacity" if "capacity" in names else " or ".join(name for name in ("shape", "buffers") if name in names)
    return (
        f"cannot make {channel}: it takes {size / 1e6:.3g} MB of shared memory and {folder()} has {free / 1e6:.3g} MB free. "
        f"Give a smaller {less or 'size'}, remove channels that nobody has open (penstock rm --unused), or enlarge the shared memory"
    )


def unlink(channel: Channel) -> None:
    """Removes a channel's name. Handles that are open keep the channel; `NotFound` if there is none."""
    if channel.fake:
        memory.unlink(channel)
        return
    keep = channel.kind.layout.in_use(channel)
    with opened_folder(create=False) as at:
        beside = [name for name in files_beside(channel, at) if name not in keep]
        swept = channel.kind.layout.sweep(channel)
        for name in (file_name(channel), *beside):
            try:
                os.unlink(name, dir_fd=at)
            except FileNotFoundError as error:
                if not beside and not swept:
                    raise NotFound(errno.ENOENT, f"there is no channel {channel} in {folder()}") from error
            except OSError as error:
                raise SystemFailure(
                    error.errno, f"cannot remove {channel} ({folder() / name}): {error.strerror}"
                ) from error


def files_beside(channel: Channel, at: int) -> list[str]:
    """The names of the files that belong to a channel beside its own, sorted. at: the opened folder."""
    if channel.kind.layout.beside is nothing_beside:
        return []
    return sorted(name for name in _names(at) if channel.kind.layout.beside(name) == channel.name)


def _names(at: int) -> list[str]:
    try:
        return os.listdir(at)
    except OSError as error:
        raise SystemFailure(error.errno, f"cannot list the channel folder {folder()}: {error.strerror}") from error


def listing() -> tuple[list[Channel], list[Stranger]]:
    """The channels that the folder's files are named after, sorted, and files with almost such a name. Empty without a folder.

    Files without a kind's suffix are ignored.
    """
    try:
        with opened_folder(create=False) as at:
            names = _names(at)
    except NotFound:
        return [], []
    found, strange = set(), []
    for name in names:
        stem, dot, ending = name.rpartition(".")
        owners = _owners(name)
        kind = owners.get(ending)
        beside = [Channel(owner, of) for owner in owners.values() if (of := owner.layout.beside(name)) is not None]
        if beside:
            found.update(beside)
            continue
        if name.startswith(".") or not dot or kind is None:
            continue
        try:
            found.add(Channel(kind, kind.named(stem.replace(SLASH, "/"))))
        except Invalid:
            strange.append(Stranger(printable(folder() / name), f"no channel of kind {ending!r} can have that name"))
    return sorted(found, key=lambda channel: (channel.name, channel.kind.name)), strange


def owner_of(name: str) -> tuple[Channel, bool] | None:
    """The channel that a file of the folder belongs to, by the file's name, and whether the file is one beside the channel's own."""
    stem, _, ending = name.rpartition(".")
    owners = _owners(name)
    for kind in owners.values():
        if (of := kind.layout.beside(name)) is not None:
            return Channel(kind, of), True
    kind_found = owners.get(ending)
    if name.startswith(".") or kind_found is None:
        return None
    with contextlib.suppress(Invalid):
        return Channel(kind_found, kind_found.named(stem.replace(SLASH, "/"))), False
    return None


def identity(channel: Channel) -> int:
    """A number that changes when a channel is removed and created again; 0 if it was removed, or if its kind has several files."""
    if channel.kind.layout.beside is not nothing_beside:
        return 0
    try:
        return memory.identity(channel) if channel.fake else os.stat(folder() / file_name(channel)).st_ino
    except OSError:
        return 0


def _owners(name: str) -> dict[str, Kind]:
    """The kinds that a file may belong to: a channel's file ends with its kind, and the files beside it begin with its name."""
    found = (kind_named(part) for part in kind_names() if part in name.split("."))
    return {kind.name: kind for kind in found if kind.memory is not None}


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(path: os.PathLike[str] | str) -> str:
    r"""A path as one line of text: bytes that are not UTF-8 as \xff, a newline as \n."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def new_epoch() -> int:
    """A random number of 63 bits, which tells the positions of a new channel from those of the one before it."""
    return int.from_bytes(os.urandom(8), "little") >> 1


@functools.cache
def boot_id() -> bytes:
    """Sixteen bytes that change with every boot; zeros if the kernel does not have them."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)
