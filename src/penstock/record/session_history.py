"""What an archive has of the sessions of a `udp:` stream, for subscriptions that begin in the past. Knows recordings; reads no channel.

A session is one publication: its number and its initial term id, which both are random, name it on every machine. The host in a
recording's channel may be another one: a sender and its receivers name the same stream by different addresses.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from penstock import codecs
from penstock.channels.uri.channel import Channel, parse
from penstock.errors import DecodeError, Mismatch, NotFound, PenstockError, SystemFailure
from penstock.record.archive import Archive
from penstock.record.format.folder import RecordingFolder
from penstock.record.format.types import Recorded, RecordingInfo
from penstock.record.read.archive_reader import COLUMNS_REPLAYED
from penstock.record.read.replay import messages
from penstock.record.read.scan import FOR_EVER
from penstock.util.clock import SystemClock
from penstock.util.patient_calls import Unfinished, within

log = logging.getLogger("penstock")

Key = tuple[int, int]  # session, initial term id
LOOK_SECONDS = 0.1  # between two looks at the recordings, while something is missing
GROWS = ("live", "partial")  # states of recordings that may get more
RESTART_SECONDS = 2.0  # in which a recorder that ended may have begun again
SAY_SECONDS = 60.0  # between two warnings that the archive is away
OPEN_SECONDS = 1.0  # for the first answer of another machine's archive: a wrong address is told at once, silence is waited for later


class Mismatched(DecodeError, Mismatch):
    """A recorded message of another codec than the subscription's."""


class Run(NamedTuple):
    """Positions from `start` to `end` that a recording has without a gap."""

    key: Key
    info: RecordingInfo
    start: int
    end: int

    @property
    def may_grow(self) -> bool:
        """Whether the recording may go on here."""
        return self.info.state in GROWS and self.end == self.info.end_position


@dataclass
class _Scan:
    """How far a scan of a run came."""

    resume: int  # where it ended
    damaged: int = FOR_EVER  # where damage begins that is behind all its messages


