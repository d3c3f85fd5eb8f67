"""Scanner: batches of a recording's messages out of the compiled scan. Knows segments by their paths only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock._native import core as _native
from penstock.errors import Invalid
from penstock.moments import Moment, nanoseconds
from penstock.options import whole

if TYPE_CHECKING:
    import pyarrow as pa

FOR_EVER = (1 << 64) - 1
MAX_BATCH_ROWS = (1 << 31) - 1
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
COLUMNS = _native.RECORDED_COLUMNS


def span(start: int, end: int) -> tuple[int, int]:
    """Positions [start, end), checked. An end beyond all positions is the last one."""
    last = end if not isinstance(end, int) or end < FOR_EVER else FOR_EVER
    return whole(start, "start", most=FOR_EVER), whole(last, "end", most=FOR_EVER)


class Scanner:
    """Batches of a recording's messages: an iterator of `pyarrow.RecordBatch`. Made by `Archive.scan` and `Range.scan`. One thread
    at a time.

    segments: (data path, index path) in order. Each must begin where the one before it ended, or the scan raises `Corrupt`.
    start, end: positions, as `span` gives them. open: how a path is opened where it is no file; see `RecordingFolder.opener`. later: gives
    segments behind those; asked only if a message needs them.
    """

    def __init__(
        self,
        segments: list[tuple[str, str]],
        stream: str,
        columns: Sequence[str],
        *,
        start: int = 0,
        end: int = FOR_EVER,
        since: Moment = TIME_MIN,
        until: Moment = TIME_MAX,
        batch_rows: int = 32768,
        batch_bytes: int = 64 << 20,
        frames: bool = False,
        open: Callable[[str], Any] | None = None,
        later: Callable[[], list[tuple[str, str]]] | None = None,
    ) -> None:
        unknown = set(columns) - set(COLUMNS)
        if unknown:
            raise Invalid(f"no columns {sorted(unknown)}; there are {', '.join(COLUMNS)}")
        since, until = nanoseconds(since, "since"), nanoseconds(until, "until")
        self._columns = sum(COLUMNS[name] for name in set(columns))
        self._scan = _native.Scan(
            segments,
            start=start,
            end=end,
            time_min=since,
            time_max=until,
            columns=self._columns,
            stream=stream,
            batch_rows=whole(batch_rows, "batch_rows", 1, MAX_BATCH_ROWS),
            batch_bytes=batch_bytes,
            frames=frames,
            open=open,
            later=later,
        )

    @property
    def resume(self) -> int:
        """The position where a later scan must begin, to see every message that this one did not yield."""
        return self._scan.resume

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        import pyarrow as pa

        capsules = self._scan.next_batch()
        if capsules is None:
            raise StopIteration
        return pa.RecordBatch._import_from_c_capsule(*capsules)

    def empty(self) -> pa.RecordBatch:
        """A batch without rows, for its schema."""
        import pyarrow as pa

        return pa.RecordBatch._import_from_c_capsule(*_native.empty_batch(self._columns))
