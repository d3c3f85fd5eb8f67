"""Files that survive a crash and belong to their owner alone: private folders, atomic replacement, errors that name the path.

Knows system calls. It must never know channels, recordings or tables.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from penstock.errors import Corrupt, Invalid, PenstockError, SystemFailure
from penstock.util.errors_in_text import first_of
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
    return path.with_name(f"{prefix}{path.name}.{os.urandom(8).hex()}.{os.getpid()}.new")


def remove_left(path: Path) -> None:
    """Removes files and folders of `fresh_path` beside `path` whose processes died."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.new"):
        pid = left.name.split(".")[-2]
        if not pid.isdigit() or os.path.exists(f"/proc/{pid}"):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                left.unlink()


def folder_beside(path: Path, what: str) -> Path:
    """A new folder beside `path`, to be renamed to it when everything is in it. `Invalid` if `path` is there and is not an empty folder.

    Removes such folders of processes that died. what: the thing to be written, for the error.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise _taken(path, what)
    remove_left(path)
    made = fresh_path(path)
    try:
        made.mkdir(parents=True)
    except OSError as error:
        raise SystemFailure(error.errno or 0, f"{path} cannot be made: {error.strerror}") from error
    return made


def name_folder(made: Path, path: Path, what: str) -> None:
    """Gives the folder that `folder_beside` made its name. `Invalid` if another process has written there meanwhile."""
    try:
        os.replace(made, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise _taken(path, what) from error
        raise


def _taken(path: Path, what: str) -> Invalid:
    return Invalid(f"{path} exists and is not an empty folder: name a new one for {what}")


def tell_damage(damaged: Sequence[str], on_skip: Callable[[str], object] | None, place: object) -> None:
    """The end of a job that left out what was damaged: each text goes to `on_skip`, or `Corrupt` has the first."""
    if on_skip is not None:
        for text in damaged:
            on_skip(text)
    elif damaged:
        raise Corrupt(f"{first_of(damaged)}; everything else is in {place}")


def name_place(error: BaseException, work: str, place: str) -> None:
    """Makes an error's text name the requested place, not the folder of `folder_beside`."""
    if isinstance(error, SystemFailure) and error.strerror:
        error.args = error.args[0], error.strerror.replace(work, place)
        error.strerror = error.args[1]


def write_atomically(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Replaces a file's content. After a crash the file has the old content or the new one. private: only its owner may read it."""
    temporary = fresh_path(path)
    try:
        with (
            naming_path(temporary),
            open(temporary, "wb", opener=open_private if private else None) as file,
        ):
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_folder(path.parent)
