"""Plans the reading of an archive in parts: ranges of whole blocks, of about equal size, without overlap.

Knows indexes only; reads no message. Where recordings of one channel overlap, each position is planned once, and what one of them
has is lost to none. Damage in a recording is a gap of it.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from penstock.channels.checks import whole
from penstock.record.format import intervals, truncations
from penstock.record.format.folder import RecordingFolder
from penstock.record.format.intervals import Interval
from penstock.record.format.layout import Layout, summed
from penstock.record.format.remote_archive import folder_at
from penstock.record.format.truncations import Truncation
from penstock.record.format.types import RecordingInfo
from penstock.record.read.planning.lister import generations
from penstock.record.read.planning.ranges import Range
from penstock.record.read.scan import FOR_EVER
from penstock.util.files.durable import own_errors
from penstock.util.units import nanoseconds

log = logging.getLogger("penstock")

Stream = tuple[str, int]  # a channel, and the epoch that its positions belong to


@dataclass(frozen=True)
class Lost:
    """Positions [start, end) of a stream that recorders missed and that no recording has. noted_ns: when that was found."""

    channel: str
    epoch: int
    start: int
    end: int
    noted_ns: int


class RecordingSource(Protocol):
    """An archive, as far as planning needs one."""

    def folders(self) -> list[RecordingFolder]:
        """Its recordings' folders."""
        ...

    def _layouts(self, channels: Collection[str] | None) -> Iterable[tuple[RecordingInfo, Layout]]:
        """Its recordings, oldest first, with the locations of their blocks. channels: only these, if they are known."""
        ...


def subtract(interval: Interval, taken: list[Interval]) -> list[Interval]:
    """The parts of [start, end) that none of `taken` covers."""
    parts, at = [], interval[0]
    for low, high in sorted(taken):
        if high <= at:
            continue
        if low >= interval[1]:
            break
        if low > at:
            parts.append((at, low))
        at = max(at, high)
    if at < interval[1]:
        parts.append((at, interval[1]))
    return parts


@dataclass
class PlannedRecording:
    """A recording with its blocks and gaps."""

    info: RecordingInfo
    layout: Layout


