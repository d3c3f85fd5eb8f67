"""Which segments a reader needs, and that none of them is missing. Knows indexes only."""

from __future__ import annotations

from penstock.errors import Corrupt, NotFound, PenstockError
from penstock.record.extent import cut_short, end_of
from penstock.record.folder import RecordingFolder, Segment


def segments_for(folder: RecordingFolder, begins: int, start: int, end: int) -> list[tuple[str, str]]:
    """(data, index) of the segments for messages that begin in positions [start, end). `Corrupt` if some are missing.

    A message may end long after the segment that it begins in: the list continues to the last segment, and the scan opens no more of
    them than it needs. begins: the recording's first position. The scan itself checks that each segment begins where the one before it ended.
    """
    try:
        mark = folder.mark()  # first: so a recorder's additions meanwhile do no harm
    except Corrupt:
        mark = None  # verify names it; the segments have the facts
    segments = folder.segments()
    if segments and segments[0].base != begins:
        what = f"the recording begins at position {begins}, its first segment at {segments[0].base}"
        raise _wrong(folder, f"{segments[0].index}: {what}")
    reaches = begins
    if segments:
        entries, about = folder.index(segments[-1])
        reaches = end_of(segments[-1], entries, about)
        if about["problems"]:  # the scan names them when it comes there
            mark = None
    if mark is not None and (short := cut_short(folder, mark.position, reaches)) and reaches < end:
        raise _wrong(folder, short)
    return paths(segments[first_needed(segments, start) :])


def paths(segments: list[Segment]) -> list[tuple[str, str]]:
    """(data, index) of each."""
    return [(str(segment.data), str(segment.index)) for segment in segments]


def _wrong(folder: RecordingFolder, what: str) -> PenstockError:
    if not folder.path.is_dir():
        return NotFound(f"{folder.path} was purged meanwhile")
    return Corrupt(f"{what}. Run verify, then repair")


def first_needed(segments: list[Segment], start: int) -> int:
    """Number of the first segment that a reader from `start` on needs.

    A gap right before `start` is noted at the end of the segment in front of it, or of several that hold nothing else.
    """
    useful = max((number for number, segment in enumerate(segments) if segment.base <= start), default=0)
    if useful > 0 and segments[useful].base == start:
        useful -= 1
        while useful > 0 and segments[useful].data.stat().st_size == 0:
            useful -= 1
    return useful
