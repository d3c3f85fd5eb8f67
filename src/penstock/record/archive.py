"""Archives: a folder of recordings with a catalog. Record, list, read, replay, follow, verify, repair.

Knows folders and the compiled scanner. Channels come from `Connector`, which the front door hands in.
"""

from __future__ import annotations

import builtins
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import parse
from penstock.clock import Clock, SystemClock
from penstock.errors import Corrupt, Invalid, NotFound
from penstock.record import verify as verification
from penstock.record.catalog import Catalog
from penstock.record.folder import Description, RecordingFolder, extent
from penstock.record.recorder import SEGMENT_LENGTH, Recorder, Track

if TYPE_CHECKING:
    import pyarrow as pa

FOR_EVER = (1 << 64) - 1
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
COLUMNS = {
    "stream": 1,
    "session": 2,
    "position": 4,
    "time": 8,
    "timestamp_ns": 16,
    "recorded_ns": 32,
    "flags": 64,
    "lost": 128,
    "payload": 256,
}


class Connector(Protocol):
    """How an archive reaches channels."""

    def subscribe(self, channel: str, **options: Any) -> Any:
        """An open subscription."""
        ...

    def publish(self, channel: str, **options: Any) -> Any:
        """An open publication."""
        ...

    def describe(self, channel: str, *, pixels: bool = False) -> dict[str, Any]:
        """epoch, term_length, initial_term_id, stream_id and codec of a channel that exists."""
        ...

    def record_in_process(self, archive: Path, channels: Sequence[str], options: dict[str, Any]) -> Any:
        """A recorder in a process of its own, with `Recorder`'s methods."""
        ...


@dataclass(frozen=True)
class RecordingInfo:
    """A recording at one moment. Positions and lengths in bytes, times in nanoseconds since the epoch.

    state: live (being recorded), closed, or crashed (its recorder died: readable up to `end_position`).
    """

    id: int
    channel: str
    state: str
    codec: dict[str, Any]
    start_position: int
    end_position: int
    synced_position: int
    messages: int
    bytes: int
    time_min: int
    time_max: int
    gaps: int
    lost_bytes: int
    segments: int
    created_ns: int
    epoch: int
    path: Path

    @property
    def seconds(self) -> float:
        """From the first message's send time to the last one's."""
        return (self.time_max - self.time_min) / 1e9


class Recorded(NamedTuple):
    """A message out of a recording. data is decoded by the channel's codec; position: of its first frame."""

    data: Any
    position: int
    time_ns: int
    session: int


