"""Notes of the snapshots that are being taken, in the archive's folder: a box that starts finds those of boxes that were killed.

A note is a file that its box holds locked. It outlives the box but not the machine, whose memory is gone then, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from penstock.util.files.durable import open_private

PREFIX = ".firing-"
LONGEST = 1 << 16  # bytes


@dataclass(frozen=True)
class Begun:
    """A trigger whose snapshot was begun, `tries` times."""

    trigger: str
    note: str
    time_ns: int
    tries: int = 1


class Note:
    """The note of one snapshot. It stays until `remove`, also if its process dies."""

    def __init__(self, begun: Begun, path: Path, fd: int) -> None:
        self.begun = begun
        self._path, self._fd = path, fd

    @classmethod
    def write(cls, archive: Path, begun: Begun) -> Self:
        """Makes a note. Nothing is synced: it need not outlive the machine."""
        path = archive / f"{PREFIX}{secrets.token_hex(8)}"
        fresh = path.with_name(f".new{path.name}")
        fd = open_private(fresh, os.O_RDWR | os.O_EXCL)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, msgspec.json.encode(begun))
            os.rename(fresh, path)
        except BaseException:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        return cls(begun, path, fd)

    def remove(self) -> None:
        """The snapshot is complete, or has failed, or another note is in place of this one."""
        with contextlib.suppress(
            OSError
        ):  # of a disk that cannot be written any more: the next box tells of it once more
            self._path.unlink(missing_ok=True)
        os.close(self._fd)


def find_unfinished(archive: Path) -> list[Note]:
    """The notes of boxes that died, the oldest first. This process holds them now. A note that is not well-formed is removed."""
    found = []
    for path in archive.glob(f"*{PREFIX}*"):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # its box lives
                os.close(fd)
                continue
            try:
                found.append(Note(msgspec.json.decode(os.read(fd, LONGEST), type=Begun), path, fd))
            except msgspec.MsgspecError:
                path.unlink()
                os.close(fd)
    return sorted(found, key=lambda note: note.begun.time_ns)
