"""A range of a recording: the part of a plan that one task reads. Plain values, so that it can be sent to another process as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.channels.checks import whole
from penstock.errors import PenstockError
from penstock.record.format.remote_archive import folder_at
from penstock.record.read.planning.needed_segments import changes, first_needed, paths
from penstock.record.read.scan import TIME_MAX, TIME_MIN, Scanner
from penstock.util.files.durable import own_errors
from penstock.util.units import Moment

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Range:
    """Messages of one recording that begin in positions [start, end).

    path: the recording's folder. segments: the positions at which those of its segments begin that hold the range. before: the folder
    and the beginning of a run of positions without a gap that reaches up to the range, if there is one. lost: positions that no recording of the
    channel has, as (first position behind it, bytes), reported by the first message there. open_end: it ends where a recorder is still
    writing.
    """

    recording: int
    channel: str
    codec: dict[str, Any]
    epoch: int
    start: int
    end: int
    bytes: int
    messages: int
    time_min: int
    time_max: int
    before: Sequence[Any] | None
    open_end: bool
    path: str
    segments: Sequence[int]
    lost: Sequence[Sequence[int]] = ()

    @own_errors
    def scan(
        self,
        columns: Sequence[str],
        *,
        start: int | None = None,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        batch_rows: int = 32768,
        batch_bytes: int = 64 << 20,
        frames: bool = False,
    ) -> Scanner:
        """The range's messages as batches; options as in `Archive.scan`. start: a later position to begin at.

        A message that begins in the range may end after it: the scan continues in the segments that the recording has there by then.
        The column `lost` is of this recording alone; see `rows`.
        """
        folder = folder_at(self.path)
        last = max(self.segments, default=0)
        return Scanner(
            paths([folder.segment_paths(base) for base in self.segments]),
            self.channel,
            columns,
            start=self.start if start is None else whole(start, "start"),
            end=self.end,
            since=since,
            until=until,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            frames=frames,
            open=folder.opener,
            recording=folder.number,
            expects=self.end,
            meanwhile=changes(folder, self.channel),
            later=lambda: paths([segment for segment in folder.segments() if segment.base > last]),
        )

    def rows(self, columns: Sequence[str], **options: Any) -> Iterator[pa.RecordBatch]:
        """As `scan`, but `lost` counts only positions that no recording of the channel has: another one may have those that this one missed."""
        if "lost" not in columns:
            yield from self.scan(columns, **options)
            return
        todo = sorted(map(tuple, self.lost))
        scanner = self.scan([*columns, *({"position"} - set(columns))], **options)
        seen = 0
        for batch in scanner:
            fresh, seen = scanner.left_out[seen:], len(scanner.left_out)
            todo = sorted([*todo, *((one.end, one.end - one.start) for one in fresh if not one.in_index)])
            yield with_lost(batch, todo, columns)

    @own_errors
    def time_before(self) -> int | None:
        """Send time of the message before the range's first, in nanoseconds; None without such a message, or with a gap before the range."""
        if self.before is None:
            return None
        path, begins = self.before
        folder, reach = folder_at(path), 1 << 16
        while True:
            low = max(begins, self.start - reach)
            try:
                own = path == self.path and self.segments[0] < self.start and self.segments[0] <= low
                segments = [folder.segment_paths(base) for base in self.segments] if own else folder.segments()
                scanner = Scanner(
                    paths(segments[first_needed(segments, low) :]),
                    self.channel,
                    ["position", "timestamp_ns"],
                    start=low,
                    end=self.start,
                    open=folder.opener,
                    recording=folder.number,
                )
                last = max((_last(batch) for batch in scanner), default=None)
                if any(one.end > (low if last is None else last[0]) for one in scanner.left_out):
                    return None
            except (PenstockError, OSError):  # the other recording is damaged or purged; the range itself may be sound
                return None
            if last is not None or low == begins:
                return None if last is None else last[1]
            reach *= 16


def _last(batch: pa.RecordBatch) -> tuple[int, int]:
    positions = batch.column("position").to_numpy()
    at = int(positions.argmax())
    return int(positions[at]), int(batch.column("timestamp_ns")[at].as_py())


def with_lost(batch: pa.RecordBatch, todo: list[Any], columns: Sequence[str]) -> pa.RecordBatch:
    """A batch with the column `lost` made from `todo`, (first position behind a loss, bytes) in order, from which reported ones are removed."""
    import numpy as np
    import pyarrow as pa

    found = np.zeros(batch.num_rows, np.int64)
    positions = batch.column("position").to_numpy()
    while todo:
        behind = positions >= todo[0][0]
        if not behind.any():
            break
        found[int(behind.argmax())] += todo.pop(0)[1]
    lost = batch.schema.get_field_index("lost")
    made = batch.set_column(lost, batch.schema.field(lost), pa.array(found, pa.int64()))
    return made.select([name for name in batch.schema.names if name in columns])
