"""Plans who reads what of an archive: ranges of whole blocks, of about equal size, without overlap.

Knows indexes only; reads no message. Where recordings of one channel overlap, each position is planned once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.record.folder import BLOCK, GAP, RecordingFolder

if TYPE_CHECKING:
    from penstock.record.archive import Archive, RecordingInfo

Interval = tuple[int, int]


@dataclass(frozen=True)
class Range:
    """Messages of one recording that begin in positions [start, end).

    segments: (data path, index path) in order, from the first concerned to the recording's last, since a message that
    begins here may end later. before_ns: when the message before this range was sent, 0 if there is none.
    """

    recording: int
    channel: str
    codec: dict[str, Any]
    epoch: int
    start: int
    end: int
    bytes: int
    messages: int
    before_ns: int
    open_end: bool
    segments: tuple[tuple[str, str], ...]


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


def plan(
    archive: Archive,
    *,
    channels: set[str] | None = None,
    since: int | None = None,
    until: int | None = None,
    start: int = 0,
    end: int = (1 << 64) - 1,
    done: dict[tuple[str, int], list[Interval]] | None = None,
    range_bytes: int = 64 << 20,
) -> list[Range]:
    """Ranges that together hold each message once. done: (channel, epoch) → intervals of positions to leave out."""
    taken: dict[tuple[str, int], list[Interval]] = {key: list(value) for key, value in (done or {}).items()}
    ranges: list[Range] = []
    for info in archive.list():
        if channels is not None and info.channel not in channels:
            continue
        covered = taken.setdefault((info.channel, info.epoch), [])
        fresh: list[Interval] = []
        for low, high, blocks in _stretches(RecordingFolder(info.path)):
            for part in subtract((max(low, start), min(high, end)), covered):
                ranges += _cut(info, part, blocks, range_bytes, since, until)
                fresh.append(part)
        covered += fresh
    return ranges


def _stretches(folder: RecordingFolder) -> list[tuple[int, int, Any]]:
    """Runs of positions without a gap between them: (start, end, index entries of their blocks)."""
    found: list[tuple[int, int, Any]] = []
    blocks: list[Any] = []
    for segment in folder.segments():
        entries, _about = folder.index(segment)
        if len(entries) == 0:
            continue
        blocks.append(entries[entries["kind"] == BLOCK])
        if (entries["kind"] == GAP).any():
            _close(found, blocks)
    _close(found, blocks)
    return found


def _close(found: list[tuple[int, int, Any]], blocks: list[Any]) -> None:
    joined = np.concatenate(blocks) if blocks else None
    blocks.clear()
    if joined is not None and len(joined):
        found.append((int(joined["position"][0]), int(joined["position"][-1]) + int(joined["length"][-1]), joined))


def _cut(
    info: RecordingInfo, part: Interval, blocks: Any, range_bytes: int, since: int | None, until: int | None
) -> list[Range]:
    """Cuts an interval into ranges at block boundaries, leaving out ranges that no wanted time touches."""
    low, high = part
    ends = blocks["position"] + blocks["length"]
    touched = blocks[(ends > low) & (blocks["position"] < high)]
    if len(touched) == 0:
        return []
    ends = touched["position"] + touched["length"]
    first = int(np.searchsorted(blocks["position"], touched["position"][0]))
    before = int(blocks["time_max"][first - 1]) if first > 0 else 0
    starts = np.maximum(touched["position"], low)
    number = (np.minimum(ends, high) - low - 1) // max(range_bytes, 1)
    # Every range begins a message, but for the last: a gap in front of it is told by its first row.
    begun = np.cumsum(touched["begins"])
    cuts, told = [], 0
    for cut in np.flatnonzero(np.diff(number)) + 1:
        if begun[cut - 1] > told:
            cuts.append(cut)
            told = begun[cut - 1]
    segments = [
        (segment.base, str(segment.data), str(segment.index)) for segment in RecordingFolder(info.path).segments()
    ]
    ranges = []
    for group in np.split(np.arange(len(touched)), cuts):
        rows = touched[group]
        range_start, range_end = int(starts[group[0]]), int(min(ends[group[-1]], high))
        inside = (since is None or int(rows["time_max"].max()) >= since) and (
            until is None or int(rows["time_min"].min()) <= until
        )
        if inside:
            useful = max((i for i, s in enumerate(segments) if s[0] <= range_start), default=0)
            # A gap right before this range is noted at the end of the segment in front of it, or of several that hold
            # nothing else.
            if useful > 0 and segments[useful][0] == range_start:
                useful -= 1
                while useful > 0 and os.path.getsize(segments[useful][1]) == 0:
                    useful -= 1
            ranges.append(
                Range(
                    recording=info.id,
                    channel=info.channel,
                    codec=info.codec,
                    epoch=info.epoch,
                    start=range_start,
                    end=range_end,
                    bytes=int(rows["length"].sum()),
                    messages=int(rows["begins"].sum()),
                    before_ns=before,
                    open_end=range_end == info.end_position and info.state == "live",
                    segments=tuple((data, index) for _, data, index in segments[useful:]),
                )
            )
        before = int(rows["time_max"][-1])
    return ranges
