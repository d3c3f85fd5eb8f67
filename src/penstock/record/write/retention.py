"""Retention by bytes and by age. The oldest recordings are purged first, as a whole, except those that a consumer has yet to read.

A recorder with limits ends its recordings now and then and begins others, so that there is always an old one to delete. Knows recordings,
the list of recordings, and consumers.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import Busy, NotFound, PenstockError
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.types import RecordingInfo
from penstock.record.keep import purge_guard
from penstock.record.read.planning.lister import Lister
from penstock.record.write.opener import WriterOpener
from penstock.record.write.writer import RecordingWriter
from penstock.util.clock import Clock
from penstock.util.files.durable import own_errors

log = logging.getLogger("penstock")

PARTS = 8  # recordings that the limits divide a channel's messages into, about
CHECK_SECONDS = 10.0


@dataclass(frozen=True)
class Limits:
    """bytes: of all files of all recordings of some channels together. age_ns: of a recording's newest message. None: no limit."""

    bytes: int | None = None
    age_ns: int | None = None


@dataclass(frozen=True)
class Expired:
    """The result of `Archive.expire`. kept: a text for each recording that was due and could not be purged."""

    purged: tuple[RecordingInfo, ...]
    kept: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """How many bytes of the channels went; descriptions and indexes come on top."""
        return sum(info.bytes for info in self.purged)


def expire(
    files: ArchiveFolder,
    lister: Lister,
    limits: Limits,
    now_ns: int,
    wanted: Callable[[str], bool],
    *,
    force: bool,
    spared: Callable[[RecordingInfo], bool] = lambda info: False,
) -> Expired:
    """Purges recordings beyond the limits, the oldest first. Recordings that are being written, damaged or `spared` stay, and count."""
    found = [info for info in lister.all() if info.channel and wanted(info.channel)]
    sizes = {} if limits.bytes is None else {info.id: files_bytes(info) for info in found}
    total = sum(sizes.values())
    purged, kept = [], []
    for info in sorted(found, key=lambda info: (_newest_ns(info), info.id)):
        too_old = limits.age_ns is not None and _newest_ns(info) < now_ns - limits.age_ns
        too_many = limits.bytes is not None and total > limits.bytes
        if info.state in ("live", "damaged") or spared(info) or not (too_old or too_many):
            continue
        try:
            purge(files, info.id, force=force)
        except NotFound:
            pass  # another process was faster
        except (Busy, PenstockError, OSError) as error:
            kept.append(f"recording {info.id} of {info.channel} is kept: {error}")
            continue
        total -= sizes.get(info.id, 0)
        purged.append(info)
    return Expired(tuple(purged), tuple(kept))


@own_errors
def purge(files: ArchiveFolder, number: int, *, force: bool) -> None:
    """Deletes one recording that is not being written. `Busy` if a consumer has yet to read a part of it, unless forced."""
    folder = files.folder(number)
    if not folder.path.is_dir():
        raise NotFound(files.no_such(number))
    lock = folder.lock()
    try:
        if not force:
            purge_guard.check_read(files.path, folder)
        files.purge(folder, purge_guard.removal_noter(folder))
    finally:
        folder.unlock(lock)


def files_bytes(info: RecordingInfo) -> int:
    """The bytes of all files of a recording: what it has of its channel, indexes and descriptions."""
    total = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(info.path) as entries:  # another process purges it
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _newest_ns(info: RecordingInfo) -> int:
    """When a recording's newest message was sent, or when it was made."""
    return info.time_max if info.messages else info.created_ns


class Retention:
    """Keeps a recorder within limits. Called in the recorder's thread, before each turn over its channels."""

    def __init__(
        self, files: ArchiveFolder, lister: Lister, opener: WriterOpener, clock: Clock, limits: Limits
    ) -> None:
        self._files, self._lister, self._opener, self._clock, self._limits = files, lister, opener, clock, limits
        self._channels: set[str] = set()
        self._warned: set[str] = set()
        self._next = 0.0
        self.ended: list[Any] = []  # progress of recordings that were followed by another one, and are still there

    def __call__(self, running: list[RecordingWriter]) -> list[RecordingWriter]:
        """The writers after this turn: a recording that is long or old enough is continued in a new one."""
        self._channels.update(writer.description.channel for writer in running)
        found = [self._rotate(writer) for writer in running]
        if self._limits.bytes is not None:
            for writer in found:
                writer.bytes_max = self._limits.bytes // PARTS // len(found)
        if found != running or self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + CHECK_SECONDS
            self._expire()
        return found

    def _rotate(self, writer: RecordingWriter) -> RecordingWriter:
        if not self._is_due(writer):
            return writer
        writer.sync()
        if purge_guard.is_amid_a_message(writer.folder):
            return writer
        following = self._opener.follow(writer)
        self.ended.append(writer.progress)
        return following

    def _is_due(self, writer: RecordingWriter) -> bool:
        if writer.segment.messages == writer.messages_before:
            return False
        if (
            writer.bytes_max is not None
            and writer.segment.position - writer.description.start_position >= writer.bytes_max
        ):
            return True
        limit = self._limits.age_ns
        return limit is not None and self._clock.now_ns() - writer.description.created_ns >= limit / PARTS

    def _expire(self) -> None:
        now = self._clock.now_ns()
        done = expire(self._files, self._lister, self._limits, now, self._channels.__contains__, force=False)
        gone = {info.id for info in done.purged}
        self.ended = [one for one in self.ended if one.recording not in gone]
        for text in done.kept:
            what = text.partition(" is kept")[0]
            if what not in self._warned:
                self._warned.add(what)
                log.warning("%s", text)
