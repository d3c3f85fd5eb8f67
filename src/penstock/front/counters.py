"""Counters of a program's own, such as frames that it threw away: words in shared memory, which any process adds to and reads.

A counter is one file of 64 bytes beside this user's channels. It outlives the processes that add to it, until the machine restarts.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

from penstock._native import core as _native
from penstock.channels.kind import check_name
from penstock.channels.storage import access, files
from penstock.errors import Invalid, NotFound, SystemFailure

FOLDER = ".counters"
Counter = _native.Counter


def counter(name: str) -> Counter:
    """The counter of that name, which begins at 0 if no process has it yet.

    name: as a channel's, such as ``camera/dropped``. `add` takes about as long as a call without work, and any thread, process or forked
    child may call it. The count is kept modulo 2**64. `penstock top` and Prometheus show all counters (`penstock_counter_total`).

    >>> dropped = penstock.counter("camera/dropped")
    >>> dropped.add()
    >>> dropped.add(2)
    >>> dropped.value
    3
    """
    if not isinstance(name, str):
        raise Invalid(f"a counter is named by a string such as 'camera/dropped', not by {type(name).__name__}")
    return _opened(str(files.folder()), check_name(name, "counter"))


@functools.lru_cache(maxsize=10_000)
def _opened(folder: str, name: str) -> Counter:
    files.private_folder(FOLDER, create=True)
    with files.opened_folder(create=False) as above:
        at = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    path = f"{folder}/{FOLDER}/{name}"
    try:
        fd = access.open_own(name.replace("/", files.SLASH), at, files.folder() / FOLDER)
        try:
            return _mapped(fd, name, path, at)
        finally:
            os.close(fd)
    except OSError as error:
        if isinstance(error, SystemFailure):
            raise
        raise SystemFailure(error.errno or 0, f"cannot open the counter {name} ({path}): {error.strerror}") from error
    finally:
        os.close(at)


def _mapped(fd: int, name: str, path: str, at: int) -> Counter:
    about = os.fstat(fd)
    if access.problem_of_file(about, at) or about.st_size not in (0, Counter.BYTES):
        raise SystemFailure(errno.EPERM, f"{path} is no counter of yours: remove it, or name another one")
    os.posix_fallocate(fd, 0, Counter.BYTES)  # now: a full file system must not become a signal later
    return Counter(fd, name)


def counters() -> dict[str, int]:
    """The counts of all counters beside the channels, by their names, sorted."""
    found = {}
    try:
        with files.opened_folder(create=False):
            names = os.listdir(files.private_folder(FOLDER))
    except (FileNotFoundError, NotFound):
        return {}
    for name in sorted(names):
        with contextlib.suppress(Invalid, SystemFailure):  # it is none
            found[name.replace(files.SLASH, "/")] = counter(name.replace(files.SLASH, "/")).value
    return found


@dataclass(frozen=True)
class Count:
    """A counter of the programs' own, and by how much it grew in a second since the last refresh."""

    counter: str
    value: int
    per_s: float


class Counts:
    """The counters at each look. clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._before, self._at = clock, dict[str, int](), 0.0

    def update(self) -> list[Count]:
        """The counters now."""
        found, now = counters(), self._clock()
        passed = max(now - self._at, 1e-9)
        rows = [
            Count(name, value, _grown(self._before.get(name, value), value) / passed) for name, value in found.items()
        ]
        self._before, self._at = found, now
        return rows


def _grown(before: int, now: int) -> int:
    """By how much a count grew. Counts go on at 0 behind 2**64 - 1, and begin again where their file was removed."""
    grown = (now - before) % 2**64
    return grown if grown < 2**63 else now


__all__ = ["Count", "Counts", "counter", "counters"]
