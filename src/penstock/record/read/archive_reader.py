"""Questions to archives: their recordings, as lists, batches, tables and messages; and played again onto channels.

The half of `Archive` that changes nothing. Channels come from `Connector`.
"""

from __future__ import annotations

import builtins
import itertools
import os
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import codecs
from penstock.channels.checks import callback, flag, limit_of, more_than_zero, texts, whole
from penstock.channels.uri.value import AnyChannel, AnyChannels, uris_of
from penstock.channels.uri.wildcards import matches, matches_any
from penstock.errors import DecodeError, Invalid, NotFound, Unsupported
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.catalog import Catalog
from penstock.record.format.folder import Description, RecordingFolder
from penstock.record.format.layout import Layout
from penstock.record.format.remote_archive import RemoteArchive
from penstock.record.format.types import Connector, Recorded, RecordingInfo, Recordings
from penstock.record.read import late, player
from penstock.record.read import replay as replaying
from penstock.record.read.archive_watch import ArchiveWatch
from penstock.record.read.follow import follow
from penstock.record.read.pace import Pace
from penstock.record.read.planning.lister import Lister
from penstock.record.read.planning.needed_segments import changes, segments_for
from penstock.record.read.planning.plan import ReadPlanner
from penstock.record.read.player import Played
from penstock.record.read.scan import FOR_EVER, TIME_MAX, TIME_MIN, Scanner, span
from penstock.util.clock import Clock, SystemClock
from penstock.util.extras import explain_missing
from penstock.util.files.durable import own_errors
from penstock.util.files.storage import text_of, where
from penstock.util.files.uris import is_uri
from penstock.util.patient_calls import in_time
from penstock.util.strict import Strict, checks_names
from penstock.util.units import Moment, interval

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_READ = ("position", "timestamp_ns", "session", "payload")
COLUMNS_REPLAYED = (*COLUMNS_READ, "lost")