class SessionHistory:
    """The recorded sessions of a stream. codec: of its messages; `Mismatch` stands for each one of another. lost: bytes that no recording
    has, of what was asked for."""

    def __init__(self, archive: str | os.PathLike[str], channel: Channel, codec: codecs.Codec | None) -> None:
        self._wanted_codec, self.codec = codec, codec
        self._where = archive
        self._opened: Archive | None = None
        self._wanted, self._channel = _place(channel.name), str(channel)
        self._clock = SystemClock()
        self._keys: dict[int, Key] = {}
        self._recordings: list[tuple[Key, RecordingInfo]] = []
        self._folders: dict[int, RecordingFolder] = {}  # as the last look found them
        self._runs: list[Run] = []
        self._counted: dict[Key, int] = {}  # up to where lost bytes were counted
        self._had: dict[Key, tuple[int, int]] = {}  # from where up to where recordings ever had a session, by all looks
        self._idle: dict[Key, float] = {}  # since when no recording of a session grows
        self._looked = self._said = float("-inf")
        self.why = ""  # the archive is away
        self.lost = 0
        with contextlib.suppress(Unfinished), within(OPEN_SECONDS):
            self._archive.list()

    @property
    def _archive(self) -> Archive:
        """The archive, opened once it answers."""
        if self._opened is None:
            self._opened = Archive(self._where, create=False)
        return self._opened

    def sessions(self) -> list[Key]:
        """The sessions of which there are recordings, in the order in which they were begun. Empty while the archive is away."""
        self._look()
        return list(dict.fromkeys(key for key, _ in self._recordings))

    def knows(self, key: Key) -> bool:
        """Whether there were recordings of a session at the last look."""
        return any(known == key for known, _ in self._recordings)

    def growing(self) -> set[Key]:
        """The sessions whose recordings may have got more since they were last looked at."""
        return {key for key, info in self._recordings if info.state in GROWS}

    def fill(self, key: Key, begin: int | None, end: int | None) -> Iterator[Recorded | DecodeError | None]:
        """A session's messages that begin from position `begin` on and before `end`, in order; None whenever they are not there yet.

        begin: within the last message that was given; None: none was, and what is missing in front was not asked for. end: None for what there is now. Ends when it has given all, or when no recording will have the rest: that is lost.
        """
        only_now, tried = end is None, set[tuple[int, int]]()
        counts = begin is not None or key in self._had
        at = self._had.get(key, (0, 0))[0] if begin is None else begin
        while end is None or at < end:
            self._look()
            mine = [run for run in self._runs if run.key == key]
            if end is None and self.why:
                yield None
                continue
            if end is None:
                had = at if begin is not None else self._had.get(key, (at, at))[1]
                end = max(
                    (run.end for run in mine), default=had
                )  # a recording that was purged before it was read is lost
                continue
            here = [run for run in mine if run.start <= at < run.end]
            one = _longest(run for run in here if (run.info.id, at) not in tried)
            if one is None:
                if not here and not only_now and self._may_get(key, at):
                    yield None
                    continue
                later = [run.start for run in mine if run.start > at]
                partly = [max(run.end for run in here)] if here else []  # a message that no recording has whole
                reached = min([*later, *partly, end])
                if counts and (later or not here or not only_now):
                    self._lose(key, at, reached)
                at = reached
                continue
            begun, scan = at, _Scan(at)
            for message in self._read(one, at, scan):
                if message is None:
                    yield None
                    break
                if message.position >= end:
                    at = end
                    break
                missing = 0 if isinstance(message, DecodeError) else min(message.lost, message.position - at)
                if missing and any(run.info.id != one.info.id for run in here) and (one.info.id, at) not in tried:
                    tried.add((one.info.id, at))  # a damaged block: another recording may have it
                    break
                if counts:
                    self._lose(key, message.position - missing, message.position)
                at, counts = message.position + 1, True
                yield message
            else:
                reached, gone = min(scan.resume, one.end), scan.damaged
                if gone < reached and any(run.start <= gone < run.end for run in mine if run.info.id != one.info.id):
                    at = max(at, gone)
                    tried.add((one.info.id, at))  # a damaged block: another recording may have it
                    continue
                if gone < reached and counts:
                    self._lose(key, max(at, gone), reached)
                at = max(at, reached)
                if at == begun and one.may_grow and not only_now:
                    yield None  # for the rest of a message
                elif at == begun:
                    tried.add((one.info.id, at))

    def _lose(self, key: Key, start: int, end: int) -> None:
        """Counts bytes that no recording has; each once."""
        start = max(start, self._counted.get(key, 0))
        if start < end:
            self.lost += end - start
            self._counted[key] = end

    def _may_get(self, key: Key, at: int) -> bool:
        """Whether a recording of a session may get what it has at a position, where none has it now: one grows, or may begin at once."""
        mine = [info for known, info in self._recordings if known == key]
        if self.why or not mine:
            return True
        if key in self._idle:
            return self._clock.monotonic() - self._idle[key] < RESTART_SECONDS
        return any(info.state in GROWS and info.end_position <= at for info in mine)

    def _read(self, run: Run, at: int, scan: _Scan) -> Iterator[Recorded | DecodeError | None]:
        """The messages of a run from a position on. None if the archive is away. scan: says afterwards how far it came."""
        info, last, codec = run.info, at, codecs.from_spec(run.info.codec)
        wrong = self._wanted_codec is not None and codecs.bare(self._wanted_codec.spec) != codecs.bare(info.codec)
        self.codec = self.codec or codec
        try:
            scanner = self._archive._scan(self._folders.get(info.id, info.id), COLUMNS_REPLAYED, at, run.end)
            for batch in scanner:
                for message in messages(batch, codec, info.channel):
                    last = message.position
                    yield self._mismatch(info, message) if wrong else message
            scan.resume = scanner.resume
            scan.damaged = min((one.start for one in scanner.left_out if one.end > one.start >= last), default=FOR_EVER)
        except NotFound:  # purged in the meantime
            self._looked = float("-inf")
        except SystemFailure as error:
            if error.errno == errno.ENOENT:  # purged, on another machine
                self._looked = float("-inf")
                return
            self._note_away(error)
            yield None

    def _mismatch(self, info: RecordingInfo, message: Recorded | DecodeError) -> DecodeError:
        assert self._wanted_codec is not None
        what = f"the codec {info.codec['kind']}, and this subscription asks for {self._wanted_codec.kind}"
        return Mismatched(f"{self._channel}: recording {info.id} has {what}", message.position)

    def _look(self) -> None:
        """Lists the recordings again, if the last time is a while ago."""
        now = self._clock.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        try:
            folders = self._archive.folders()
            self._folders = {folder.number: folder for folder in folders}
            looked = [one for one in self._archive._lister.layouts(None, folders) if self._is_wanted(one[0])]
            found = [(key, info, layout.copy()) for info, layout in looked if (key := self._key(info)) is not None]
        except (SystemFailure, NotFound) as error:
            self._note_away(error)
            return
        self.why = ""
        self._recordings = [(key, info) for key, info, _ in found]
        grow = {key for key, info in self._recordings if info.state in GROWS}
        self._idle = {key: self._idle.get(key, now) for key, _ in self._recordings if key not in grow}
        self._runs = []
        for key, info, layout in found:
            layout.close()
            for run in [Run(key, info, *interval) for interval in layout.intervals()]:
                first, last = self._had.get(key, (run.start, run.end))
                self._had[key] = min(first, run.start), max(last, run.end)
                self._runs.append(run)

    def _note_away(self, error: PenstockError) -> None:
        self.why = str(error)
        if not isinstance(error, Unfinished) and self._clock.monotonic() - self._said >= SAY_SECONDS:
            self._said = self._clock.monotonic()
            log.warning("%s: waits for its archive: %s", self._channel, error)

    def _is_wanted(self, info: RecordingInfo) -> bool:
        if info.damage:
            return False
        try:
            channel = parse(info.channel)
        except PenstockError:  # a kind that this version does not have
            return False
        return channel.kind.name == "udp" and _place(channel.name) == self._wanted

    def _key(self, info: RecordingInfo) -> Key | None:
        """The session of a recording; None as long as it has no message."""
        if info.id not in self._keys:
            folder = self._folders[info.id]
            try:
                for batch in self._archive._scan(folder, ("session",), 0, batch_rows=1):
                    if batch.num_rows:
                        initial = folder.describe().initial_term_id
                        self._keys[info.id] = batch.column(0)[0].as_py(), initial
                        break
            except NotFound:  # purged in the meantime
                return None
            except SystemFailure as error:
                if error.errno != errno.ENOENT:
                    raise
        return self._keys.get(info.id)


def _longest(runs: Iterable[Run]) -> Run | None:
    """The one that goes on the longest."""
    return max(runs, key=lambda run: run.end, default=None)


def _place(name: str) -> tuple[str, str]:
    """The port and the stream of a channel's name."""
    at, _, stream = name.rpartition("/")
    return at.rpartition(":")[2], stream
