"""An incremental view of an archive, for readers that follow it: its streams, new data, and ranges of them.

The cost of a refresh is proportional to the new data. It reads no messages except near the end of the new data, to leave out
incomplete ones.
"""

from __future__ import annotations

import bisect
import itertools
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.channels.uri.wildcards import matches_any
from penstock.record.format import intervals, removed
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.intervals import Interval
from penstock.record.format.layout import Layout, grains_of
from penstock.record.format.truncations import Truncation
from penstock.record.format.types import RecordingInfo
from penstock.record.read.incremental_index import IncrementalIndex
from penstock.record.read.planning.lister import Lister, generations
from penstock.record.read.planning.needed_segments import first_needed, paths
from penstock.record.read.planning.plan import Lost, PlannedRecording, ReadPlanner, Stream, assign_losses, damage_of
from penstock.record.read.planning.ranges import Range
from penstock.record.read.scan import FOR_EVER, Scanner
from penstock.util.clock import Clock
from penstock.util.files.durable import own_errors
from penstock.util.strict import Strict

log = logging.getLogger("penstock")

Positions = dict[Stream, list[Interval]]
FRAME_STEP = 32  # positions are multiples of this: the shortest range that holds one message's beginning
BEGINS, ENDS = 0x80, 0x40  # a frame's flags
LOOK_BACK = 64 << 20  # bytes at the end of new data that are searched first for incomplete messages
PATIENCE = 8  # a message that does not become complete is looked for at most this share of the time


