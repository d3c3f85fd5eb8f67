"""Files that survive a crash and belong to their owner alone: private folders, atomic replacement, errors that name the path.

Knows system calls. It must never know channels, recordings or tables.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from penstock.errors import PenstockError, SystemFailure
from penstock.util.strict import checks_names

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def own_errors(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function that raises this library's `SystemFailure` where a system call fails, and suggests a similar name for an unknown keyword."""

    @checks_names
    @functools.wraps(function)
    def careful(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return function(*given, **named)
        except PenstockError:
            raise
        except OSError as error:
            raise system_failure(error) from error

    return careful


def system_failure(error: OSError) -> SystemFailure:
    """A system call's error as this library's, with the path that it concerns."""
    what = error.strerror or str(error)
    return SystemFailure(error.errno or 0, f"{os.fsdecode(error.filename)}: {what}" if error.filename else what)


@contextlib.contextmanager
def naming_path(path: Path) -> Iterator[None]:
    """Within it, errors of system calls on descriptors name this path."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, PenstockError):
            error.filename = str(path)
        raise


def is_shortage(error: BaseException) -> bool:
    """Whether a system call failed for want of descriptors or memory, which is no fault of the file."""
    return getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EINTR)


def is_refusal(error: BaseException) -> bool:
    """Whether this user may not do it, which is no fault of the file either."""
    return getattr(error, "errno", None) in (errno.EACCES, errno.EPERM)


def make_folder(path: Path) -> Path:
    """Makes a folder that only its owner may enter, whatever the umask. An existing folder is not changed."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)
    return path


def open_private(path: str | Path, flags: int) -> int:
    """Opens a file that only its owner may read and write, whatever the umask; it is made if it does not exist. Its descriptor."""
    fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def free_name(folder: Path, name: str) -> str:
    """A name that is not taken in the folder: the given one, or the first free one with a number appended."""
    number, free = 0, name
    while os.path.lexists(folder / free):
        number += 1
        free = f"{name}.{number}"
    return free


def fsync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fresh_path(path: Path, prefix: str = ".") -> Path:
    """A name beside `path` for the file that will replace it. No other process or thread has it: process ids are not unique in containers."""
    return path.with_name(f"{prefix}{path.name}.{secrets.token_hex(8)}.{os.getpid()}.new")


def write_atomically(path: Path, text: str, *, private: bool = False) -> None:
    """Replaces a file's content. After a crash the file has the old content or the new one. private: only its owner may read it."""
    temporary = fresh_path(path)
    with (
        naming_path(temporary),
        open(temporary, "w", encoding="utf-8", opener=open_private if private else None) as file,
    ):
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    fsync_folder(path.parent)
