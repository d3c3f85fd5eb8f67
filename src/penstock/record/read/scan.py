"""Scanner: batches of a recording's messages out of the compiled scan. Knows segments by their paths only.

A damaged block is left out as a gap: it is counted in the column `lost` of the first message after it, named in `left_out`, and logged.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._native import core as _native
from penstock.channels.checks import flag, texts, whole
from penstock.errors import Invalid, NotFound, PenstockError, SystemFailure
from penstock.util.extras import explain_missing
from penstock.util.strict import Strict
from penstock.util.units import Moment, interval

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("penstock")

FOR_EVER = (1 << 64) - 1
LOGGED = 10  # pieces of damage that one scan logs individually
REMOVED = "it was removed while it was read. Run verify"
MAX_BATCH_ROWS = (1 << 31) - 1
TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1
COLUMNS = _native.RECORDED_COLUMNS


def span(start: int | str, end: int) -> tuple[int, int]:
    """Positions [start, end), checked. An end beyond all positions is the last one."""
    last = end if not isinstance(end, int) or end < FOR_EVER else FOR_EVER
    return whole(start, "start", most=FOR_EVER), whole(last, "end", most=FOR_EVER)


class LeftOut(NamedTuple):
    """Damage that a scan left out as a gap: positions [start, end), and how it was found. in_index: found by the indexes, so planning
    knows it; start and end are 0 if the damage itself lost nothing, or if a following gap has the positions."""

    start: int
    end: int
    what: str
    in_index: bool


class Scanner(Strict):
    """Batches of a recording's messages: an iterator of `pyarrow.RecordBatch`. Made by `Archive.scan` and `Range.scan`. One thread
    at a time.

    segments: (data path, index path) in order. Where one does not begin where the one before it ended, the part between is a gap.
    start, end: positions, as returned by `span`. open: opens a path that is not a file; see `RecordingFolder.opener`. later: returns the
    segments after those; called only if a message needs them. recording: the recording of the segments. begins: where the first one must
    begin. expects: the end of the messages that existed when the scan was made. meanwhile: called where messages are missing, with the position
    that was reached; returns an error if they were removed in the meantime. damage: of the recording, found before. logged: texts that were logged.
    `ahead`: a batch that comes before them, of messages from before the recording.
    """

    ahead: pa.RecordBatch | None = None
    left_out: list[LeftOut]

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
        recording: int = 0,
        begins: int | None = None,
        expects: int = 0,
        meanwhile: Callable[[int], PenstockError | None] | None = None,
        damage: Sequence[LeftOut] = (),
        logged: set[str] | None = None,
    ) -> None:
        columns = texts(columns, "columns", "names of columns")
        unknown = set(columns) - set(COLUMNS)
        if unknown:
            raise Invalid(f"no columns {sorted(unknown)}; there are {', '.join(COLUMNS)}")
        since, until = interval(since, until)
        self.left_out = []
        self._expects, self._meanwhile = expects, meanwhile
        self._before, self._logged = damage, set[str]() if logged is None else logged
        self._error: PenstockError | None = None
        self._reported, self._ended = 0, False
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
            batch_bytes=whole(batch_bytes, "batch_bytes", 1),
            frames=flag(frames, "frames"),
            open=open,
            later=later,
            recording=recording,
            begins=begins,
        )

    @property
    def resume(self) -> int:
        """The position where a later scan must begin, to see every message that this one did not yield."""
        return self._scan.resume

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self.ahead is not None:
            batch, self.ahead = self.ahead, None
            return batch
        arrow = _arrow()
        capsules = self._advance()
        if capsules is None:
            raise StopIteration
        found: pa.RecordBatch = arrow.RecordBatch._import_from_c_capsule(*capsules)
        return found

    def skip(self) -> None:
        """Reads the rest and discards it, for `resume`. Needs no pyarrow."""
        while self._advance() is not None:
            pass

    def _advance(self) -> tuple[Any, Any] | None:
        if self._error is None and not self._ended:
            try:
                capsules = self._scan.next_batch()
            except SystemFailure as failed:  # files of another machine are not held open
                self._ended = True
                if failed.errno != errno.ENOENT or self._meanwhile is None:
                    raise
                raise self._meanwhile(self.resume) or NotFound(f"{failed.strerror}: {REMOVED}") from None
            self._record_left_out(capsules is None)
            if capsules is not None:
                return capsules
        self._ended = True
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return None

    def _record_left_out(self, ended: bool) -> None:
        """Records the parts that the scan left out. If they were removed in the meantime, that is an error, after the messages that were read."""
        found = [LeftOut(*one) for one in self._scan.left_out(self._reported)]
        self._reported += len(found)
        gone = self._scan.gone
        if ended:
            found += self._before
            self._before = ()
        if not found and not gone and not (ended and self.resume < self._expects):
            return
        self._error = None if self._meanwhile is None else self._meanwhile(self.resume)
        if self._error is not None:
            return
        if gone:
            self._error = NotFound(f"{gone} no longer exists: {REMOVED}")
        for one in found:
            if len(self.left_out) < LOGGED and one.what not in self._logged:
                self._logged.add(one.what)
                log.warning("%s", described(one))
            elif len(self.left_out) == LOGGED:
                log.warning("more damage follows. Run verify, which names all of it")
            self.left_out.append(one)

    def empty(self) -> pa.RecordBatch:
        """A batch without rows, for its schema."""
        batch: pa.RecordBatch = _arrow().RecordBatch._import_from_c_capsule(*_native.empty_batch(self._columns))
        return batch


def _arrow() -> Any:
    with explain_missing("reading a recording"):
        import pyarrow
    return pyarrow


def described(one: LeftOut) -> str:
    """Damage as a line for a person."""
    lost = (
        f" {one.end - one.start} bytes from position {one.start} on are left out, as a gap."
        if one.end > one.start
        else ""
    )
    return f"{one.what}.{lost} Repair records the gap and keeps everything else"
