"""How much a recording holds, and whether its segments follow each other. Knows indexes, and how long the files of frames are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from penstock.errors import Corrupt
from penstock.record.format.folder import BLOCK, GAP, HOLE, RecordingFolder, Segment
from penstock.record.format.layout import Layout
from penstock.util.clock import SystemClock

STABLE_NS = 2_000_000_000  # a folder changed this long ago: a later change has another time, whatever the clock's steps


class Indexed(NamedTuple):
    """A segment and the entries of its index."""

    segment: Segment
    entries: np.ndarray[Any, Any]


@dataclass
class Coverage:
    """How much a recording holds. Positions in bytes, times in nanoseconds since the epoch. damage: the first thing wrong.

    layout: where its blocks are; indexes: of its segments, as they were read. Each only on request.
    """

    end_position: int
    messages: int = 0
    bytes: int = 0
    time_min: int = 0
    time_max: int = 0
    gaps: int = 0
    lost_bytes: int = 0
    segments: int = 0
    sealed: bool = False
    damage: str = ""
    layout: Layout | None = field(default=None, repr=False)
    indexes: list[Indexed] | None = field(default=None, repr=False)
    _timed: bool = field(default=False, repr=False)

    def add(
        self, segment: Segment, entries: np.ndarray[Any, Any], about: dict[str, Any], there: int, *, last: bool
    ) -> None:
        """The next segment. Missing positions before it are a gap; a segment that does not belong here is left out.

        there: bytes of its file of frames, -1 without a file. Blocks beyond them are lost: a scan leaves them out.
        """
        self.damage = self.damage or unfit(segment, about, self.end_position)
        if about["other"] or segment.base < self.end_position:
            return
        if segment.base > self.end_position:
            self.miss(segment.base)
        self.segments += 1
        kinds = entries["kind"]
        blocks, gaps = entries[kinds == BLOCK], entries[(kinds == GAP) | (kinds == HOLE)]
        self.end_position = int(about["end"])
        gone = blocks["position"] + blocks["length"] > segment.base + there
        if gone.any():
            self.damage = self.damage or too_short(segment, there, int(about["data_length"]))
            self.gaps += 1
            self.lost_bytes += int(blocks[gone]["length"].sum())
            blocks = blocks[~gone]
        self.messages += int(blocks["begins"].sum())
        self.bytes += int(blocks["length"].sum())
        self.gaps += len(gaps)
        self.lost_bytes += int(gaps["time_min"].sum()) if len(gaps) else 0
        timed = blocks["begins"] > 0
        if timed.any():
            low, high = int(blocks["time_min"][timed].min()), int(blocks["time_max"][timed].max())
            self.time_min = min(low, self.time_min) if self._timed else low
            self.time_max = max(high, self.time_max) if self._timed else high
            self._timed = True
        self.sealed = about["sealed"]
        if self.layout is not None:
            self.layout.add(segment.base, about["data_length"], entries, last=last)
        if self.indexes is not None:
            self.indexes.append(Indexed(segment, entries))

    def miss(self, end: int) -> None:
        """Notes a gap up to a position."""
        self.gaps += 1
        self.lost_bytes += end - self.end_position
        if self.layout is not None:
            self.layout.gap(self.end_position, end, 0)
        self.end_position = end

    def copy(self) -> Coverage:
        """Another one that begins with the same."""
        layout = None if self.layout is None else self.layout.copy()
        return replace(self, layout=layout, indexes=None if self.indexes is None else [*self.indexes])


def coverage_of(
    folder: RecordingFolder, start_position: int, *, layout: bool = False, indexes: bool = False
) -> Coverage:
    """How much a recording holds, by its indexes. layout, indexes: see `Coverage`."""
    return CoverageCache(start_position, layout=layout, indexes=indexes).refresh(folder)


class CoverageCache:
    """A recording's coverage, kept in memory: a refresh reads only the entries that were added. layout, indexes: see `Coverage`.

    A segment with a successor is read again only if the folder's entries changed and the segment changed.
    """

    def __init__(self, start_position: int, *, layout: bool = False, indexes: bool = False) -> None:
        self._start, self._layout, self._indexes = start_position, layout, indexes
        self._changed_ns = self._refreshed_ns = 0
        self._segments: list[Segment] = []
        self._forget()

    def _forget(self) -> None:
        self._done: list[tuple[str, tuple[int, ...]]] = []  # segments in `_before`, and the state of their files
        self._before = Coverage(
            self._start, layout=Layout() if self._layout else None, indexes=[] if self._indexes else None
        )
        self._last: tuple[tuple[int, ...], Coverage] | None = None

    def refresh(self, folder: RecordingFolder) -> Coverage:
        """How much the recording holds now."""
        durable = _durable(folder)  # first: so a recorder's additions in the meantime do no harm
        looked, changed = SystemClock().now_ns(), folder.changed_ns()
        if changed != self._changed_ns or self._refreshed_ns - changed < STABLE_NS:
            self._segments = folder.segments()
            known = self._segments[: len(self._done)]
            if self._done != [(segment.stem, _state(folder, segment)) for segment in known]:
                self._forget()
        self._changed_ns, self._refreshed_ns = changed, looked
        found = self._read(folder).copy()
        if short := cut_short(folder, durable, found.end_position):
            found.damage = found.damage or short
            found.miss(durable or 0)
        if found.layout is not None:
            found.layout.close()
        return found

    def _read(self, folder: RecordingFolder) -> Coverage:
        if not self._segments:
            return self._before
        *others, last = self._segments
        for segment in others[len(self._done) :]:
            self._last = None
            state = _state(folder, segment)
            entries, about = folder.index(segment)
            self._before.add(segment, entries, about, folder.data_length(segment), last=False)
            self._done.append((segment.stem, state))
        state = _state(folder, last)
        if self._last is None or self._last[0] != state:
            if self._before.layout is not None:
                self._before.layout.joined()
            found = self._before.copy()
            entries, about = folder.index(last)
            found.add(last, entries, about, folder.data_length(last), last=True)
            self._last = state, found
        return self._last[1]


def unfit(segment: Segment, about: dict[str, Any], expected: int) -> str:
    """The first thing wrong with a segment that should begin at position `expected`; empty if it is sound."""
    for path, offset, _, what in about["problems"]:
        return f"{path}: byte {offset}: {what}"
    if segment.base != expected:
        return f"{segment.index}: the recording continues at position {expected}, but this segment begins at {segment.base}"
    return ""


def too_short(segment: Segment, there: int, needed: int) -> str:
    """The text for a file of frames that is shorter than its index requires. there: -1 without a file."""
    if there < 0:
        return f"{segment.data}: the segment is missing"
    return f"{segment.data}: it has {there} bytes, and its index requires {needed}"


def cut_short(folder: RecordingFolder, durable: int | None, end: int) -> str:
    """The error's text if a recording ends before the position that was durable; else empty."""
    if durable is None or durable <= end:
        return ""
    return f"{folder.path}: it was durable up to position {durable} and ends at {end}: its last segments, or entries, are missing"


def _state(folder: RecordingFolder, segment: Segment) -> tuple[int, ...]:
    """Numbers that change whenever one of a segment's two files does."""
    return *folder.index_state(segment.stem), folder.data_length(segment)


def _durable(folder: RecordingFolder) -> int | None:
    try:
        mark = folder.mark()
    except Corrupt:
        return None  # verify names it; the segments have the facts
    return None if mark is None else mark.position