class ArchiveWatch(Strict):
    """The content of an archive by stream: a channel and the epoch that its positions belong to. Made by `Archive.watch`. One thread
    at a time.

    A recording with its own positions, as of a pipe, is a separate stream, and a new one after each truncation.

    channels: only these; patterns as `robot/*` take later channels too. Damage in a recording is a gap of it, with a warning.
    """

    def __init__(
        self, files: ArchiveFolder, lister: Lister, clock: Clock, channels: Collection[str] | None = None
    ) -> None:
        self._files, self._lister, self._clock = files, lister, clock
        self._channels = None if channels is None else tuple(channels)
        self._indexes: dict[str, IncrementalIndex] = {}
        self._streams: dict[Stream, list[IncrementalIndex]] = {}
        self._held: Positions = {}
        self._removed: Positions = {}
        self._removed_at = (0, 0, 0)
        self._incomplete: dict[tuple[Stream, int], tuple[int, float]] = {}

    # ---- refreshing ----

    @own_errors
    def refresh(self) -> bool:
        """Reads the new entries of the indexes. Returns whether there were any."""
        folders = {folder.path.name: folder for folder in self._files.folders()}
        changed: set[Stream] = set()
        regroup = False
        for name in self._indexes.keys() - folders.keys():
            del self._indexes[name]
            regroup = True
        for name, folder in folders.items():
            one = self._indexes.get(name) or IncrementalIndex(folder, self._lister.read_folder, self._clock)
            known, warned = one.info is not None and not one.damage, one.damage
            found = one.refresh(folder)
            if found is None:
                regroup |= self._indexes.pop(name, None) is not None
                continue
            self._indexes[name] = one
            if one.damage and one.damage != warned and self._is_wanted(_info(one).channel):
                log.warning("%s", damage_of(_info(one), one.damage, bool(one.extents)))
            if found:
                changed.add(_stream(one))
                regroup |= not known or bool(one.damage)
        if regroup:
            self._group_by_stream()
        for stream in changed if not regroup else self._streams:
            if stream in self._streams:
                self._held[stream] = intervals.union(*(one.intervals() for one in self._streams[stream]))
        return regroup or bool(changed)

    def _is_wanted(self, channel: str) -> bool:
        return self._channels is None or not channel or matches_any(self._channels, channel)

    def _group_by_stream(self) -> None:
        self._streams, self._held = {}, {}
        for name in sorted(self._indexes):
            one = self._indexes[name]
            if _info(one).channel and (one.extents or not one.damage) and self._is_wanted(_info(one).channel):
                self._streams.setdefault(_stream(one), []).append(one)

    # ---- the streams ----

    def held(self) -> Positions:
        """The positions that recordings have, by stream."""
        return self._held

    @property
    def recordings(self) -> list[RecordingInfo]:
        """The recordings that can be read, oldest first."""
        return sorted((_info(one) for members in self._streams.values() for one in members), key=lambda info: info.id)

    @property
    def cuts(self) -> list[tuple[RecordingInfo, Truncation]]:
        """Where repair or truncate cut recordings back, oldest first."""
        return [(_info(one), cut) for members in self._streams.values() for one in members for cut in one.cuts]

    @own_errors
    def removed(self) -> Positions:
        """The positions that purge, truncate or repair took away and that no recording has, by stream."""
        signature = self._files.removed_signature()
        if signature != self._removed_at:
            self._removed, self._removed_at = removed.read(self._files.path), signature
        found = {}
        for stream, parts in self._removed.items():
            if self._is_wanted(stream[0]):
                found[stream] = intervals.without(parts, self._held.get(stream, []))
        return {stream: parts for stream, parts in found.items() if parts}

    def codec(self, stream: Stream) -> dict[str, Any]:
        """The codec of a stream's newest recording."""
        return _info(self._streams[stream][-1]).codec

    def carried(self, done: Positions) -> Positions:
        """The same, with recordings that were cut back since: positions before the truncation are done, later ones are not."""
        found = dict(done)
        for members in self._streams.values():
            for one in members:
                info = _info(one)
                epochs = generations(info.channel, info.epoch, info.codec, one.cuts)
                for (before, _), (after, position) in itertools.pairwise(epochs):
                    if (info.channel, after) not in found and (info.channel, before) in found:
                        kept = intervals.common(found[info.channel, before], [(0, position)])
                        found[info.channel, after] = kept
        return found

    def bytes_and_messages(self, positions: Positions) -> tuple[int, int]:
        """About how much the recordings hold of these positions, by their blocks."""
        size = messages = 0
        for stream, wanted in positions.items():
            for one, _, (low, high) in self._sources(stream, wanted):
                blocks = _touching(one, low, high)
                whole = int(blocks["length"].sum())
                size += high - low
                messages += int(int(blocks["begins"].sum()) * min((high - low) / whole, 1.0)) if whole else 0
        return size, messages

    # ---- new data ----

    @own_errors
    def fresh(
        self,
        done: Positions,
        *,
        within: Positions | None = None,
        max_bytes: int | None = None,
        max_messages: int | None = None,
    ) -> Positions:
        """Positions that are not done, up to the last complete message of each stream. Messages that are not complete are left out.

        within: only these. max_bytes, max_messages: no more than this over all streams, unless a single message is larger. Each stream
        has its share of the outstanding data, and the one that waits longest at least one message.
        """
        outstanding: Positions = {}
        for stream, held in self._held.items():
            left = intervals.without(held, done.get(stream, []))
            if within is not None:
                left = intervals.common(left, within.get(stream, []))
            if left:
                outstanding[stream] = left
        limited = max_bytes is not None or max_messages is not None
        found: Positions = {}
        for number, stream in enumerate(
            sorted(outstanding, key=lambda s: self._oldest_ns(s, outstanding[s]) if limited else 0)
        ):
            rest = {one: left for one, left in outstanding.items() if one not in found}
            size = count = None
            if max_bytes is not None:
                size = _share(max_bytes, intervals.total(rest[stream]), sum(map(intervals.total, rest.values())))
            if max_messages is not None:
                most = {one: self._messages_max(one, left) for one, left in rest.items()}
                count = _share(max_messages, most[stream], sum(most.values()))
            found[stream] = self._limit(stream, rest[stream], size, count, first=number == 0)
            if max_bytes is not None:
                max_bytes = max(max_bytes - intervals.total(found[stream]), 0)
            if max_messages is not None:
                max_messages = max(max_messages - self._count_messages(stream, found[stream]), 0)
        return {stream: parts for stream, parts in found.items() if parts}

    def _oldest_ns(self, stream: Stream, left: list[Interval]) -> int:
        """When the first outstanding message was recorded: the stream that waits longest is first."""
        one, _, part = self._sources(stream, left[:1], in_order=True)[0]
        return int(_touching(one, *part)[0]["recorded_ns"])

    def _count_messages(self, stream: Stream, parts: list[Interval]) -> int:
        return sum(len(_message_starts(one, *part)) for one, _, part in self._sources(stream, parts))

    def _messages_max(self, stream: Stream, left: list[Interval]) -> int:
        return sum(int(_touching(one, *part)["begins"].sum()) for one, _, part in self._sources(stream, left))

    def _limit(
        self, stream: Stream, left: list[Interval], size: int | None, count: int | None, *, first: bool
    ) -> list[Interval]:
        """The first of these positions, as long as they are whole messages, within limits. first: one message at least."""
        if first:
            size, count = None if size is None else max(size, 1), None if count is None else max(count, 1)
        if (size is not None and size <= 0) or (count is not None and count <= 0):
            return []
        found: list[Interval] = []
        last = 0  # up to where `found` ends with a message
        for one, _, part in self._sources(stream, left, in_order=True):
            chosen, pieces = part, []
            for grown in itertools.count():
                if size is not None or count is not None:
                    chosen = _first_messages(one, part, size and size << grown, count and count << grown)
                pieces = self._complete_parts(stream, one, chosen)
                if (last or not first) and size is not None and chosen[1] - chosen[0] > size:
                    return intervals.union(found[:last])
                if chosen == part or any(has_messages for _, has_messages in pieces):
                    break
            for piece, has_messages in pieces:
                found.append(piece)
                last = len(found) if has_messages else last
                size = size - (piece[1] - piece[0]) if size is not None and has_messages else size
                count = count - len(_message_starts(one, *piece)) if count is not None and has_messages else count
            if chosen != part or (size is not None and size <= 0) or (count is not None and count <= 0):
                break
        return intervals.union(found[:last])

    def _complete_parts(self, stream: Stream, one: IncrementalIndex, part: Interval) -> list[tuple[Interval, bool]]:
        """A part without the messages in it that are not complete yet: (piece, whether messages begin in it)."""
        (low, high), end = part, _info(one).end_position
        checked_end, not_before = self._incomplete.get((stream, low), (-1, 0.0))
        begun = self._clock.monotonic()
        if checked_end == end or begun < not_before:
            low += FRAME_STEP  # it was not complete a moment ago
        found: list[tuple[Interval, bool]] = []
        at = _scan_start(one, low, high)
        if at > low:
            found.append(((low, at), True))
        while at < high:
            scanner = _scanner(one, at, high, ["position"])
            starts = [batch.column("position").to_numpy() for batch in scanner]
            hole = min(scanner.resume, high)
            if hole > at:
                found.append(((at, hole), any(bool((positions < hole).any()) for positions in starts)))
            if hole < high:
                self._incomplete[stream, hole] = (
                    end,
                    self._clock.monotonic() + PATIENCE * (self._clock.monotonic() - begun),
                )
            at = hole + FRAME_STEP
        return found

    def _sources(
        self, stream: Stream, wanted: list[Interval], *, in_order: bool = False
    ) -> list[tuple[IncrementalIndex, int, Interval]]:
        """(recording, number of its extent, part): which recording has which of these positions; each position once."""
        found: list[tuple[IncrementalIndex, int, Interval]] = []
        left = wanted
        for one in self._streams.get(stream, []):
            if not left:
                break
            parts = intervals.common(one.intervals(), left)
            number = 0
            for low, high in parts:
                while one.extents[number][1].end <= low:
                    number += 1
                found.append((one, number, (low, high)))
            left = intervals.without(left, parts)
        return sorted(found, key=lambda source: source[2]) if in_order else found

    # ---- planning ----

    @own_errors
    def plan(
        self, wanted: Positions, *, range_bytes: int, reported: dict[Stream, int], removed: Sequence[Lost] = ()
    ) -> list[Range]:
        """Ranges of these positions; each once. reported: the position of a stream up to which losses were reported. removed: losses besides those
        of recorders."""
        found: list[Range] = []
        for stream, positions in wanted.items():
            planner = ReadPlanner.of([self._narrow(one, positions) for one in self._streams.get(stream, [])])
            outside = intervals.without([(0, FOR_EVER)], positions)
            keys = {(one.info.channel, one.info.epoch) for one in planner.recordings}
            ranges = planner.ranges(done=dict.fromkeys(keys, outside), range_bytes=range_bytes)
            missed = [gap for gap in planner.lost() if gap.end >= reported.get(stream, 0)]
            missed += [gap for gap in removed if (gap.channel, gap.epoch) == stream]
            found += [replace(one, lost=lost) for one, lost in zip(ranges, assign_losses(missed, ranges), strict=True)]
        return found

    def _narrow(self, one: IncrementalIndex, wanted: list[Interval]) -> PlannedRecording:
        """A recording with the blocks only that hold these positions."""
        low, high = (wanted[0][0], wanted[-1][1]) if wanted else (0, 0)
        extents = [(start, blocks.end, grains_of(blocks.touching(low, high))) for start, blocks in one.extents]
        return PlannedRecording(_info(one), Layout(one.bases, one.lengths, extents, one.gaps))

    def first_since(self, stream: Stream, moment: int) -> int:
        """The position of a stream's first message that was sent at or after a moment; the stream's end if there is no such message."""
        for one, number, (low, high) in self._sources(stream, self._held[stream], in_order=True):
            blocks = one.extents[number][1].touching(low, high)
            for block in blocks[(blocks["time_max"] >= moment) & (blocks["begins"] > 0)]:
                at = int(block["position"])
                batches = _scanner(one, max(at, low), min(at + int(block["length"]), high), ["position"], since=moment)
                positions = [p for batch in batches for p in batch.column("position").to_pylist()]
                if positions:
                    return int(min(positions))
        return intervals.end_of(self._held[stream])


