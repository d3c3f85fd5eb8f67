"""The logs of publications that have ended, which they leave for the recorders of `sent` that run: docs/design/network_log.md.

Knows names and locks. A log that all recorders have opened is removed here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import time
import weakref
from pathlib import Path

from penstock.channels.storage import access, files
from penstock.channels.uri.channel import Channel
from penstock.errors import Busy

log = logging.getLogger("penstock")

FOLDER = ".recorders"
RECORDERS = 64  # of one channel at once; a byte of the lock's file each
KEPT_NS = 5_000_000_000  # beside other recorders: they look at the folder every 50 ms
_LOCK = struct.Struct("hhqqi4x")  # the kernel's struct flock


class EndedLogs:
    """A recorder's hold: while it lasts, the channel's publications leave their logs when they end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = str(channel)
        self.folder = files.private_folder(FOLDER, create=True)
        self._name = f"{files.file_name(channel)}."
        self._fd = _open_lock(self.folder / f"{self._name}lock")
        try:
            self._take_byte()
        except BaseException:
            os.close(self._fd)
            raise
        self._missed = os.fstat(self._fd).st_size
        _all.add(self)

    def _take_byte(self) -> None:
        for byte in range(RECORDERS):
            try:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
        raise Busy(f"{self._channel} has {RECORDERS} recorders of what is sent, and takes no more: stop one")

    def paths(self) -> list[str]:
        """The logs that are there."""
        return _logs(self.folder, self._name)

    def missed(self) -> int:
        """How many publications ended unrecorded since the last call, because too many logs were waiting."""
        before, self._missed = self._missed, os.fstat(self._fd).st_size
        return self._missed - before

    def done_with(self, path: str) -> bool:
        """Removes a log that this recorder has opened. False while another recorder may need it."""
        with contextlib.suppress(FileNotFoundError):
            if _has_other(self._fd) and time.time_ns() - os.stat(path).st_ctime_ns < KEPT_NS:
                return False
            os.unlink(path)
        return True

    def close(self) -> None:
        """Gives the hold back, and removes what nobody waits for any more."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if not _has_other(fd):
                _remove(self.paths())
            os.close(fd)


def sweep(channel: Channel) -> bool:
    """Removes the logs that recorders which died had not opened. Whether there were any."""
    folder, name = files.private_folder(FOLDER), f"{files.file_name(channel)}."
    if paths := _logs(folder, name):
        with contextlib.suppress(OSError):
            fd = _open_lock(folder / f"{name}lock")
            try:
                if not _has_other(fd):
                    _remove(paths)
                    return True
            finally:
                os.close(fd)
    return False


def _open_lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, access.file_mode())
    if access.is_shared():
        with contextlib.suppress(PermissionError):  # another user of the group made it
            os.fchmod(fd, access.file_mode())
    return fd


def _has_other(fd: int) -> bool:
    """Whether another recorder holds a byte."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    return bool(_LOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)


def _logs(folder: Path, name: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return [
            f"{folder}/{one}" for one in os.listdir(folder) if one.startswith(name) and one[len(name) :].isdecimal()
        ]
    return []


def _remove(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


_all: weakref.WeakSet[EndedLogs] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child does not hold its parent's byte."""
    for one in list(_all):
        if one._fd >= 0:
            os.close(one._fd)
            one._fd = -1


os.register_at_fork(after_in_child=_close_in_child)
