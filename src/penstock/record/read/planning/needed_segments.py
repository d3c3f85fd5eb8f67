"""The segments that a reader needs, and the missing ones. Knows indexes only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import Corrupt, NotFound, PenstockError
from penstock.record.format import truncations
from penstock.record.format.coverage import cut_short
from penstock.record.format.folder import RecordingFolder, Segment
from penstock.record.format.remote_archive import siblings
from penstock.record.format.served import ServedFolder, unlooked
from penstock.record.read.scan import LeftOut

TRIES = 3  # a repair or a truncation may be changing the recording


@dataclass(frozen=True)
class Needed:
    """The segments that a reader needs. begins: where the first of them must begin; None: it is not the recording's first. expects:
    the end of the existing messages. damage: the damage at the end."""

    segments: list[tuple[str, str]]
    begins: int | None
    expects: int
    damage: tuple[LeftOut, ...] = ()

    def options(self) -> dict[str, Any]:
        """The options of a `Scanner`."""
        return {"begins": self.begins, "expects": self.expects, "damage": self.damage}


def segments_for(folder: RecordingFolder, begins: int, start: int, end: int) -> Needed:
    """The segments for messages that begin in positions [start, end).

    A message may end long after the segment that it begins in: the list continues to the last segment, and the scan opens no more of
    them than it needs. begins: the recording's first position. The scan itself checks that each segment begins where the one before it
    ended.
    """
    for attempt in range(TRIES):
        try:
            return _segments_for(folder, begins, start, end)
        except OSError:
            if not unlooked(folder.path).is_dir():
                raise NotFound(f"recording {folder.number} was purged in the meantime") from None
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def _segments_for(folder: RecordingFolder, begins: int, start: int, end: int) -> Needed:
    try:
        mark = folder.mark()  # first: so a recorder's additions in the meantime do no harm
    except Corrupt:
        mark = None  # verify names it; the segments have the facts
    segments = folder.segments()
    if not segments and not unlooked(folder.path).is_dir():
        raise FileNotFoundError
    reaches = begins
    for segment in reversed(segments):
        _, about = folder.index(segment)
        if not about["other"]:
            reaches = int(about["end"])
            break
    damage: tuple[LeftOut, ...] = ()
    if mark is not None and (short := cut_short(folder, mark.position, reaches)) and reaches < end:
        damage = (LeftOut(reaches, mark.position, short, True),)
    first = first_needed(segments, start)
    needed = paths(segments[first:])
    return Needed(needed, begins if first == 0 else None, min(reaches, end), damage)


def changes(folder: RecordingFolder, channel: str) -> Callable[[int], PenstockError | None] | None:
    """A function that checks whether the recording was purged or truncated since this call, and returns the error of a reader that reached a
    position. None if nothing is ever removed."""
    if folder.opener is not None and not isinstance(folder, ServedFolder):
        return None
    before, path = truncations.known(folder.path)[0], unlooked(folder.path)

    def meanwhile(position: int) -> PenstockError | None:
        if not path.is_dir():
            return NotFound(
                f"recording {folder.number} of {channel} was purged while it was read, up to position {position}. {_describe_rest(folder, channel)}"
            )
        after = truncations.known(path)[0]
        if after == before:
            return None
        cut = min(one.position for one in after[len(before) :] or after)
        begins = folder.describe().start_position
        return NotFound(
            f"recording {folder.number} of {channel} was cut back to position {cut} while it was read, up to position {position}. "
            f"It has positions {begins} to {cut}"
        )

    return meanwhile


def _describe_rest(folder: RecordingFolder, channel: str) -> str:
    """The oldest recording of a channel that exists, as text."""
    found = []
    for one in siblings(folder):
        try:
            about = one.describe()
        except (PenstockError, OSError):
            continue
        if about.channel == channel:
            found.append((about.start_position, about.id))
    if not found:
        return f"The archive has no other recording of {channel}"
    position, number = min(found, key=lambda one: one[1])
    return f"The oldest recording of {channel} that exists is {number}, from position {position} on"


def paths(segments: list[Segment]) -> list[tuple[str, str]]:
    """(data, index) of each."""
    return [(str(segment.data), str(segment.index)) for segment in segments]


def first_needed(segments: list[Segment], start: int) -> int:
    """Number of the first segment that a reader from `start` on needs.

    A gap right before `start` is noted at the end of the segment in front of it, or of several that hold nothing else.
    """
    useful = max((number for number, segment in enumerate(segments) if segment.base <= start), default=0)
    if useful > 0 and segments[useful].base == start:
        useful -= 1
        while useful > 0 and _is_empty(segments[useful]):
            useful -= 1
    return useful


def _is_empty(segment: Segment) -> bool:
    try:
        return segment.data.stat().st_size == 0
    except FileNotFoundError:  # damaged, or removed in the meantime: the scan tells which
        return False
