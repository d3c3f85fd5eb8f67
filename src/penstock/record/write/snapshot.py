"""A snapshot: what memory still has of some channels, as recordings, and what comes for a while afterwards. It needs no program that lives.

The recorder's own writers write it. Knows recordings and writers; channels come from a `Connector`.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.channels.checks import flag
from penstock.channels.uri.channel import parse
from penstock.channels.uri.value import AnyChannels
from penstock.channels.uri.wildcards import is_pattern
from penstock.errors import Busy, Invalid, NotFound, PenstockError, SystemFailure, Unsupported
from penstock.record.format import last_values
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.types import Connector, Progress
from penstock.record.read.planning.lister import Lister
from penstock.record.write import record_options, retention
from penstock.record.write.opener import Wanted, WriterOpener, any_subscription
from penstock.record.write.past import Past
from penstock.record.write.pattern_watch import PatternWatch
from penstock.record.write.recorder import SEGMENT_LENGTH, ThreadRecorder
from penstock.record.write.writer import PendingWriter, RecordingWriter, no_new_writers
from penstock.util import units
from penstock.util.clock import Clock

log = logging.getLogger("penstock")

SECOND = 10**9
LOOK_SECONDS = 0.2  # between looks at when it is to end
PROCESSES_MAX = 1000  # in a description
TEXT_MAX = 10_000  # characters of a note
ROOM_BYTES = 1 << 20  # for descriptions and indexes


@dataclass(frozen=True)
class SnapshotWish:
    """What a snapshot is to have. Times in nanoseconds; texts for the recordings' descriptions."""

    channels: tuple[str, ...]
    before_ns: int
    after_ns: int
    note: str
    trigger: str
    drop_after: float | None
    pixels: bool