@dataclass
class ReadPlanner:
    """The content of an archive's indexes, read once: recordings to plan, their cuts, and the positions that no recording has.

    channels: only these. on_skip: called with a message for each damaged recording; the plan leaves the damaged part out.
    """

    archive: RecordingSource
    channels: set[str] | None = None
    on_skip: Callable[[str], None] = log.warning
    recordings: list[PlannedRecording] = field(default_factory=list, init=False)
    cuts: list[tuple[RecordingInfo, Truncation]] = field(default_factory=list, init=False)
    _streams: dict[Stream, list[PlannedRecording]] = field(default_factory=dict, init=False, repr=False)

    @own_errors
    def __post_init__(self) -> None:
        # Before the indexes: a reader that checks too early forgets too much, and reads it again.
        noted = {folder.path: truncations.known(folder.path) for folder in self.archive.folders()}
        for info, layout in self.archive._layouts(self.channels):
            if self.channels is not None and info.channel and info.channel not in self.channels:
                continue  # a damaged one, by the catalog
            found, wrong = noted.get(info.path, ([], ""))
            damage = info.damage or wrong
            if damage and info.path.is_dir():  # and was not purged in the meantime
                self.on_skip(damage_of(info, damage, bool(layout.extents)))
            if not info.channel:  # unknown: its description is damaged
                continue
            self.cuts += [(info, cut) for cut in found]
            self.recordings.append(PlannedRecording(info, layout))

    @classmethod
    def of(cls, recordings: list[PlannedRecording]) -> ReadPlanner:
        """A survey of recordings whose indexes have been read."""
        made = cls.__new__(cls)
        made.channels, made.on_skip = None, log.warning
        made.recordings, made.cuts, made._streams = recordings, [], {}
        return made

    def lost(self, done: dict[Stream, list[Interval]] | None = None) -> list[Lost]:
        """Losses of recorders that no recording has, in order. done: was read from recordings that may have been removed."""
        if not any(one.layout.gaps for one in self.recordings):
            return []
        found: list[Lost] = []
        taken = {key: intervals.union(value) for key, value in self.held(done).items()}
        for one in self.recordings:
            key, gaps, number = (one.info.channel, one.info.epoch), one.layout.gaps, 0
            missed = intervals.without([(start, end) for start, end, _ in gaps], taken[key])
            for start, end in missed:
                while gaps[number][1] <= start:
                    number += 1
                found.append(Lost(*key, start, end, gaps[number][2]))
            if missed:
                taken[key] = intervals.union(taken[key], missed)  # several recordings may have missed the same
        return sorted(found, key=lambda gap: (gap.channel, gap.epoch, gap.start))

    def held(self, done: dict[Stream, list[Interval]] | None) -> dict[Stream, list[Interval]]:
        """Which positions the recordings have, or `done` has."""
        held = {key: list(value) for key, value in (done or {}).items()}
        for one in self.recordings:
            mine = held.setdefault((one.info.channel, one.info.epoch), [])
            mine += one.layout.intervals()
        return held

    def of_consumer(self, done: dict[Stream, list[Interval]]) -> dict[Stream, list[Interval]]:
        """The same positions under the names that consumers use: a recording with its own positions is another stream after each truncation."""
        found = dict(done)
        for one in self.recordings:
            info = one.info
            cut = [cut for other, cut in self.cuts if other.id == info.id]
            epoch = generations(info.channel, info.epoch, info.codec, cut)[-1][0]
            found[info.channel, epoch] = done.get((info.channel, info.epoch), [])
        return found

    def plan(
        self,
        *,
        since: int | None = None,
        until: int | None = None,
        start: int = 0,
        end: int = FOR_EVER,
        done: dict[Stream, list[Interval]] | None = None,
        range_bytes: int = 64 << 20,
    ) -> list[Range]:
        """See `plan`."""
        since = since if since is None else nanoseconds(since, "since")
        until = until if until is None else nanoseconds(until, "until")
        range_bytes = whole(range_bytes, "range_bytes", 1)
        ranges = self.ranges(start=start, end=end, done=done, range_bytes=range_bytes)
        missed = [gap for gap in self.lost() if gap.end >= start and gap.start < end]
        return [
            replace(one, lost=lost) if lost else one
            for one, lost in zip(ranges, assign_losses(missed, ranges), strict=True)
            if _in_time(one, since, until)
        ]

    def ranges(
        self,
        *,
        start: int = 0,
        end: int = FOR_EVER,
        done: dict[Stream, list[Interval]] | None = None,
        range_bytes: int = 64 << 20,
    ) -> list[Range]:
        """The ranges of a plan, without the losses before their messages."""
        taken = {key: intervals.union(value) for key, value in (done or {}).items()}
        ranges: list[Range] = []
        for one in self.recordings:
            key, extents, number = (one.info.channel, one.info.epoch), one.layout.extents, 0
            covered = taken.get(key, [])
            fresh = intervals.without(intervals.common(one.layout.intervals(), [(start, end)]), covered)
            for part in fresh:
                while extents[number][1] <= part[0]:
                    number += 1
                ranges += self._cut(one, number, part, range_bytes)
            taken[key] = intervals.union(covered, fresh)
        return ranges

    def _cut(self, one: PlannedRecording, number: int, part: Interval, range_bytes: int) -> list[Range]:
        """Cuts an interval of a extent into ranges at block boundaries, of about equal size: a small rest would cost a separate task."""
        (low, high), info, layout = part, one.info, one.layout
        begins = layout.extents[number][0]
        touched = layout.touched(number, low, high)
        if len(touched) == 0:
            return []
        touched = layout.refined(folder_at(str(info.path)), touched, low, high, range_bytes)
        ends = touched["position"] + touched["length"]
        starts = np.maximum(touched["position"], low)
        count = max(1, (high - low + range_bytes // 2) // max(range_bytes, 1))
        sizes = (np.minimum(ends, high) - low - 1) // -(-(high - low) // count)
        # Every range but the last begins a message: its first row reports a gap before it.
        begun = np.cumsum(touched["begins"])
        first, begun_last = [0], 0
        for cut in (np.flatnonzero(np.diff(sizes)) + 1).tolist():
            if begun[cut - 1] > begun_last:
                first.append(cut)
                begun_last = int(begun[cut - 1])
        groups = summed(touched, np.array(first))
        ranges = []
        for at, group in zip(first, groups.tolist(), strict=True):
            position, length, messages, time_min, time_max = group
            range_start, range_end = int(starts[at]), min(position + length, high)
            own = range(layout.first_needed(range_start), bisect.bisect_left(layout.bases, range_end))
            ranges.append(
                Range(
                    recording=info.id,
                    channel=info.channel,
                    codec=info.codec,
                    epoch=info.epoch,
                    start=range_start,
                    end=range_end,
                    bytes=length,
                    messages=messages,
                    time_min=time_min,
                    time_max=time_max,
                    before=self._before(one, begins, range_start),
                    open_end=range_end == info.end_position and info.state == "live",
                    path=str(info.path),
                    segments=tuple(layout.bases[own.start : own.stop]),
                )
            )
        return ranges

    def _before(self, one: PlannedRecording, begins: int, start: int) -> tuple[str, int] | None:
        """Where the message before a range is: in the same extent, or in one of another recording that reaches as far."""
        if begins < start:
            return str(one.info.path), begins
        for other in self._of_stream(one.info):
            extents = other.layout.extents
            at = bisect.bisect_left(extents, start, key=lambda extent: extent[1])
            if at < len(extents) and extents[at][0] < start:
                return str(other.info.path), extents[at][0]
        return None

    def _of_stream(self, info: RecordingInfo) -> list[PlannedRecording]:
        if not self._streams:
            for one in self.recordings:
                self._streams.setdefault((one.info.channel, one.info.epoch), []).append(one)
        return self._streams[info.channel, info.epoch]


def plan(
    archive: RecordingSource,
    *,
    channels: set[str] | None = None,
    since: int | None = None,
    until: int | None = None,
    start: int = 0,
    end: int = FOR_EVER,
    done: dict[Stream, list[Interval]] | None = None,
    range_bytes: int = 64 << 20,
    on_skip: Callable[[str], None] = log.warning,
) -> list[Range]:
    """Ranges that together hold each message of an archive once.

    channels: only these. since, until: ranges without any message sent in between are left out. start, end: positions.
    done: (channel, epoch) → intervals of positions to leave out. range_bytes: about how large a range is. on_skip: called with a
    text for each damaged recording: its damaged parts are not planned.
    """
    survey = ReadPlanner(archive, channels, on_skip)
    return survey.plan(since=since, until=until, start=start, end=end, done=done, range_bytes=range_bytes)


def assign_losses(missed: list[Lost], ranges: list[Range]) -> list[tuple[tuple[int, int], ...]]:
    """For each range the losses that its rows report, as (first position behind it, bytes): the first message after a loss reports it."""
    of_stream: dict[Stream, list[tuple[int, int]]] = {}
    for number, one in enumerate(ranges):
        if one.messages:
            of_stream.setdefault((one.channel, one.epoch), []).append((one.end, number))
    for ends in of_stream.values():
        ends.sort()
    found: list[list[tuple[int, int]]] = [[] for _ in ranges]
    for gap in missed:
        ends = of_stream.get((gap.channel, gap.epoch), [])
        at = bisect.bisect_right(ends, (gap.end, len(ranges)))
        if at < len(ends):
            found[ends[at][1]].append((gap.end, gap.end - gap.start))
    return [tuple(one) for one in found]


def _in_time(one: Range, since: int | None, until: int | None) -> bool:
    return (since is None or one.time_max >= since) and (until is None or one.time_min <= until)


def damage_of(info: RecordingInfo, damage: str, is_read: bool) -> str:
    """Damage of a recording as a line for a person. is_read: whether the rest of it is read."""
    of = f" of {info.channel}" if info.channel else ""
    what = "the damage is left out as a gap" if is_read else "it is left out"
    return f"recording {info.id}{of} is damaged: {damage}; {what}. Run repair: it keeps all sound data"
