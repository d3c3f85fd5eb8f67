"""The file `segments` of a recording: a record for each sealed segment, with the recording's totals up to its end.

So a long recording is described without opening its indexes. It is a cache: the recorder appends to it, cuts shorten it first, and a reader that finds anything odd reads the indexes. Layout: docs/design/recording.md.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from penstock._native import core as _native
from penstock.errors import Corrupt, PenstockError
from penstock.record.format.coverage import Coverage, cut_short, unfit
from penstock.record.format.folder import BLOCK, GAP, HOLE, SEGMENT_TOTALS, RecordingFolder, Segment
from penstock.record.format.numbers import number_of, seal
from penstock.util.files.durable import open_private

FIELDS = struct.Struct("<qqqqqqqqqqi")
CRC = struct.Struct("<I")
LENGTH = FIELDS.size + CRC.size
LONG = 64  # segments: the indexes of a shorter recording are read each time


@dataclass(frozen=True)
class Totals:
    """A recording up to the end of a segment. base: where that segment begins. timed: whether there was any message."""

    base: int
    end: int
    segments: int
    messages: int
    size: int
    gaps: int
    lost: int
    time_min: int
    time_max: int
    start: int
    timed: int

    def encode(self, recording: int) -> bytes:
        """The record's bytes, for this recording."""
        fields = FIELDS.pack(*self.__dict__.values())
        return fields + CRC.pack(_native.crc32c(seal(fields, recording)))

    @classmethod
    def decode(cls, raw: bytes, recording: int) -> Totals | None:
        """A recording's record in these bytes; None if they are none."""
        if len(raw) != LENGTH or CRC.pack(_native.crc32c(seal(raw[: FIELDS.size], recording))) != raw[FIELDS.size :]:
            return None
        return cls(*FIELDS.unpack(raw[: FIELDS.size]))

    def after(self, folder: RecordingFolder, segment: Segment) -> tuple[Totals, bool, str]:
        """The totals with one more segment, whether it is sealed, and its damage."""
        entries, about = folder.index(segment)
        kinds = entries["kind"]
        blocks, gaps = entries[kinds == BLOCK], entries[(kinds == GAP) | (kinds == HOLE)]
        timed = blocks[blocks["begins"] > 0]
        low, high = self.time_min, self.time_max
        if len(timed):
            first, last = int(timed["time_min"].min()), int(timed["time_max"].max())
            low, high = (min(low, first), max(high, last)) if self.timed else (first, last)
        made = Totals(
            segment.base,
            int(about["end"]),
            self.segments + 1,
            self.messages + int(blocks["begins"].sum()),
            self.size + int(blocks["length"].sum()),
            self.gaps + len(gaps),
            self.lost + int(gaps["time_min"].sum()),
            low,
            high,
            self.start,
            int(self.timed or len(timed) > 0),
        )
        return made, bool(about["sealed"]), unfit(segment, about, self.end)


def update(folder: RecordingFolder, start: int) -> None:
    """Adds the sealed segments that are not in it. start: where the recording begins. Never fails: a file that cannot be written has
    fewer records."""
    with contextlib.suppress(OSError, PenstockError):
        fd = open_private(folder.path / SEGMENT_TOTALS, os.O_RDWR)
        try:
            count = os.fstat(fd).st_size // LENGTH
            raw = os.pread(fd, LENGTH, (count - 1) * LENGTH) if count else b""
            last = Totals.decode(raw, folder.number) if count else _empty(start)
            while last is not None:
                segment = folder.segment_paths(last.end)
                if not segment.index.exists():
                    return
                last, sealed, wrong = last.after(folder, segment)
                if not sealed or wrong or last.base == last.end:  # an extension writes an empty one again
                    return
                os.pwrite(fd, last.encode(folder.number), count * LENGTH)
                count += 1
        finally:
            os.close(fd)


def truncate(folder: Path, position: int) -> None:
    """Removes the records from `position` on. Call it before bytes are cut off."""
    with contextlib.suppress(FileNotFoundError), open(folder / SEGMENT_TOTALS, "r+b", buffering=0) as file:
        count = os.fstat(file.fileno()).st_size // LENGTH
        while count:
            last = Totals.decode(os.pread(file.fileno(), LENGTH, (count - 1) * LENGTH), number_of(folder))
            if last is not None and last.end <= position:
                break
            count -= 1
        os.ftruncate(file.fileno(), count * LENGTH)
        os.fsync(file.fileno())


def summarize(folder: RecordingFolder, start: int) -> Coverage | None:
    """How much a long recording holds, by this file and the indexes of later segments. None if the file
    cannot be used: then read all indexes."""
    try:
        durable = None if (mark := folder.mark()) is None else mark.position  # first: a recorder may be adding
    except Corrupt:
        durable = None
    try:
        with open(f"{folder.path}/{SEGMENT_TOTALS}", "rb", buffering=0) as file:
            count = os.fstat(file.fileno()).st_size // LENGTH
            if count < LONG:
                return None
            totals = Totals.decode(os.pread(file.fileno(), LENGTH, (count - 1) * LENGTH), folder.number)
    except OSError:
        return None
    if totals is None or totals.start != start or totals.segments != count:
        return None
    sealed, damage, at = True, "", totals.end
    while not damage:
        segment = folder.segment_paths(at)
        if not os.path.exists(f"{folder.path}/{segment.stem}.idx"):
            break
        totals, sealed, damage = totals.after(folder, segment)
        if totals.end == at:
            break
        at = totals.end
    return Coverage(
        end_position=totals.end,
        messages=totals.messages,
        bytes=totals.size,
        time_min=totals.time_min,
        time_max=totals.time_max,
        gaps=totals.gaps,
        lost_bytes=totals.lost,
        segments=totals.segments,
        sealed=sealed,
        damage=damage or cut_short(folder, durable, totals.end),
    )


def find_error(folder: RecordingFolder, start: int) -> tuple[int, str] | None:
    """(byte, what) of the first record that differs from the segments; None if there is none. Records may be missing at the end."""
    try:
        raw = (folder.path / SEGMENT_TOTALS).read_bytes()
    except FileNotFoundError:
        return None
    right, segments = _empty(start), folder.segments()
    for number, at in enumerate(range(0, len(raw), LENGTH)):
        found = Totals.decode(raw[at : at + LENGTH], folder.number)
        if found is None:  # a killed recorder may have left a part of the last one
            return None if at + LENGTH > len(raw) else (at, "a checksum is wrong, or it is another recording's")
        if number >= len(segments):
            return at, "it has a record of a segment that is not there"
        right, _, _ = right.after(folder, segments[number])
        if found != right:
            return at, f"its record of the segment at {right.base} differs from that segment"
    return None


def _empty(start: int) -> Totals:
    return Totals(start, start, 0, 0, 0, 0, 0, 0, 0, start, 0)