@dataclass(frozen=True)
class SnapshotPart:
    """One channel's recording in a snapshot.

    held: seconds from its first message to the trigger; 0 if it has none from before. is_short: memory had not all of the time asked for:
    older messages had been overwritten. lost_bytes: of gaps in it. last_values: messages from before it, the newest of each key, of a log that
    keeps them. open_claims: of writers that live and had not committed them, with messages behind; they are not in it.
    """

    channel: str
    recording: int
    messages: int
    bytes: int
    lost_bytes: int
    held: float
    is_short: bool
    last_values: int = 0
    open_claims: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The result of `Archive.snapshot`. time_ns: of the trigger. left_out: a text for each channel that is not in it."""

    time_ns: int
    parts: tuple[SnapshotPart, ...]
    left_out: tuple[str, ...]

    @property
    def recordings(self) -> dict[str, int]:
        """Channel → id of its recording; the newest one of a channel that has several."""
        return {part.channel: part.recording for part in self.parts}

    @property
    def short(self) -> tuple[SnapshotPart, ...]:
        """The parts of which memory had less than was asked for."""
        return tuple(part for part in self.parts if part.is_short)


class Snapshotter:
    """Takes one snapshot into an archive."""

    def __init__(
        self, files: ArchiveFolder, lister: Lister, opener: WriterOpener, connector: Connector, clock: Clock
    ) -> None:
        self._files, self._lister, self._opener = files, lister, opener
        self._connector, self._clock = connector, clock
        self._made: list[RecordingWriter | PendingWriter] = []
        self._discovery: Any = None
        self._left_out: list[str] = []

    def take(self, wish: SnapshotWish, time_ns: int, end_ns: Callable[[], int] | None = None) -> Snapshot:
        """The snapshot around `time_ns`. Blocks until `after_ns` later, or as long as `end_ns()` is in the future. Nothing of it is left in the
        archive if there is no room."""
        there = self._find(wish.channels, goes_on=wish.after_ns > 0)
        self._check_not_recorded(there)
        past = Past(time_ns - wish.before_ns, self._describe(wish, time_ns, there))
        try:
            with self._naming_full_disk():
                self._open_all(wish, there, past)
            self._check_room()
            if not self._made and not wish.after_ns:
                return Snapshot(time_ns, (), tuple(self._left_out))
            recorder = self._start(wish, past)
        except BaseException:
            self._undo(writer.description.id for writer in self._release())
            raise
        return self._finish(recorder, past, end_ns or (lambda: time_ns + wish.after_ns), time_ns)

    def _find(self, channels: Sequence[str], *, goes_on: bool) -> list[str]:
        """The channels that exist. `NotFound` if a named one does not, or if no channel matches. What appears later is found by what looked here
        first: a channel may be removed and made again at any moment."""
        there = {name: None for name in channels if not is_pattern(name)}
        named = {str(parse(name)) for name in there}
        for name in there:
            self._connector.owners(name)  # raises NotFound
        self._discovery = self._connector.discover(
            [*(name for name in channels if is_pattern(name)), *(str(parse(name)) for name in there if goes_on)]
        )
        there |= dict.fromkeys(one for one in self._discovery.new() if one not in named)
        if not there:
            raise NotFound(f"no channel matches {', '.join(channels)}: penstock ls lists the channels that are there")
        return list(there)

    def _check_not_recorded(self, there: Sequence[str]) -> None:
        for info in self._lister.all():
            if info.state == "live" and info.channel in there:
                raise Busy(
                    f"{self._files.path} has a recorder that writes {info.channel} now (recording {info.id}), and its past is "
                    "in there: take the snapshot into another archive"
                )

    def _describe(self, wish: SnapshotWish, time_ns: int, there: Sequence[str]) -> dict[str, Any]:
        processes: dict[int, dict[str, Any]] = {}
        for channel in there:
            with contextlib.suppress(PenstockError):  # the recording will say what is wrong with it
                for pid, role, lives in self._connector.owners(channel):
                    found = processes.setdefault(pid, {"pid": pid, "lives": lives, "command": "", "roles": []})
                    found["roles"].append(f"{role} of {channel}")
                    if lives and not found["command"]:
                        found["command"] = _command(pid)
        return {
            "trigger": wish.trigger,
            "note": wish.note,
            "time_ns": time_ns,
            "before_s": wish.before_ns / SECOND,
            "after_s": wish.after_ns / SECOND,
            "processes": list(processes.values())[:PROCESSES_MAX],
        }

    def _open_all(self, wish: SnapshotWish, there: Sequence[str], past: Past) -> None:
        for channel in there:
            kind = parse(channel).kind
            if kind.own_positions and not wish.after_ns:
                if channel in wish.channels:
                    raise Unsupported(
                        f"{channel}: its messages are gone once they were read: give after, or leave it out"
                    )
                self._left_out.append(f"{channel} is left out: its messages are gone once they were read")
                continue
            try:
                writer = self._open(channel, wish, past)
            except PenstockError as error:
                if channel in wish.channels or getattr(error, "errno", None) == errno.ENOSPC:
                    raise
                self._left_out.append(f"{channel} is left out: {error}")
            else:
                self._made += filter(None, [writer])

    def _open(
        self, channel: str, wish: SnapshotWish, past: Past, wanted: Wanted = any_subscription
    ) -> RecordingWriter | PendingWriter | None:
        kind = parse(channel).kind
        # Where nothing arrives, there are only publications: their logs are read, and no socket is opened.
        sent = kind.sent_tap is not None and not self._connector.receives(channel)
        drop_after = None if kind.lossy else wish.drop_after
        return self._opener.open(
            channel, "newest", False, SEGMENT_LENGTH, drop_after, wish.pixels, sent, wanted=wanted, past=past
        )

    def _check_room(self) -> None:
        wanted = ROOM_BYTES
        for writer in self._made:
            if isinstance(writer, RecordingWriter):
                wanted += writer.subscription.lag
        free = shutil.disk_usage(self._files.path).free
        if wanted > free:
            raise SystemFailure(
                errno.ENOSPC,
                f"no room for a snapshot of {wanted:,} bytes: the disk of {self._files.path} has {free:,} bytes left; "
                "make room, name fewer channels or a shorter time before",
            )

    def _start(self, wish: SnapshotWish, past: Past) -> ThreadRecorder:
        new_writers = no_new_writers
        if wish.after_ns:

            def opened(name: str, _: str | int, wanted: Wanted) -> RecordingWriter | PendingWriter | None:
                try:
                    return self._open(name, wish, past, wanted)
                except PenstockError as error:
                    self._left_out.append(f"{name} is left out: {error}")
                    return None

            new_writers = PatternWatch(self._discovery, self._made, None, opened, self._connector.identity)
        return ThreadRecorder(
            [writer for writer in self._made if isinstance(writer, RecordingWriter)],
            self._files.catalog,
            sync_interval=1.0,
            clock=self._clock,
            waiting=[writer for writer in self._made if isinstance(writer, PendingWriter)],
            new_writers=new_writers,
            is_snapshot=True,
        ).start()

    def _finish(self, recorder: ThreadRecorder, past: Past, end_ns: Callable[[], int], time_ns: int) -> Snapshot:
        try:
            while (left := end_ns() - self._clock.now_ns()) > 0:
                if recorder.join(min(left / SECOND, LOOK_SECONDS)):
                    break
        finally:
            rows = self._stop(recorder)
        found = []
        for writer, row in zip(recorder.writers, rows, strict=True):
            info = self._lister.find(row.recording)
            if writer.unread:
                self._left_out.append(
                    f"{row.channel}: {writer.unread:,} bytes are left out: something in front of them is begun and not complete"
                )
            kept = last_values.read(info.path)
            count = 0 if kept is None else len(kept.values)
            if not info.messages and not info.lost_bytes and not count:
                self._undo([row.recording])
                continue
            held = max(0.0, (time_ns - info.time_min) / SECOND) if info.messages else 0.0
            short = past.is_short(writer.subscription)
            found.append(
                SnapshotPart(
                    row.channel,
                    row.recording,
                    info.messages,
                    info.bytes,
                    info.lost_bytes,
                    held,
                    short,
                    count,
                    writer.open_claims,
                )
            )
        return Snapshot(time_ns, tuple(found), tuple(self._left_out))

    def _stop(self, recorder: ThreadRecorder) -> list[Progress]:
        try:
            with self._naming_full_disk():
                return recorder.stop()
        except PenstockError:
            self._undo(row.recording for row in recorder.progress())
            raise

    @contextlib.contextmanager
    def _naming_full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise SystemFailure(
                errno.ENOSPC,
                f"no room for the snapshot: the disk of {self._files.path} is full, and nothing of it was kept. Make room, "
                "name fewer channels or a shorter time before",
            ) from error

    def _release(self) -> list[RecordingWriter]:
        for writer in self._made:
            writer.release()
        return [writer for writer in self._made if isinstance(writer, RecordingWriter)]

    def _undo(self, recordings: Iterable[int]) -> None:
        """Takes recordings of this snapshot out of the archive again."""
        for number in recordings:
            try:
                retention.purge(self._files, number, force=True)
            except (PenstockError, OSError) as error:
                log.warning("recording %d of a snapshot that failed is still there: %s", number, error)


def check_wish(
    channels: AnyChannels,
    before: float | str | datetime.timedelta,
    after: float | str | datetime.timedelta,
    note: str,
    trigger: str,
    drop_after: float | None,
    pixels: bool,
) -> SnapshotWish:
    """The arguments of `Archive.snapshot`. `Invalid` or `Unsupported` for a wrong one."""
    names = record_options.check_names(channels)
    flag(pixels, "pixels")
    record_options.check_options(names, drop_after, None, process=False, extend=False, pixels=pixels, sent=False)
    for text, name in ((note, "note"), (trigger, "trigger")):
        if not isinstance(text, str) or len(text) > TEXT_MAX:
            raise Invalid(f"{name} is {text!r:.200}: it must be a text of at most {TEXT_MAX:,} characters")
    span = units.seconds(before, "before")
    later = units.seconds(after, "after", zero=True)
    return SnapshotWish(tuple(names), int(span * SECOND), int(later * SECOND), note, trigger, drop_after, pixels)


def _command(pid: int) -> str:
    """A process's command line; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read(4096)
    except OSError:
        return ""
    return raw.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
