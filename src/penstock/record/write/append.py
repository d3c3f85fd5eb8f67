"""Appends messages to an archive without a live channel, a batch at a time: each batch atomically, and each numbered batch once.

Each batch becomes one segment, whose index is named last. The frames are from a log within the process. Knows folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import whole
from penstock.channels.uri.channel import parse
from penstock.codecs import buffers
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError
from penstock.record.format import batches as batch_files
from penstock.record.format import intervals, removed, segment_totals, truncations
from penstock.record.format.archive_folder import ArchiveFolder, row_of
from penstock.record.format.batches import Batches, Entry
from penstock.record.format.coverage import Coverage, coverage_of
from penstock.record.format.folder import FORMAT, Description, RecordingFolder, Segment
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.format.types import Connector
from penstock.record.write.spool import Spool
from penstock.util.clock import Clock, ManualClock
from penstock.util.files.durable import fsync_folder, naming_path, open_private

log = logging.getLogger("penstock")

LOCK = ".appending"  # in the archive's folder: one program appends at a time
TERM_LENGTH = 1 << 18
TURN_BYTES = 16 << 20
RECORDING_LENGTH = 1 << 30
FRAME = 32  # bytes of a frame's header, and the frames' alignment


@dataclass(frozen=True)
class Appended:
    """Where a batch is: a recording, and the positions [start, end). is_new: False if an earlier call had appended it."""

    recording: int
    start: int
    end: int
    messages: int
    is_new: bool = True


@dataclass(frozen=True)
class Messages:
    """A batch. bodies: encoded messages. times_ns: their send times; None: now. codec: how readers decode them."""

    channel: str
    codec: codecs.Codec
    bodies: Iterable[bytes | memoryview]
    times_ns: Iterable[int] | None = None


@dataclass
class _Target:
    """A recording to append to, with how much it holds and its file `batches`."""

    folder: RecordingFolder
    about: Description
    holds: Coverage
    batches: Batches


def append(
    files: ArchiveFolder,
    connector: Connector,
    clock: Clock,
    messages: Messages,
    batch: tuple[str, int] | None,
    recording_length: int,
) -> Appended:
    """See `Archive.append`."""
    _check_channel(messages)
    if (found := _find_appended(_find_targets(files, messages.channel), batch)) is not None:
        return found
    # The caller's code runs before anything is locked: it may be slow, or append itself.
    with Spool(files.path, messages.bodies, messages.times_ns, clock, messages.channel) as spool, _exclusive(files):
        targets = _find_targets(files, messages.channel)
        if (found := _find_appended(targets, batch)) is not None:
            return found
        return _Appender(files, connector, clock).put(messages, spool, batch, targets, recording_length)


def check_batch(batch: Any) -> tuple[str, int] | None:
    """A batch's writer and number, or None. `Invalid` for anything else: a number of another type would stay in the recording."""
    if batch is None:
        return None
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not isinstance(batch[0], str) or not batch[0]:
        raise Invalid(f"batch is {batch!r}: it must be a writer's name and a number, as ('importer', 7)")
    return batch[0], whole(batch[1], "the number of the batch")


def _find_appended(targets: list[_Target], batch: tuple[str, int] | None) -> Appended | None:
    """Where a batch is that was appended before."""
    if batch is None:
        return None
    for target in reversed(targets):
        found = target.batches.find(*batch, target.holds.end_position)
        if found is not None:
            return Appended(target.about.id, found.start, found.end, found.messages, is_new=False)
    return None


def _check_channel(messages: Messages) -> None:
    """`Invalid` unless recordings of such a channel hold its messages unchanged, at the channel's positions."""
    kind, about = parse(messages.channel).kind, {"codec": messages.codec.spec}
    if not kind.in_process or kind.own_positions or kind.by_reference or kind.recorded_as(about) != about:
        raise Invalid(
            f"{messages.channel}: recordings of such channels hold more than messages: name the recording as of a log, as log:out"
        )