def _info(one: IncrementalIndex) -> RecordingInfo:
    assert one.info is not None
    return one.info


def _stream(one: IncrementalIndex) -> Stream:
    info = _info(one)
    return info.channel, generations(info.channel, info.epoch, info.codec, one.cuts)[-1][0]


def _touching(one: IncrementalIndex, low: int, high: int) -> np.ndarray[Any, Any]:
    """Index entries of the blocks with these positions, which are in one extent."""
    number = bisect.bisect_right(one.extents, low, key=lambda extent: extent[0]) - 1
    return one.extents[number][1].touching(low, high)


def _scanner(one: IncrementalIndex, start: int, end: int, columns: list[str], **options: Any) -> Scanner:
    segments = paths(one.segments[first_needed(one.segments, start) :])
    about: Any = {**options, "open": one.folder.opener, "logged": one.logged}
    return Scanner(segments, _info(one).channel, columns, start=start, end=end, **about)


def _message_starts(one: IncrementalIndex, low: int, high: int) -> list[int]:
    """Where messages begin, whether they are complete or not."""
    found: list[int] = []
    for batch in _scanner(one, low, high, ["position", "flags"], frames=True):
        begins = (batch.column("flags").to_numpy() & BEGINS) != 0
        found += batch.column("position").to_numpy()[begins].tolist()
    return found


