"""The index of one recording, kept in memory: each refresh reads only the entries that its recorder added since.

Knows one recording's folder. Any change except growth is read in full, by a function that it receives.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from penstock._native import core as _native
from penstock.errors import PenstockError
from penstock.record.format import truncations
from penstock.record.format.coverage import Indexed
from penstock.record.format.folder import BLOCK, ENTRY, GAP, HOLE, SEAL, RecordingFolder, Segment
from penstock.record.format.intervals import Interval
from penstock.record.format.truncations import Truncation
from penstock.record.format.types import RecordingInfo
from penstock.util.clock import Clock

Looked = tuple[RecordingInfo, list[Indexed]]
State = tuple[int, int, tuple[int, int, int]]
NO_INDEX = (-1, -1, -1)
HEADER = _native.INDEX_HEADER_LENGTH
STABLE_NS = 2_000_000_000  # a folder that changed later than this may change again without a new time


class Blocks:
    """Index entries of blocks, in order. Grows in place."""

    def __init__(self) -> None:
        self._rows, self._count = np.empty(16, ENTRY), 0

    def add(self, entries: np.ndarray[Any, Any]) -> None:
        """Adds entries."""
        need = self._count + len(entries)
        if need > len(self._rows):
            grown = np.empty(max(need, 2 * len(self._rows)), ENTRY)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        self._rows[self._count : need] = entries
        self._count = need

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        """All of them."""
        return self._rows[: self._count]

    @property
    def end(self) -> int:
        """The end of the last block."""
        last = self._rows[self._count - 1]
        return int(last["position"]) + int(last["length"])

    def touching(self, low: int, high: int) -> np.ndarray[Any, Any]:
        """Those with positions in [low, high)."""
        positions = self._rows["position"]
        inside = range(self._count)
        first = max(bisect.bisect_right(inside, low, key=lambda at: int(positions[at])) - 1, 0)
        last = bisect.bisect_left(inside, high, key=lambda at: int(positions[at]))
        found = self._rows[first:last]
        return found[1:] if len(found) and int(found[0]["position"]) + int(found[0]["length"]) <= low else found


class IncrementalIndex:
    """One recording, as of the last refresh. extents: runs of positions without a gap, as (start, blocks); gaps: (start, end, when
    it was noted)."""

    def __init__(self, folder: RecordingFolder, read: Callable[[RecordingFolder], Looked | None], clock: Clock) -> None:
        self.folder, self._read, self._clock = folder, read, clock
        self.info: RecordingInfo | None = None
        self.damage = ""
        self.logged: set[str] = set()  # damage that was logged
        self.cuts: list[Truncation] = []
        self.extents: list[tuple[int, Blocks]] = []
        self.gaps: list[tuple[int, int, int]] = []
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.lengths: list[int] = []  # bytes of each segment's frames
        self._sealed = self._extent_open = False  # open: the last extent may continue
        self._seen: State = (-1, -1, NO_INDEX)
        self._refreshes = 1
        self._entries = 0  # of the last segment, read so far
        self._end = 0

    def refresh(self, folder: RecordingFolder) -> bool | None:
        """Reads new entries. Returns whether there were any; None if the recording was removed. folder: the same, as it was looked at now."""
        self.folder = folder
        try:
            state = self._state()
        except FileNotFoundError:
            return None
        if self.info is not None and not self.damage and state[1] == self._seen[1]:
            if state[0] == self._seen[0] and self._sealed and state[2] == self._seen[2]:
                return False
            before = (self.info.end_position, self.info.state)
            if self._read_appended(state):
                self._seen = state if not self._sealed else (state[0], state[1], self._index_state())
                return before != (self.info.end_position, self.info.state)
        elif self.damage and state == self._seen:
            return False
        return self._reload(state)

    def intervals(self) -> list[Interval]:
        """The positions that it has."""
        return [(start, blocks.end) for start, blocks in self.extents]

    def _state(self) -> State:
        """(when the folder's names changed, bytes of its cuts, the last index: its number, when it changed, its bytes)."""
        if self.folder.opener is not None:  # an object storage: sealed segments only, so that an index never changes
            return *self.folder.names_and_size(truncations.NAME), NO_INDEX
        changed, cut = self.folder.names_and_size(truncations.NAME)
        if self._clock.now_ns() - changed < STABLE_NS:
            self._refreshes += 1
            changed = -self._refreshes  # never the same twice
        return changed, cut, self._index_state()

    def _index_state(self) -> tuple[int, int, int]:
        return _stat(self._last_index()) if self.folder.opener is None else NO_INDEX

    def _last_index(self) -> str:
        return f"{self.segments[-1].folder}/{self.segments[-1].stem}.idx" if self.segments else ""

    def _reload(self, state: State) -> bool | None:
        """Reads the recording from its beginning."""
        # Before the indexes: a reader that checks too early forgets too much, and reads it again.
        found, damage = truncations.known(self.folder.path)
        looked = self._read(self.folder)
        if looked is None:
            return None
        self.info, indexes = looked
        self.cuts, self.damage = found, damage or self.info.damage
        self.extents, self.gaps, self._extent_open = [], [], False
        self.segments, self.bases, self.lengths = [], [], []
        self._sealed, self._end, self._entries = False, self.info.start_position, 0
        for segment, entries in indexes:
            self._add_entries(segment, entries)
        if self.damage and self._end < self.info.end_position:
            self._add_gap(self.info.end_position, 0)
        self._seen = state[0], state[1], self._index_state()
        return True

    def _read_appended(self, state: State) -> bool:
        """Reads appended entries. False if there was any other change."""
        assert self.info is not None
        live = self.folder.is_live()  # before the indexes, which then have everything that a finished recorder wrote
        before, messages = self._end, 0
        try:
            if self._sealed and state[2] != self._seen[2]:
                return False  # an empty segment makes room for one of the same name
            if self.segments and not self._sealed:
                if state[2][0] != self._seen[2][0] or state[2][2] < HEADER + self._entries * ENTRY.itemsize:
                    return False
                added = self._tail()
                if added is None:
                    return False
                messages += self._add_entries(None, added)
            if state[0] != self._seen[0] or self._sealed:
                known = self.segments[-1].base if self.segments else -1
                for segment in self.folder.segments():
                    if segment.base <= known:
                        continue
                    entries, about = self.folder.index(segment)
                    if about["problems"] or about["base"] != segment.base or segment.base != self._end:
                        return False
                    messages += self._add_entries(segment, entries)
        except (PenstockError, OSError):
            return False
        state_now = "live" if live else self.folder.ended(self._sealed)
        if before != self._end or state_now != self.info.state:
            self.info = replace(
                self.info, end_position=self._end, state=state_now, messages=self.info.messages + messages
            )
        return True

    def _tail(self) -> np.ndarray[Any, Any] | None:
        """Entries that were appended to the last segment's index. None if they do not follow the ones before."""
        with open(self._last_index(), "rb", buffering=0) as file:
            raw = os.pread(file.fileno(), 1 << 26, HEADER + self._entries * ENTRY.itemsize)
        raw = raw[: len(raw) - len(raw) % ENTRY.itemsize]
        entries = np.frombuffer(raw, ENTRY)
        at = self._end
        for number, entry in enumerate(entries):
            one = raw[number * ENTRY.itemsize : (number + 1) * ENTRY.itemsize]
            if _native.crc32c(one[:-4]) != int.from_bytes(one[-4:], "little") or int(entry["kind"]) > SEAL:
                return None
            if int(entry["kind"]) == BLOCK and int(entry["position"]) != at:
                return None
            at += int(entry["length"]) if int(entry["kind"]) == BLOCK else 0
        return entries

    def _add_entries(self, segment: Segment | None, entries: np.ndarray[Any, Any]) -> int:
        """Adds entries of the last segment, or of a new one. How many messages begin in them."""
        if segment is not None:
            self.segments.append(segment)
            self.bases.append(segment.base)
            self.lengths.append(0)
            self._entries, self._sealed = 0, False
            if segment.base > self._end:
                self._add_gap(segment.base, 0)
        self._entries += len(entries)
        kinds, first = entries["kind"], 0
        for number in np.flatnonzero((kinds == GAP) | (kinds == HOLE)).tolist():
            self._add_blocks(entries[first:number])
            if int(kinds[number]) == HOLE:
                self.lengths[-1] += int(entries["time_min"][number])
            self._add_gap(self._end + int(entries["time_min"][number]), int(entries["recorded_ns"][number]))
            first = number + 1
        self._add_blocks(entries[first:])
        self._sealed = bool(len(entries)) and int(entries["kind"][-1]) == SEAL if len(entries) else self._sealed
        return int(entries["begins"][kinds == BLOCK].sum())

    def _add_blocks(self, entries: np.ndarray[Any, Any]) -> None:
        blocks = entries[entries["kind"] == BLOCK]
        if len(blocks):
            if not self._extent_open:
                self.extents.append((int(blocks["position"][0]), Blocks()))
                self._extent_open = True
            self.extents[-1][1].add(blocks)
            self._end = self.extents[-1][1].end
            self.lengths[-1] += int(blocks["length"].sum())

    def _add_gap(self, end: int, noted_ns: int) -> None:
        self.gaps.append((self._end, end, noted_ns))
        self._end, self._extent_open = end, False


def _stat(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path) if path else None
    except FileNotFoundError:
        found = None
    return NO_INDEX if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)