@contextlib.contextmanager
def _exclusive(files: ArchiveFolder) -> Iterator[None]:
    """Waits until no other program appends to the archive. The lock is the kernel's: it ends with its process."""
    fd = open_private(files.path / LOCK, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough: a child that was forked in the meantime has it open
        os.close(fd)


def _find_targets(files: ArchiveFolder, channel: str) -> list[_Target]:
    """The recordings of a channel that programs append to, oldest first."""
    found = []
    for folder in files.of_channel(channel):
        with contextlib.suppress(NotFound, FileNotFoundError):  # purged in the meantime
            expected = _is_appended(folder)
            if expected or batch_files.is_in(folder.path):
                about = folder.describe()
                holds = segment_totals.summarize(folder, about.start_position) or coverage_of(
                    folder, about.start_position
                )
                found.append(_Target(folder, about, holds, batch_files.read(folder.path, expected=expected)))
    return found


def _is_appended(folder: RecordingFolder) -> bool:
    """Whether programs append to the recording, by its mark."""
    try:
        mark = folder.mark()
    except Corrupt:
        return False  # repair writes it again
    return mark is not None and mark.appended


class _Appender:
    """Appends one batch."""

    def __init__(self, files: ArchiveFolder, connector: Connector, clock: Clock) -> None:
        self._files, self._connector, self._clock = files, connector, clock

    def put(
        self,
        messages: Messages,
        spool: Spool,
        batch: tuple[str, int] | None,
        targets: list[_Target],
        recording_length: int,
    ) -> Appended:
        """Appends to the newest recording, or begins another if that one was truncated, is full, or has another codec."""
        last = targets[-1] if targets else None
        if last is not None and last.holds.damage:
            raise Corrupt(f"{last.holds.damage}. Run repair before appending to this recording")
        extends = last is not None and self._continues(last, messages, recording_length)
        target, lock = (last, last.folder.lock()) if last is not None and extends else self._begin(last, messages)
        try:
            return self._append(target, spool, batch)
        except BaseException:
            if not extends:  # the new recording holds nothing
                with contextlib.suppress(PenstockError, OSError):
                    self._files.purge(target.folder, tell=lambda _: None)
            raise
        finally:
            target.folder.unlock(lock)

    def _continues(self, last: _Target, messages: Messages, recording_length: int) -> bool:
        """Whether a recording accepts more messages. A truncated one does not: readers have read other messages at these positions."""
        return (
            not truncations.known(last.folder.path)[0]
            and last.about.codec == messages.codec.spec
            and last.holds.bytes < recording_length
            and self._free_position(last) == last.holds.end_position
        )

    def _free_position(self, last: _Target) -> int | None:
        """Where the next message of the stream goes: behind what recordings hold, and behind what was purged. A position is never given
        twice: others have read another message there. None if it is unknown what was purged."""
        try:
            gone = removed.read(self._files.path).get((last.about.channel, last.about.epoch), [])
        except Corrupt:
            return None
        return max(last.holds.end_position, intervals.end_of(gone) if gone else 0)

    def _begin(self, last: _Target | None, messages: Messages) -> tuple[_Target, int]:
        """A new recording. It continues behind the last one, unless that one was truncated."""
        start, epoch, held = 0, secrets.randbits(63), Batches()
        if last is not None and not truncations.known(last.folder.path)[0]:
            free = self._free_position(last)
            if free is not None:
                start, epoch, held = free, last.about.epoch, last.batches
                held.forget_beyond(last.holds.end_position)
        about = Description(
            id=0,
            channel=messages.channel,
            epoch=epoch,
            start_position=start,
            term_length=TERM_LENGTH,
            initial_term_id=0,
            stream_id=0,
            created_ns=self._clock.now_ns(),
            codec=messages.codec.spec,
            format=FORMAT,
        )
        folder, about, lock = self._files.begin(about)
        try:
            batch_files.write(folder.path, held)
        except BaseException:
            folder.unlock(lock)
            raise
        return _Target(folder, about, Coverage(start), held), lock

    def _append(self, target: _Target, spool: Spool, batch: tuple[str, int] | None) -> Appended:
        """The segment, then the entry in `batches`, then the segment's name, which makes all of it visible."""
        folder, base, before = target.folder, target.holds.end_position, target.holds.messages
        folder.write_mark(SyncMarker(base, appended=True))  # closed at most up to here
        paths, segment = self._segment(target)
        try:
            with self._frames(target.about, base, spool) as turn:
                while turn(segment):
                    pass
            end, count = segment.position, segment.messages - before
            if end > base:
                segment.seal()
                segment.sync()
        except BaseException:
            del segment
            for path in (paths.data, paths.unnamed_index):
                path.unlink(missing_ok=True)
            folder.write_mark(SyncMarker(base, closed=bool(folder.segments()), appended=True))
            raise
        del segment
        if end == base:
            for path in (paths.data, paths.unnamed_index):
                path.unlink()
        else:
            if batch is not None:
                target.batches.add(batch[0], Entry(batch[1], base, end, count), base)
                batch_files.write(folder.path, target.batches)
            os.replace(paths.unnamed_index, paths.index)
            fsync_folder(folder.path)
            segment_totals.update(folder, target.about.start_position)
        folder.write_mark(SyncMarker(end, closed=True, appended=True))
        if base == target.about.start_position:
            with contextlib.suppress(PenstockError):  # a cache: if it is locked, do not wait
                self._files.catalog.note({target.about.id: row_of(folder)})
        return Appended(target.about.id, base, end, count)

    def _segment(self, target: _Target) -> tuple[Segment, _native.RecordingSegment]:
        """The files of the next segment. They replace the rest of one that a killed program left."""
        paths, about = target.folder.segment_paths(target.holds.end_position), target.about
        data = open_private(paths.data, os.O_RDWR | os.O_TRUNC)
        try:
            index = open_private(paths.unnamed_index, os.O_RDWR | os.O_TRUNC)
        except BaseException:
            os.close(data)
            raise
        with naming_path(paths.data):
            segment = _native.RecordingSegment(
                data_fd=data,
                data_path=str(paths.data),
                index_fd=index,
                index_path=str(paths.index),
                base=target.holds.end_position,
                term_length=about.term_length,
                initial_term_id=about.initial_term_id,
                stream_id=about.stream_id,
                recording=about.id,
                messages_before=target.holds.messages,
                entries=0,
                data_length=0,
            )
        return paths, segment

    @contextlib.contextmanager
    def _frames(self, about: Description, base: int, spool: Spool) -> Iterator[Any]:
        """A function that moves some frames into a segment, and returns whether there are more."""
        channel, clock = f"fake:log:append-{secrets.token_hex(8)}", ManualClock()
        first = base // about.term_length * about.term_length
        options = {"initial_term_id": about.initial_term_id, "stream_id": about.stream_id, "start_position": first}
        publication = self._connector.publish(channel, term_length=about.term_length, clock=clock, **options)
        try:
            while publication.position < base:  # a channel begins with a term: the recording has the frames before
                room = min(base - publication.position, publication.max_payload // FRAME * FRAME + FRAME)
                publication.offer(bytes(room - FRAME))
            subscription = self._connector.subscribe(channel, start=base)
            try:
                sending = _LogFiller(publication, clock, spool)
                yield lambda segment: sending.turn(subscription, segment)
            finally:
                subscription.close()
        except PenstockError as error:  # the user does not know that channel's name
            error.args = tuple(
                part.replace(channel, about.channel) if isinstance(part, str) else part for part in error.args
            )
            raise
        finally:
            publication.close()
            self._connector.remove(channel)


class _LogFiller:
    """Sends a batch into the log within the process, as far as there is room, and moves the frames into the segment."""

    def __init__(self, publication: Any, clock: ManualClock, spool: Spool) -> None:
        self._publication, self._clock, self._messages = publication, clock, iter(spool)
        self._next: bytes | None = None
        self._ended = False

    def turn(self, subscription: Any, segment: _native.RecordingSegment) -> bool:
        """One turn; False once all messages are in the segment."""
        offer, largest = self._publication.offer, self._publication.max_payload
        while True:
            if self._next is None and not self._fetch_next():
                break
            if self._next is not None and len(self._next) > largest:
                self._send_large(self._next, subscription, segment)
            elif offer(self._next) is None:
                break
            self._next = None
        while segment.record(subscription, TURN_BYTES):
            pass
        return not self._ended

    def _fetch_next(self) -> bool:
        """The next message and its time."""
        found = next(self._messages, None)
        self._ended = found is None
        if found is not None:
            self._clock.now_ns, self._next = found
        return not self._ended

    def _send_large(self, body: bytes, subscription: Any, segment: _native.RecordingSegment) -> None:
        """A message in several frames, which may be more than the log has room for."""
        failed: list[BaseException] = []

        def send() -> None:
            try:
                self._publication.send(body)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=send, name="penstock-append", daemon=True)
        thread.start()
        while thread.is_alive():
            if not segment.record(subscription, TURN_BYTES):
                thread.join(0.001)
        if failed:
            raise failed[0]


def as_messages(
    channel: str, codec: codecs.Codec, messages: Iterable[Any], times_ns: Iterable[int] | None, *, encoded: bool
) -> Messages:
    """A batch from a program's data. Raises `Invalid` at a message that the codec cannot encode."""

    if isinstance(messages, str | bytes | bytearray | memoryview | Mapping) or not isinstance(messages, Iterable):
        raise Invalid(
            f"{channel}: messages is a {type(messages).__name__}: give a list of messages, or another iterable"
        )
    if times_ns is not None and (isinstance(times_ns, str | bytes | Mapping) or not isinstance(times_ns, Iterable)):
        raise Invalid(f"{channel}: times_ns is {times_ns!r}: give a list of send times, one for each message")

    def bodies() -> Iterator[bytes]:
        for message in messages:
            yield codecs.encoded(codec, channel, message)

    def given() -> Iterator[bytes | memoryview]:
        for message in messages:
            yield buffers.buffer_of(channel, message)

    return Messages(channel, codec, given() if encoded else bodies(), times_ns)