class Archive:
    """A folder of recordings. Safe to open from several processes and threads at once.

    `recording` arguments are a recording's id, or a channel's URI, which means its newest recording.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, connector: Connector, create: bool = True, clock: Clock | None = None
    ) -> None:
        self.path = Path(path)
        self._connector, self._clock = connector, clock or SystemClock()
        if create:
            (self.path / "recordings").mkdir(parents=True, exist_ok=True)
        elif not (self.path / "recordings").is_dir():
            raise NotFound(f"there is no archive at {self.path}")
        self.catalog = Catalog(self.path / "catalog.sqlite")

    def __repr__(self) -> str:
        return f"<Archive {self.path}>"

    # ---- writing ----

    def record(
        self,
        channels: str | Sequence[str],
        *,
        start: str | int = "newest",
        process: bool = False,
        extend: bool = False,
        sync_interval: float = 1.0,
        segment_length: int = SEGMENT_LENGTH,
        drop_after: float | None = None,
        pixels: bool = False,
    ) -> Recorder:
        """Records channels from `start` on until the recorder is stopped, in a thread or in a process of its own.

        extend: go on with the newest recording of the same channel where it ended, if the channel still has that.
        sync_interval: seconds between making what was recorded durable. drop_after: rather lose than make the
        channel's writers wait longer than this; what was lost is recorded as a gap. pixels: of frames channels, record the
        frames themselves and not only what is said of them.
        """
        names = [channels] if isinstance(channels, str) else list(channels)
        if segment_length < 1 << 16 or sync_interval <= 0:
            raise Invalid("segment_length is at least 65536 bytes and sync_interval more than 0 seconds")
        if process:
            options = {
                "start": start,
                "extend": extend,
                "sync_interval": sync_interval,
                "segment_length": segment_length,
                "drop_after": drop_after,
                "pixels": pixels,
            }
            started: Recorder = self._connector.record_in_process(self.path, names, options)
            return started
        tracks: list[Track] = []
        try:
            for name in names:
                tracks.append(self._track(name, start, extend, segment_length, drop_after, pixels))  # noqa: PERF401
        except BaseException:
            for track in tracks:
                track.release()
            raise
        return Recorder(tracks, self.catalog, sync_interval=sync_interval, clock=self._clock).start()

    def _track(
        self,
        channel: str,
        start: str | int,
        extend: bool,
        segment_length: int,
        drop_after: float | None,
        pixels: bool = False,
    ) -> Track:
        pixels = pixels and parse(channel).kind == "frames"
        if extend:
            found = self._extendable(channel, pixels)
            if found is not None:
                subscription = self._subscribe(channel, found.end_position, drop_after, pixels)
                folder = self._folder(found.id)
                verification.close_crashed(folder)
                return Track(
                    folder, folder.describe(), subscription, segment_length, found.end_position, found.messages
                )
        subscription = self._subscribe(channel, start, drop_after, pixels)
        try:
            about = self._connector.describe(channel, pixels=pixels)
            now = self._clock.now_ns()
            number = self.catalog.reserve(channel, about["epoch"], now, subscription.position)
            while self._folder(number).path.exists():  # a catalog that was lost starts counting anew
                self.catalog.remove(number)
                number += 1
                self.catalog.add(number, channel, about["epoch"], now, subscription.position, subscription.position)
            description = Description(
                id=number, channel=channel, start_position=subscription.position, created_ns=now, **about
            )
            folder = RecordingFolder.create(self._folder(number).path, description)
            return Track(folder, description, subscription, segment_length, description.start_position, 0)
        except BaseException:
            subscription.close()
            raise

    def _subscribe(self, channel: str, start: str | int, drop_after: float | None, pixels: bool) -> Any:
        """A subscription for a recorder. A lossy channel that has left its position behind is joined at its newest end: the
        recorder finds the gap."""
        if not parse(channel).lossy:
            return self._connector.subscribe(channel, start=start, drop_after=drop_after)
        options = {"conflate": False, **({"pixels": True} if pixels else {})}
        if start == "earliest" or pixels:
            start = "newest"  # it keeps no past; with pixels, positions are the recording's own
        try:
            return self._connector.subscribe(channel, start=start, **options)
        except Invalid:
            if isinstance(start, str):
                raise
            return self._connector.subscribe(channel, **options)

    def _extendable(self, channel: str, pixels: bool) -> RecordingInfo | None:
        try:
            found, about = self.find(channel), self._connector.describe(channel, pixels=pixels)
        except NotFound:
            return None
        return found if (found.epoch, found.codec) == (about["epoch"], about["codec"]) else None

    # ---- looking ----

    def _folder(self, number: int) -> RecordingFolder:
        return RecordingFolder(self.path / "recordings" / f"{number:08d}")

    def folders(self) -> list[RecordingFolder]:
        """Every recording's folder, oldest first."""
        names = sorted(name for name in os.listdir(self.path / "recordings") if name.isdigit())
        return [RecordingFolder(self.path / "recordings" / name) for name in names]

    def list(self) -> list[RecordingInfo]:
        """All recordings, oldest first."""
        rows = self.catalog.rows()
        return [self._info(folder, rows) for folder in self.folders()]

    def _info(self, folder: RecordingFolder, rows: dict[int, Any]) -> RecordingInfo:
        about = folder.describe()
        holds = extent(folder, about.start_position)
        live = folder.is_live()
        synced = rows[about.id][4] if about.id in rows else about.start_position
        return RecordingInfo(
            id=about.id,
            channel=about.channel,
            state="live" if live else "damaged" if holds.damaged else "closed" if holds.sealed else "crashed",
            codec=about.codec,
            start_position=about.start_position,
            end_position=holds.end_position,
            synced_position=synced,
            messages=holds.messages,
            bytes=holds.bytes,
            time_min=holds.time_min,
            time_max=holds.time_max,
            gaps=holds.gaps,
            lost_bytes=holds.lost_bytes,
            segments=holds.segments,
            created_ns=about.created_ns,
            epoch=about.epoch,
            path=folder.path,
        )

    def find(self, recording: int | str) -> RecordingInfo:
        """One recording by id, or a channel's newest. `NotFound` names what there is."""
        return self._info(self._locate(recording), self.catalog.rows())

    def _locate(self, recording: int | str) -> RecordingFolder:
        if isinstance(recording, int):
            folder = self._folder(recording)
            if not folder.path.is_dir():
                known = ", ".join(str(int(f.path.name)) for f in self.folders()) or "none"
                raise NotFound(f"{self.path} has no recording {recording}; it has {known}")
            return folder
        channels = {folder: self._channel_of(folder) for folder in self.folders()}
        matching = [folder for folder, channel in channels.items() if channel == recording]
        if not matching:
            known = ", ".join(sorted({channel for channel in channels.values() if channel})) or "none"
            raise NotFound(f"{self.path} has no recording of {recording}; it has {known}")
        return matching[-1]

    @staticmethod
    def _channel_of(folder: RecordingFolder) -> str | None:
        try:
            return folder.describe().channel
        except (Corrupt, NotFound):
            return None  # damage to one recording is no reason to lose sight of the others

    def _number(self, recording: int | str | None) -> int | None:
        return recording if recording is None or isinstance(recording, int) else self.find(recording).id

    # ---- reading ----

    def scan(
        self,
        recording: int | str,
        *,
        columns: Sequence[str] = ("position", "timestamp_ns", "session", "payload"),
        start: int = 0,
        end: int = FOR_EVER,
        since: int = TIME_MIN,
        until: int = TIME_MAX,
        batch_rows: int = 32768,
        frames: bool = False,
    ) -> Scanner:
        """Whole messages that begin in positions [start, end) and were sent in nanoseconds [since, until], as batches.

        frames: single frames instead, fragments as they are.
        """
        folder = self._locate(recording)
        return Scanner(
            [(str(s.data), str(s.index)) for s in folder.segments() if s.base < end],
            folder.describe().channel,
            columns,
            start=start,
            end=end,
            since=since,
            until=until,
            batch_rows=batch_rows,
            frames=frames,
        )

    def read(self, recording: int | str, **options: Any) -> pa.Table:
        """A recording, or a part of it, as one Arrow table; options as in `scan`."""
        import pyarrow as pa

        scanner = self.scan(recording, **options)
        batches = list(scanner)
        return pa.Table.from_batches(batches, schema=None if batches else scanner.empty().schema)

    def replay(
        self,
        recording: int | str,
        *,
        start: int = 0,
        end: int = FOR_EVER,
        since: int = TIME_MIN,
        until: int = TIME_MAX,
        speed: float | None = None,
        decode: bool = True,
    ) -> Iterator[Recorded]:
        """Messages in their recorded order, decoded by the channel's codec unless told not to.

        speed: None as fast as they are read, 1.0 as they were sent, 2.0 twice as fast.
        """
        if speed is not None and not speed > 0:
            raise Invalid(f"speed is {speed!r}: it must be None or more than 0")
        about = self._locate(recording).describe()
        decoder = codecs.from_spec(about.codec).decode if decode else codecs.BYTES.decode
        scanner = self.scan(about.id, start=start, end=end, since=since, until=until, batch_rows=4096)
        begun, first = self._clock.monotonic(), None
        for batch in scanner:
            for message in _rows(batch, decoder):
                if speed is not None:
                    first = message.time_ns if first is None else first
                    ahead = begun + (message.time_ns - first) / 1e9 / speed - self._clock.monotonic()
                    if ahead > 0:
                        self._clock.sleep(ahead)
                yield message

    def replay_onto(
        self,
        channel: str,
        recording: int | str,
        *,
        speed: float | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> int:
        """Publishes a recording onto a channel, encoded as it was; how many messages. Options as in `replay`."""
        info = self.find(recording)
        frames = parse(channel).kind == "frames"
        with self._connector.publish(channel, **_as_recorded(info, frames)) as publication:
            count = 0
            for message in self.replay(info.id, speed=speed, decode=frames, **options):
                if frames:
                    publication.send(message.data.pop("pixels"), timeout, **message.data)
                else:
                    data = message.data if info.codec["kind"] != "pipe" else _body(message.data, info)
                    _native.Publication.send(publication, data, timeout)
                count += 1
        return count

    def follow(
        self, recording: int | str, *, start: int | None = None, timeout: float | None = None
    ) -> Iterator[Recorded]:
        """The recording from `start` (default: its beginning), then its channel live: no gap, no duplicate.

        Ends when the recording is closed and its channel gone, or raises TimeoutError when nothing came for `timeout`
        seconds.
        """
        info = self.find(recording)
        from penstock.record.follow import follow

        return follow(self, self._connector, info, info.start_position if start is None else start, timeout)

    # ---- keeping ----

    def verify(self, recording: int | str | None = None) -> builtins.list[verification.Damage]:
        """Checks every byte; what is wrong and where. An empty list: everything is as it was written."""
        return verification.verify(self, self._number(recording))

    def repair(self, recording: int | str | None = None) -> builtins.list[verification.Repair]:
        """Cuts damaged recordings back to their longest valid prefix and rebuilds the catalog.

        Nothing is deleted: what is cut off is moved into the recording's folder `damaged`.
        """
        return verification.repair(self, self._number(recording))

    def truncate(self, recording: int | str, position: int) -> int:
        """Cuts a closed recording at the last block that ends at or before `position`; where it ends now."""
        info = self.find(recording)
        return verification.truncate(self._folder(info.id), position)

    def purge(self, recording: int | str) -> None:
        """Deletes a recording that is not being written."""
        info = self.find(recording)
        folder = self._folder(info.id)
        lock = folder.lock()
        try:
            shutil.rmtree(folder.path)
            self.catalog.remove(info.id)
        finally:
            folder.unlock(lock)


class Scanner:
    """Batches of a recording's messages: an iterator of `pyarrow.RecordBatch`. One thread at a time."""

    def __init__(
        self,
        segments: list[tuple[str, str]],
        stream: str,
        columns: Sequence[str],
        *,
        start: int = 0,
        end: int = FOR_EVER,
        since: int = TIME_MIN,
        until: int = TIME_MAX,
        batch_rows: int = 32768,
        frames: bool = False,
    ) -> None:
        unknown = set(columns) - set(COLUMNS)
        if unknown:
            raise Invalid(f"no columns {sorted(unknown)}; there are {', '.join(COLUMNS)}")
        self._stream = stream
        self._mask = sum(COLUMNS[name] for name in set(columns))
        self._scan = _native.Scan(
            segments,
            start=start,
            end=min(end, FOR_EVER),
            time_min=since,
            time_max=until,
            columns=self._mask,
            stream=stream,
            batch_rows=batch_rows,
            batch_bytes=64 << 20,
            frames=frames,
        )

    @property
    def resume(self) -> int:
        """Where a later scan must begin to see every message that this one did not give out."""
        return self._scan.resume

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        import pyarrow as pa

        capsules = self._scan.next_batch(self._mask, self._stream)
        if capsules is None:
            raise StopIteration
        return pa.RecordBatch._import_from_c_capsule(*capsules)

    def empty(self) -> pa.RecordBatch:
        """A batch without rows, for its schema."""
        import pyarrow as pa

        nothing = _native.Scan(
            [], start=0, end=0, time_min=0, time_max=0, columns=self._mask, stream="", batch_rows=1, batch_bytes=1
        )
        return pa.RecordBatch._import_from_c_capsule(*nothing.empty_batch(self._mask, self._stream))


def _rows(batch: pa.RecordBatch, decode: codecs.Decode) -> Iterator[Recorded]:
    columns = {name: batch.column(name).to_pylist() for name in ("payload", "position", "timestamp_ns", "session")}
    for payload, position, time_ns, session in zip(*columns.values(), strict=True):
        try:
            yield Recorded(decode(payload), position, time_ns, session)
        except ValueError as error:
            raise Corrupt(f"the message at position {position} does not fit its channel's codec: {error}") from error


def _body(data: bytes, info: RecordingInfo) -> bytes:
    """What was sent in a recorded pipe's message."""
    _, _, begin, kind = codecs.pipe_parts(data)
    if kind & codecs.PARTS:
        raise Invalid(
            f"recording {info.id} of {info.channel} holds messages of several parts: replay() it and send them"
        )
    return data[begin:]


def _as_recorded(info: RecordingInfo, frames: bool) -> dict[str, Any]:
    """How to make a channel that a recording can be published onto."""
    if not frames:
        return {"codec": codecs.from_spec(info.codec.get("of", info.codec))}
    if not info.codec.get("pixels"):
        raise Invalid(
            f"recording {info.id} of {info.channel} holds no pixels: only a recording of frames made with pixels=True does"
        )
    return {"shape": info.codec["shape"], "dtype": info.codec["dtype"]}
