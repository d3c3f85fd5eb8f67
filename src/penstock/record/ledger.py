"""The file `segments` of a recording: a record for each sealed segment, with what the recording holds up to its end.

So a long recording is described without opening its indexes. It is a cache: the recorder appends to it, cuts shorten it first, and a reader that finds anything odd reads the indexes. Layout: docs/design/recording.md.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from penstock._native import core as _native
from penstock.durable import open_private
from penstock.errors import Corrupt, PenstockError
from penstock.record.extent import Extent, cut_short, end_of, unfit
from penstock.record.folder import BLOCK, GAP, LEDGER, RecordingFolder, Segment

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

    def encode(self) -> bytes:
        """The record's bytes."""
        fields = FIELDS.pack(*self.__dict__.values())
        return fields + CRC.pack(_native.crc32c(fields))

    @classmethod
    def decode(cls, raw: bytes) -> Totals | None:
        """The record in these bytes; None if they are none."""
        if len(raw) != LENGTH or CRC.pack(_native.crc32c(raw[: FIELDS.size])) != raw[FIELDS.size :]:
            return None
        return cls(*FIELDS.unpack(raw[: FIELDS.size]))

    def after(self, folder: RecordingFolder, segment: Segment) -> tuple[Totals, bool, str]:
        """The totals with one segment more, whether it is sealed, and what is wrong with it."""
        entries, about = folder.index(segment)
        blocks, gaps = entries[entries["kind"] == BLOCK], entries[entries["kind"] == GAP]
        timed = blocks[blocks["begins"] > 0]
        low, high = self.time_min, self.time_max
        if len(timed):
            first, last = int(timed["time_min"].min()), int(timed["time_max"].max())
            low, high = (min(low, first), max(high, last)) if self.timed else (first, last)
        made = Totals(
            segment.base,
            end_of(segment, entries, about),
            self.segments + 1,
            self.messages + int(blocks["begins"].sum()),
            self.size + int(about["data_length"]),
            self.gaps + len(gaps),
            self.lost + int(gaps["time_min"].sum()),
            low,
            high,
            self.start,
            int(self.timed or len(timed) > 0),
        )
        return made, bool(about["sealed"]), unfit(segment, about, self.end)


def note(folder: RecordingFolder, start: int) -> None:
    """Adds the sealed segments that are not in it. start: where the recording begins. Never fails: a ledger that cannot be written says
    less."""
    with contextlib.suppress(OSError, PenstockError):
        fd = open_private(folder.path / LEDGER, os.O_RDWR)
        try:
            count = os.fstat(fd).st_size // LENGTH
            last = Totals.decode(os.pread(fd, LENGTH, (count - 1) * LENGTH)) if count else _nothing(start)
            while last is not None:
                segment = folder.segment_paths(last.end)
                if not segment.index.exists():
                    return
                last, sealed, wrong = last.after(folder, segment)
                if not sealed or wrong or last.base == last.end:  # an extension writes an empty one again
                    return
                os.pwrite(fd, last.encode(), count * LENGTH)
                count += 1
        finally:
            os.close(fd)


def cut(folder: Path, position: int) -> None:
    """Removes what it says about positions from `position` on. Call it before bytes are cut off."""
    with contextlib.suppress(FileNotFoundError), open(folder / LEDGER, "r+b", buffering=0) as file:
        count = os.fstat(file.fileno()).st_size // LENGTH
        while count:
            last = Totals.decode(os.pread(file.fileno(), LENGTH, (count - 1) * LENGTH))
            if last is not None and last.end <= position:
                break
            count -= 1
        os.ftruncate(file.fileno(), count * LENGTH)
        os.fsync(file.fileno())


def brief(folder: RecordingFolder, start: int) -> Extent | None:
    """How much a long recording holds, by its ledger and the indexes of the segments behind it. None if the ledger does not say: then
    all indexes do."""
    try:
        durable = None if (mark := folder.mark()) is None else mark.position  # first: a recorder may be adding
    except Corrupt:
        durable = None
    try:
        with open(f"{folder.path}/{LEDGER}", "rb", buffering=0) as file:
            count = os.fstat(file.fileno()).st_size // LENGTH
            if count < LONG:
                return None
            totals = Totals.decode(os.pread(file.fileno(), LENGTH, (count - 1) * LENGTH))
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
    return Extent(
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


def _nothing(start: int) -> Totals:
    return Totals(start, start, 0, 0, 0, 0, 0, 0, 0, start, 0)
