"""How far a bridge has come with one channel: a file beside the channels, which survives `kill -9` of the bridge.

Knows files and positions. It must never know a route or a handle.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import Any

import msgspec

from penstock.channels.storage import access, files
from penstock.errors import Busy

FOLDER = ".bridges"
SIZE = 8192  # bytes of the file
SESSIONS = 64  # that are remembered, of each kind


class Kept(msgspec.Struct):
    """What the file has. file: identifies the channel. position: where reading goes on; None at first. read: the same for each session of
    a channel that has several. own: sessions of the bridge's own publications onto this channel, which it does not send back. channels: of
    an address, the channels that were told of, and their codecs. latched: last values from before `position` have arrived."""

    file: int = 0
    position: int | None = None
    read: dict[int, int] = {}
    own: list[int] = []
    channels: dict[str, dict[str, Any]] = {}
    latched: bool = False


class Bookmark:
    """The file, and its content. One process has it at a time: `Busy` for another one. lasting: False: there is no file. is_new: no bridge of
    this name ran before."""

    def __init__(self, bridge: str, channel: str, *, lasting: bool) -> None:
        self.kept, self._fd, self.is_new = Kept(), -1, True
        if not lasting:
            return
        name = hashlib.blake2s(f"{bridge}\0{channel}".encode(), digest_size=16).hexdigest()
        folder = files.private_folder(FOLDER, create=True)
        self._length = SIZE  # of what was written last: the rest is blank
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._fd = access.open_own(name, at, folder)
        finally:
            os.close(at)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._fd, 0, SIZE)  # no later write finds the memory full
            with contextlib.suppress(msgspec.DecodeError):  # it is new
                found = os.pread(self._fd, os.fstat(self._fd).st_size, 0).rstrip(b"\0 ")
                self.kept, self.is_new = msgspec.json.decode(found, type=Kept), False
            self.save()
        except BlockingIOError:
            self.close()
            raise Busy(f"{channel}: another process has this bridge ({bridge}) already: end it first") from None
        except BaseException:
            self.close()
            raise

    def save(self) -> None:
        """Writes the content: one system call, which a kill does not cut."""
        kept = self.kept
        while len(kept.read) > SESSIONS:
            del kept.read[next(iter(kept.read))]
        del kept.own[:-SESSIONS]
        if self._fd >= 0:
            data = msgspec.json.encode(kept)
            os.pwrite(self._fd, data.ljust(self._length), 0)
            self._length = len(data)

    def close(self) -> None:
        """Lets another process have it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