class ArchiveReader(Strict):
    """Lists, reads and replays an archive."""

    def __init__(
        self, path: str | os.PathLike[str], *, connector: Connector, create: bool = True, clock: Clock | None = None
    ) -> None:
        flag(create, "create")
        path = text_of(path, "the archive")
        if not path:  # pathlib would take it for the current folder
            raise Invalid("an archive's path is empty: name its folder, or write '.' for the current one")
        self._connector, self._clock = connector, clock or SystemClock()
        place = where(path, "the archive")
        self._files = (
            own_errors(ArchiveFolder)(Path(place.path if is_uri(path) else path), create=create)
            if place.is_local
            else RemoteArchive(place)
        )
        self._lister = Lister(self._files)

    @property
    def path(self) -> Path:
        """Its folder, or its place on an object storage or another machine."""
        return self._files.path

    @property
    def catalog(self) -> Catalog:
        """The database of this archive's recordings: a cache of their folders."""
        return self._files.catalog

    def __repr__(self) -> str:
        return f"<Archive {self.path}>"

    def _writable(self) -> None:
        if isinstance(self._files, RemoteArchive):
            raise Unsupported(f"{self.path} is on {self._files.what}, where recordings can only be read")

    # ---- looking ----

    @own_errors
    def folders(self) -> builtins.list[RecordingFolder]:
        """Every recording's folder, oldest first."""
        return self._files.folders()

    @own_errors
    def list(self) -> Recordings:
        """All recordings, oldest first. One that is damaged is among them and hides no other."""
        return Recordings(self._lister.all())

    def _repr_html_(self) -> str:
        return self.list()._repr_html_(f"Archive {self.path}")

    @own_errors
    def channels(self, patterns: AnyChannels = "*") -> set[str]:
        """The recorded channels that match one of the patterns. `NotFound` for a pattern that matches none."""
        there = {info.channel for info in self._lister.all() if info.channel}
        asked = player.check_patterns(patterns)
        for pattern in asked:
            if pattern != "*" and not any(matches(pattern, channel) for channel in there):
                raise NotFound(
                    f"{self.path} has no recording of {pattern}; it has {', '.join(sorted(there)) or 'none'}"
                )
        return {channel for channel in there if matches_any(asked, channel)}

    @property
    @own_errors
    def id(self) -> str:
        """A name that no other archive has. A copy that was pushed to an object storage has the name of the archive it was pushed from."""
        return self._files.identity()

    @own_errors
    def watch(self, channels: Collection[AnyChannel] | None = None) -> ArchiveWatch:
        """An incremental view of the archive for readers that follow it. A refresh costs only as much as the new data. channels: only these."""
        wanted = None if channels is None else texts(uris_of(channels), "channels", "channels")
        return ArchiveWatch(self._files, self._lister, self._clock, wanted)

    def _layouts(self, channels: Collection[str] | None) -> Iterator[tuple[RecordingInfo, Layout]]:
        """The recordings of some channels, with the locations of their blocks, for planning. A second call reads only new data."""
        return self._lister.layouts(channels)

    @own_errors
    def find(self, recording: int | AnyChannel) -> RecordingInfo:
        """One recording by id, or a channel's newest. `NotFound` names the recordings that there are."""
        return self._lister.find(recording)

    @own_errors
    def _about(self, recording: int | AnyChannel) -> Description:
        return self._lister.locate(recording).describe()

    # ---- reading ----

    @own_errors
    def scan(
        self,
        recording: int | AnyChannel,
        *,
        columns: Sequence[str] = COLUMNS_READ,
        start: int | str = 0,
        end: int = FOR_EVER,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        batch_rows: int = 32768,
        frames: bool = False,
    ) -> Scanner:
        """Whole messages that begin in positions [start, end) and were sent from `since` to `until`, as batches.

        A damaged block is left out as a gap: it counts in the column `lost`, `left_out` of the scanner names it, and a warning in the log
        says it. `verify` is the way to know before. `NotFound` if the recording is purged or truncated during the scan.

        since, until: datetimes with a time zone, texts as "2026-01-31T12:00Z" or "10m ago", or nanoseconds since the epoch; both
        inclusive. frames: single frames instead, fragments as they are. start: of a log that keeps last values also "last": first the newest
        message of each key from before the recording, or before `since`.
        """
        return self._scan(recording, columns, start, end, since, until, batch_rows, frames)

    def _scan(
        self,
        recording: int | AnyChannel | RecordingFolder,
        columns: Sequence[str],
        start: int | str,
        end: int = FOR_EVER,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        batch_rows: int = 4096,
        frames: bool = False,
        logged: set[str] | None = None,
    ) -> Scanner:
        """recording: its folder, too, as it was looked at. logged: damage that was logged."""
        begin, end = span(0 if late.is_late(start) else start, end)
        since, until = interval(since, until, self._clock.now_ns)
        folder = recording if isinstance(recording, RecordingFolder) else self._lister.locate(recording)
        about = folder.describe()
        meanwhile = changes(folder, about.channel)
        needed = segments_for(folder, about.start_position, begin, end)
        scanner = Scanner(
            needed.segments,
            about.channel,
            columns,
            start=begin,
            end=end,
            since=since,
            until=until,
            batch_rows=batch_rows,
            frames=frames,
            open=folder.opener,
            recording=folder.number,
            meanwhile=meanwhile,
            logged=logged,
            **needed.options(),
        )
        if late.is_late(start):
            earlier = self._scan(folder, COLUMNS_READ, 0, until=since - 1) if since > TIME_MIN else ()
            scanner.ahead = late.batch(late.values(folder, about, until, earlier), about.channel, scanner.empty())
        return scanner

    @checks_names
    def read(
        self,
        recording: int | AnyChannel,
        *,
        columns: Sequence[str] = COLUMNS_READ,
        decode: bool = False,
        start: int | str = 0,
        end: int = FOR_EVER,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        batch_rows: int = 32768,
        frames: bool = False,
    ) -> pa.Table:
        """A recording, or a part of it, as one Arrow table; options as in `scan`.

        decode: with the codec's columns, typed as in the pipeline's tables, and with `decode_error`: a text where a message does
        not fit the codec.
        """
        with explain_missing("reading a recording"):
            import pyarrow as pa

        asked = columns
        if flag(decode, "decode"):
            columns = texts(columns, "columns", "names of columns")
            from penstock.record.read import typed_columns

            typed_columns.check(columns, frames)
            asked = [*columns, *({"payload"} - set(columns))]
        scanner = self.scan(
            recording,
            columns=asked,
            start=start,
            end=end,
            since=since,
            until=until,
            batch_rows=batch_rows,
            frames=frames,
        )
        if decode:
            batches = list(scanner) or [scanner.empty()]
            return typed_columns.table(batches, columns, self._about(recording).codec)
        batches = list(scanner)
        return pa.Table.from_batches(batches, schema=None if batches else scanner.empty().schema)

    @checks_names
    def replay(
        self,
        recording: int | AnyChannel,
        *,
        start: int | str = 0,
        end: int = FOR_EVER,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        speed: float | None = None,
        decode: bool = True,
        on_skip: Callable[[str], None] | None = None,
    ) -> Iterator[Recorded]:
        """Messages in their recorded order, decoded by the channel's codec unless `decode` is False.

        speed: None as fast as they are read, 1.0 as they were sent, 2.0 twice as fast. since, until: as in `scan`. A message that does not decode
        raises `DecodeError`; the next call of `next` continues behind it. Missing bytes in front of a message, also damaged ones, are in its `lost`.
        on_skip: called with a text for each part left out. `NotFound` if it is purged or truncated meanwhile, `Busy` for two threads at once.
        """
        flag(decode, "decode")
        callback(on_skip, "on_skip")
        found = self._replay(recording, start, end, since, until, speed, decode, on_skip)
        return replaying.PassingOver(recording, found)

    def _replay(
        self,
        recording: int | AnyChannel,
        start: int | str,
        end: int,
        since: Moment,
        until: Moment,
        speed: float | None,
        decode: bool,
        on_skip: Callable[[str], None] | None,
    ) -> Generator[Recorded | DecodeError, None, None]:
        if speed is not None:
            more_than_zero(speed, "speed")
        about = self._about(recording)
        codec = codecs.from_spec(about.codec) if decode else codecs.BYTES
        scanner = own_errors(self._scan)(about.id, COLUMNS_REPLAYED, start, end, since, until)
        yield from replaying.in_rhythm(scanner, codec, about.channel, speed, self._clock, on_skip)

    @checks_names
    def replay_onto(
        self,
        recording: int | AnyChannel,
        channel: AnyChannel,
        *,
        speed: float | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        start: int | str = 0,
        end: int = FOR_EVER,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        on_skip: Callable[[str], None] | None = None,
    ) -> int:
        """Publishes a recording onto a channel, each message with its original encoding; returns their number. Options as in `replay`.

        timeout: seconds that a message waits for room. limit: how many messages at most.
        """
        limit_of(timeout)
        if limit is not None:
            whole(limit, "limit", 0, sys.maxsize)
        info = self.find(recording)
        decode = replaying.holds_frames(channel)
        span: dict[str, Any] = {"start": start, "end": end, "since": since, "until": until}
        replayed = self.replay(info.id, speed=speed, decode=decode, on_skip=on_skip, **span)
        found = itertools.islice(replayed, limit)
        return replaying.publish(self._connector, channel, info, found, timeout)

    @checks_names
    def play(
        self,
        channels: AnyChannels = "*",
        *,
        onto: str | Mapping[Any, AnyChannel] | None = None,
        speed: float | None = 1.0,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        timeout: float | None = None,
        progress: Callable[[str, int, int], None] | None = None,
        start: float = 0.0,
        loop: bool = False,
        pace: Pace | None = None,
        clock: AnyChannel | None = None,
        recorded_times: bool = False,
    ) -> Played:
        """Publishes all recordings again on one clock, in the order of send times: the whole archive, in its original rhythm.

        channels: URIs and patterns; a pattern skips channels whose messages go to one reader each. onto: a prefix for the names
        ("again/": log:imu is published onto log:again/imu), or a mapping of channels to channels; without it each channel is played onto
        itself. speed: 1.0 as they were sent, 2.0 twice as fast, None as fast as possible. since, until: as in `scan`. timeout: seconds that a
        message waits for room. progress: called with (what, messages done, messages in all). start: begins so many recorded seconds behind the
        first message. loop: begins again at the end, until `pace.stop()` or an exception. pace: in the place of `speed`, a pace that other threads change.
        clock: a channel for the recorded time, as ROS 2's `/clock` in JSON: `{"clock": {"sec": 1, "nanosec": 0}}`, 40 times a second.

        recorded_times: messages have the times that were recorded, instead of those at which they are sent now; `Unsupported` onto `udp:`.

        Messages keep their encoding and each channel its codec. Of logs that keep last values, the newest message of each key from before is
        published first. Memory is bounded by the number of channels. Where recordings overlap, each message is played once.
        """
        if pace is not None and speed != 1.0:
            raise Invalid("speed and pace: the pace has a rate of its own")
        if speed is not None:
            more_than_zero(speed, "speed")
        if pace is not None and not isinstance(pace, Pace):
            raise Invalid(f"pace is {pace!r}: it must be a penstock.record.Pace")
        asked = player.check_patterns(channels)
        callback(progress, "progress")
        flag(loop, "loop")
        flag(recorded_times, "recorded_times")
        limit_of(timeout)
        span = interval(since, until, self._clock.now_ns)
        found = player.chosen(self.channels(asked), asked)
        onto = player.check_onto(onto, found, recorded_times=recorded_times)
        player.check_clock(clock, onto, found)
        plan = player.plan(ReadPlanner(self, found), span, start)
        one = player.Player(self._connector, self._clock, timeout, clock, recorded_times=recorded_times)
        return one.run(plan, onto, pace or Pace.steady(speed), progress or (lambda what, done, count: None), loop=loop)

    @checks_names
    def follow(
        self, recording: int | AnyChannel, *, start: int | None = None, timeout: float | None = None
    ) -> Iterator[Recorded]:
        """The recording from `start` (default: its beginning), then its channel live: no gap, no duplicate.

        Iteration ends at the end of the recording, as with `subscribe(..., until_end=True)`: when no recorder writes the recording
        any more and everything in it was yielded, and everything in the recordings that continue it. Its channel may be gone by then. If the recorder
        died, a warning is logged. `TimedOut` if no message arrived for `timeout` seconds, or if another machine does not answer within them. A message
        that does not decode raises `DecodeError`; the next call of `next` continues behind it. `Busy` if two threads use one iterator at once.
        """
        limit = limit_of(timeout)
        if start is not None:
            whole(start, "start", 0, FOR_EVER)
        with in_time(limit, f"{self.path}"):
            info = self.find(recording)

        def find(number: int) -> tuple[RecordingInfo, RecordingFolder]:
            return self._lister.find(number), self._files.folder(number)

        logged: set[str] = set()

        def scan(folder: RecordingFolder, position: int) -> Scanner:
            return self._scan(folder, COLUMNS_REPLAYED, position, logged=logged)

        how = (scan, self._connector, self._clock, find, info.id, start, limit_of(timeout, info.channel))
        return replaying.PassingOver(info.channel, follow(*how))
