"""Where a recording's blocks and gaps are, for planning. Knows indexes only.

In long segments with a successor, neighbouring blocks are kept as one grain, so that the indexes of 10 TB fit into memory.
`refined` reads the blocks of such a grain again.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.errors import PenstockError
from penstock.record.format.folder import BLOCK, GAP, HOLE, RecordingFolder

Array = np.ndarray[Any, Any]
# A block, or neighbouring ones: where, how many bytes, how many messages begin there, and their send times.
GRAIN = np.dtype([("position", "<i8"), ("length", "<i8"), ("begins", "<i8"), ("time_min", "<i8"), ("time_max", "<i8")])
BLOCK_BYTES_MAX = 256 << 10
LONG_SEGMENT = 4 << 20
GRAINS = 32  # of a long segment, about
GRAIN_BYTES_MIN = 1 << 20


@dataclass
class Layout:
    """A recording's segments, and its runs of positions without a gap as (start, end, grains); gaps as (start, end, when noted)."""

    bases: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # bytes of each segment's frames
    extents: list[tuple[int, int, Array]] = field(default_factory=list)
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    _open: list[Array] = field(default_factory=list)

    def add(self, base: int, length: int, entries: Array, *, last: bool) -> None:
        """The next segment: the entries of its index. last: more may be written into it."""
        self.bases.append(base)
        self.lengths.append(length)
        kinds, at, first = entries["kind"], base, 0
        for number in np.flatnonzero((kinds == GAP) | (kinds == HOLE)).tolist():
            self._run(entries[first:number], base, 0 if last else length)
            at = max(at, int(entries["position"][number]))  # gaps follow the segment's last block, and each other
            self.gap(at, at + int(entries["time_min"][number]), int(entries["recorded_ns"][number]))
            at, first = at + int(entries["time_min"][number]), number + 1
        self._run(entries[first:], base, 0 if last else length)

    def _run(self, entries: Array, base: int, length: int) -> None:
        blocks = entries[entries["kind"] == BLOCK]
        if len(blocks):
            self._open.append(grains_of(blocks, base, length))

    def gap(self, start: int, end: int, noted_ns: int) -> None:
        """Positions that are missing after the last one added."""
        self.close()
        self.gaps.append((start, end, noted_ns))

    def close(self) -> None:
        """Ends the run of positions without a gap."""
        joined = self.joined()
        self._open = []
        if len(joined):
            last = joined[-1]
            self.extents.append((int(joined["position"][0]), int(last["position"] + last["length"]), joined))

    def joined(self) -> Array:
        """The grains since the last gap, in one piece from now on."""
        if len(self._open) != 1:
            self._open = [np.concatenate(self._open) if self._open else np.zeros(0, GRAIN)]
        return self._open[0]

    def intervals(self) -> list[tuple[int, int]]:
        """The positions that the recording has, between its gaps."""
        return [(start, end) for start, end, _ in self.extents]

    def copy(self) -> Layout:
        """Another one that begins with the same."""
        return Layout([*self.bases], [*self.lengths], [*self.extents], [*self.gaps], [*self._open])

    def first_needed(self, start: int) -> int:
        """Number of the first segment that a reader from `start` on needs; see `reading.first_needed`."""
        number = max(bisect.bisect_right(self.bases, start) - 1, 0)
        if number > 0 and self.bases[number] == start:
            number -= 1
            while number > 0 and self.lengths[number] == 0:
                number -= 1
        return number

    def touched(self, number: int, low: int, high: int) -> Array:
        """The grains of a extent that have positions of [low, high)."""
        grains = self.extents[number][2]
        first = int(np.searchsorted(grains["position"], low, "right")) - 1
        if first < 0 or int(grains["position"][first] + grains["length"][first]) <= low:
            first += 1
        last = int(np.searchsorted(grains["position"], high, "left"))
        part: Array = grains[first:last]
        return part

    def refined(self, folder: RecordingFolder, grains: Array, low: int, high: int, range_bytes: int) -> Array:
        """Grains with single blocks in place of those that [low, high) cuts, or of all if ranges are to be that small."""
        ends = grains["position"] + grains["length"]
        if int(grains["length"].max(initial=0)) <= BLOCK_BYTES_MAX:
            return grains
        cut = (grains["position"] < low) | (ends > high) | (grains["length"] * 8 > range_bytes)
        cut &= grains["length"] > BLOCK_BYTES_MAX
        if not cut.any():
            return grains
        numbers = np.searchsorted(self.bases, grains["position"], "right") - 1
        found: list[Array] = []
        for number in np.unique(numbers):
            part = grains[numbers == number]
            if cut[numbers == number].any():
                part = self._blocks(folder, int(number), part, low, high)
            found.append(part)
        return np.concatenate(found)

    def _blocks(self, folder: RecordingFolder, number: int, grains: Array, low: int, high: int) -> Array:
        try:
            entries, _ = folder.index(folder.segment_paths(self.bases[number]))
        except (PenstockError, OSError):  # purged or damaged in the meantime: reading it will raise the error
            return grains
        blocks = grains_of(entries[entries["kind"] == BLOCK])
        first, last = int(grains["position"][0]), int(grains["position"][-1] + grains["length"][-1])
        ends = blocks["position"] + blocks["length"]
        part: Array = blocks[(ends > max(low, first)) & (blocks["position"] < min(high, last))]
        return part


def grains_of(blocks: Array, base: int = 0, length: int = 0) -> Array:
    """Index entries of blocks as grains; neighbours together if they are of a long segment that begins at `base`."""
    made = np.zeros(len(blocks), GRAIN)
    for name in GRAIN.names or ():
        made[name] = blocks[name]
    if length < LONG_SEGMENT or len(made) <= GRAINS:
        return made
    group = (made["position"] - base) // max(GRAIN_BYTES_MIN, -(-length // GRAINS))
    first = np.concatenate([[0], np.flatnonzero(group[1:] != group[:-1]) + 1])
    return summed(made, first)


def summed(grains: Array, first: Array) -> Array:
    """Neighbouring grains as one each. first: numbers of those that begin one."""
    made = np.zeros(len(first), GRAIN)
    made["position"] = grains["position"][first]
    made["length"] = np.add.reduceat(grains["length"], first)
    made["begins"] = np.add.reduceat(grains["begins"], first)
    made["time_min"] = np.minimum.reduceat(grains["time_min"], first)
    made["time_max"] = np.maximum.reduceat(grains["time_max"], first)
    return made
