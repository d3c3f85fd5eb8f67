"""How much a recording holds, and whether its segments follow each other. Knows indexes only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from penstock.clock import SystemClock
from penstock.errors import Corrupt
from penstock.record.folder import BLOCK, GAP, RecordingFolder, Segment
from penstock.record.layout import Layout

SETTLED_NS = (
    2_000_000_000  # a folder changed this long ago: a later change has another time, whatever the clock's steps
)


class Indexed(NamedTuple):
    """A segment and the entries of its index."""

    segment: Segment
    entries: np.ndarray[Any, Any]


@dataclass
class Extent:
    """How much a recording holds. Positions in bytes, times in nanoseconds since the epoch. damage: the first thing wrong.

    layout: where its blocks are; indexes: of its segments, as they were read. Each if it was asked for.
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

    def add(self, segment: Segment, entries: np.ndarray[Any, Any], about: dict[str, Any], *, last: bool) -> None:
        """The next segment."""
        self.segments += 1
        self.damage = self.damage or unfit(segment, about, self.end_position)
        kinds = entries["kind"]
        blocks, gaps = entries[kinds == BLOCK], entries[kinds == GAP]
        missing = int(gaps["time_min"].sum()) if len(gaps) else 0
        self.end_position = segment.base + int(about["data_length"]) + missing
        self.messages += int(blocks["begins"].sum())
        self.bytes += about["data_length"]
        self.gaps += len(gaps)
        self.lost_bytes += missing
        timed = blocks["begins"] > 0
        if timed.any():
            low, high = int(blocks["time_min"][timed].min()), int(blocks["time_max"][timed].max())
            self.time_min = min(low, self.time_min) if self._timed else low
            self.time_max = max(high, self.time_max) if self._timed else high
            self._timed = True
        self.sealed = about["sealed"]
        if self.layout is not None:
            self.layout.add(segment.base, about["data_length"], blocks, gaps, last=last)
        if self.indexes is not None:
            self.indexes.append(Indexed(segment, entries))

    def copy(self) -> Extent:
        """Another one that begins with the same."""
        layout = None if self.layout is None else self.layout.copy()
        return replace(self, layout=layout, indexes=None if self.indexes is None else [*self.indexes])


def extent(folder: RecordingFolder, start_position: int, *, layout: bool = False, indexes: bool = False) -> Extent:
    """How much a recording holds, by its indexes. layout, indexes: see `Extent`."""
    return Known(start_position, layout=layout, indexes=indexes).look(folder)


class Known:
    """All that a process knows of a recording, so that a later look reads only what was added. layout, indexes: see `Extent`.

    Segments that have another one behind them are read again only if the folder's entries changed, and they themselves did.
    """

    def __init__(self, start_position: int, *, layout: bool = False, indexes: bool = False) -> None:
        self._start, self._layout, self._indexes = start_position, layout, indexes
        self._changed_ns = self._looked_ns = 0
        self._segments: list[Segment] = []
        self._forget()

    def _forget(self) -> None:
        self._done: list[
            tuple[str, tuple[int, ...]]
        ] = []  # segments in `_before`, and the state of their indexes' files
        self._before = Extent(
            self._start, layout=Layout() if self._layout else None, indexes=[] if self._indexes else None
        )
        self._last: tuple[tuple[int, ...], Extent] | None = None

    def look(self, folder: RecordingFolder) -> Extent:
        """How much the recording holds now."""
        durable = _durable(folder)  # first: so a recorder's additions meanwhile do no harm
        looked, changed = SystemClock().now_ns(), folder.changed_ns()
        if changed != self._changed_ns or self._looked_ns - changed < SETTLED_NS:
            self._segments = folder.segments()
            names = [segment.stem for segment in self._segments[: len(self._done)]]
            if names != [stem for stem, _ in self._done] or any(
                folder.index_state(stem) != was for stem, was in self._done
            ):
                self._forget()
        self._changed_ns, self._looked_ns = changed, looked
        found = self._read(folder).copy()
        found.damage = found.damage or cut_short(folder, durable, found.end_position)
        if found.layout is not None:
            found.layout.close()
        return found

    def _read(self, folder: RecordingFolder) -> Extent:
        if not self._segments:
            return self._before
        *others, last = self._segments
        for segment in others[len(self._done) :]:
            self._last = None
            state = folder.index_state(segment.stem)
            self._before.add(segment, *folder.index(segment), last=False)
            self._done.append((segment.stem, state))
        state = folder.index_state(last.stem)
        if self._last is None or self._last[0] != state:
            if self._before.layout is not None:
                self._before.layout.joined()
            found = self._before.copy()
            found.add(last, *folder.index(last), last=True)
            self._last = state, found
        return self._last[1]


def end_of(segment: Segment, entries: np.ndarray[Any, Any], about: dict[str, Any]) -> int:
    """The position where the next segment must begin: behind this segment's bytes and the gap at its end."""
    gaps = entries[entries["kind"] == GAP]
    return segment.base + int(about["data_length"]) + int(gaps["time_min"].sum())


def unfit(segment: Segment, about: dict[str, Any], expected: int) -> str:
    """The first thing wrong with a segment that should begin at position `expected`; empty if it is sound."""
    for path, offset, _, what in about["problems"]:
        return f"{path}: byte {offset}: {what}"
    if about["base"] != segment.base:
        return f"{segment.index}: its base is {about['base']}, its name says {segment.base}"
    if segment.base != expected:
        return f"{segment.index}: the recording continues at position {expected}, but this segment begins at {segment.base}"
    return ""


def cut_short(folder: RecordingFolder, durable: int | None, end: int) -> str:
    """The error's text if a recording ends before the position that was durable; else empty."""
    if durable is None or durable <= end:
        return ""
    return f"{folder.path}: it was durable up to position {durable} and ends at {end}: its last segments, or entries, are missing"


def _durable(folder: RecordingFolder) -> int | None:
    try:
        mark = folder.mark()
    except Corrupt:
        return None  # verify names it; the segments have the facts
    return None if mark is None else mark.position