def _scan_start(one: IncrementalIndex, low: int, high: int) -> int:
    """The start of the scan for incomplete messages of a part: no message that continues after it began earlier."""
    back = LOOK_BACK
    while (at := max(low, high - back)) > low and _is_within(one, at, high):
        back *= 2
    return at


def _is_within(one: IncrementalIndex, low: int, high: int) -> bool:
    """Whether a message that began earlier may continue through all of a part: one does, or no frame begins there."""
    going_on: set[int] = set()
    over: set[int] = (
        set()
    )  # sessions with a message that begins or ends here: the one before is complete, or was given up
    for batch in _scanner(one, low, high, ["session", "flags"], frames=True):
        sessions = batch.column("session").to_numpy()
        inner = (batch.column("flags").to_numpy() & (BEGINS | ENDS)) == 0
        going_on.update(np.unique(sessions[inner]).tolist())
        over.update(np.unique(sessions[~inner]).tolist())
    return bool(going_on - over) or not over


def _first_messages(one: IncrementalIndex, part: Interval, size: int | None, count: int | None) -> Interval:
    """The first messages of a part: no more bytes or messages than these, but one message at least."""
    low, high = part
    limit = high if size is None else min(low + size, high)
    taken, fits = 0, low
    for block in _touching(one, low, high):
        at, end = int(block["position"]), min(int(block["position"]) + int(block["length"]), high)
        if low <= at and end <= limit and (count is None or taken + int(block["begins"]) <= count):
            taken, fits = taken + int(block["begins"]), end
            continue
        for position in _message_starts(one, max(at, low), end):
            if taken and position > limit:
                return low, fits if fits > low else position
            if taken and count is not None and taken >= count:
                return low, position
            taken, fits = taken + 1, position if taken else low
    beyond = high > limit and fits > low  # the last message begins within the limit, and ends beyond it
    return (low, fits) if beyond else part


def _share(limit: int, mine: int, all_: int) -> int:
    """A stream's share of a limit."""
    return mine * limit // all_ if all_ > limit else limit
