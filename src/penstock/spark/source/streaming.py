"""The streaming reader of the data source `penstock`: follows an archive, from offset to offset. Plans on the driver, reads in tasks.

One object lives as long as its query, so that a trigger costs what is new. Offsets are in `offsets`, what is new in `penstock.record`.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import Invalid, NotFound, PenstockError, SystemFailure, Unsupported
from penstock.record import ArchiveWatch, Consumer, Lost, Range, intervals
from penstock.record.archive import Archive
from penstock.spark.runtime.workers import in_a_line
from penstock.spark.source.offsets import Offset, Positions, positions_to_json
from penstock.spark.source.options import Request
from penstock.util.files.uris import is_remote

log = logging.getLogger("penstock")


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, planned: Range, since: int, until: int) -> None:
        self.range, self.since, self.until = planned, since, until


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Messages of an archive as they come, each once.

    columns: name → whether Spark takes it for nullable. The methods have the names that Spark gives them. In a task, only `read` is
    called, on a copy that knows the request and the columns.
    """

    def __init__(self, request: Request, columns: dict[str, bool]) -> None:
        self.request, self.columns = request, columns
        self._watch: ArchiveWatch | None = None
        self._opened: Archive | None = None
        self._archive = ""
        self._noted: Offset | None = None  # as the consumer's ledger has it
        self._target: Positions | None = None
        self._initial: Offset | None = None
        self._latest: Offset | None = None
        self._triggered = 0.0  # when a batch was planned last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(("_opened", "_watch", "_target", "_initial", "_latest", "_noted"))}

    # ---- offsets ----

    @in_a_line
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins. Messages that went before are not its own."""
        if self._initial is None:
            watch, query = self._look(), secrets.token_hex(8)
            done = self.request.begin(watch)
            for stream, parts in watch.removed().items():
                done[stream] = intervals.union(done.get(stream, []), parts)
            self._initial = Offset(self._archive, query, self.request.consumer or f"query-{query}", done, done)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the options set."""
        if self.request.max_bytes is not None:
            return ReadMaxBytes(self.request.max_bytes)
        if self.request.max_messages is not None:
            return ReadMaxRows(self.request.max_messages)
        return ReadAllAvailable()

    @in_a_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch: `start` if there is nothing new."""
        watch, begin = self._look(), self._offset(start)
        if (
            self._noted is not None
        ):  # the batches before were committed: Spark itself says so only when the next one is planned
            self._note(begin)
        begun = watch.carried(begin.done)
        lost = self._lost(watch, begun)
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if size is not None:
            count = self.request.max_messages
        fresh = watch.fresh(begun, within=self._target, max_bytes=size, max_messages=count)
        self._latest = begin
        if not fresh or self._waits(watch, fresh):
            return start
        self._triggered = time.monotonic()
        done = dict(begun)
        for stream, parts in fresh.items():
            passed = intervals.common(lost.get(stream, []), [(0, intervals.end_of(parts))])
            done[stream] = intervals.union(done.get(stream, []), parts, passed)
        channels = {channel for channel, _ in fresh}
        for stream, parts in lost.items():
            rest = intervals.without(watch.held().get(stream, []), begun.get(stream, []))
            if stream[0] in channels and not rest:  # this epoch has ended: a row of another one tells of its end
                done[stream] = intervals.union(done.get(stream, []), parts)
        self._latest = replace(begin, done=done)
        return self._latest.to_json()

    def _waits(self, watch: ArchiveWatch, fresh: Positions) -> bool:
        """Whether a batch waits for more messages. What is there when a query is to end with it, it waits for no more."""
        request = self.request
        if not request.min_messages or self._target is not None:
            return False
        is_due = not self._triggered or time.monotonic() - self._triggered >= request.delay_s
        return not is_due and watch.bytes_and_messages(fresh)[1] < request.min_messages

    def _lost(self, watch: ArchiveWatch, done: Positions) -> Positions:
        """Positions that went before they were read. An error, if that is what failOnDataLoss says."""
        gone = {stream: intervals.without(parts, done.get(stream, [])) for stream, parts in watch.removed().items()}
        lost = {stream: parts for stream, parts in gone.items() if parts}
        if lost and self.request.on_loss == "true":
            (channel, _), parts = next(iter(lost.items()))
            more = f", and of {len(lost) - 1} more streams" if len(lost) > 1 else ""
            raise NotFound(
                f"{intervals.total(parts):,} bytes of {channel} from position {parts[0][0]} on{more} were purged, or cut off, before "
                "this query read them. Set failOnDataLoss to false, or to mark, to go on without them"
            )
        return lost

    @in_a_line
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Positions up to which there is something, for the query's progress, and how much lies behind the batch that was planned."""
        if self._latest is None or self._watch is None:
            return None
        behind: Positions = {}
        for stream, held in self._watch.held().items():
            left = intervals.without(held, self._latest.done.get(stream, []))
            if left:
                behind[stream] = left
        size, messages = self._watch.bytes_and_messages(behind)
        by_stream: dict[str, int] = {}
        for (channel, _), left in sorted(behind.items()):
            by_stream[channel] = by_stream.get(channel, 0) + intervals.total(left)
        lag = {"bytes": size, "messages": messages, "streams": by_stream}
        return {"archive": self._archive, "lag": lag, "streams": positions_to_json(self._watch.held())}

    @in_a_line
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on, what is there now is all there is."""
        self._target = {stream: list(held) for stream, held in self._look().held().items()}

    @in_a_line
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has processed everything up to here: the archive may be purged so far."""
        self._note(self._offset(end))

    def _note(self, offset: Offset) -> None:
        """Writes the consumer's ledger. An archive that may only be read has none."""
        assert self._opened is not None
        if offset == self._noted:
            return
        channels = self.request.channels
        try:
            self._opened.note_consumer(Consumer(offset.consumer, channels, time.time_ns(), offset.done))
        except Unsupported:
            log.debug("the archive is on an object storage, where nothing is purged")
        except SystemFailure as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            if self._noted is None:
                log.warning("%s. Nothing keeps the archive's messages for this query", error)
        self._noted = offset

    # ---- planning ----

    @in_a_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one batch. A batch that is planned again has the same positions."""
        return [self.partition(one, number) for number, one in enumerate(self.ranges(start, end))]

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """The ranges of one batch."""
        if start == end:
            return []
        until = self._offset(end)
        begin = until.since(self._offset(start))
        if self._noted is None:
            self._note(begin)
        watch = self._watch if self._watch is not None and self._latest == until else self._look()
        begun = watch.carried(begin.done)
        wanted = {
            stream: parts
            for stream, done in until.done.items()
            if (parts := intervals.without(done, begun.get(stream, [])))
        }
        told = {stream: intervals.end_of(done) for stream, done in begun.items()}
        size = self.request.bytes_of_ranges(sum(map(intervals.total, wanted.values())))
        lost = self._lost(watch, begun)
        removed = [
            Lost(*stream, *part, 0)
            for stream, parts in wanted.items()
            for part in intervals.common(parts, lost.get(stream, []))
            if self.request.on_loss == "mark"
        ]
        found = watch.plan(wanted, range_bytes=size, reported=told, removed=removed)
        planned = {(one.channel, one.epoch) for one in found}
        for gap in removed:
            first = next((at for at, one in enumerate(found) if one.channel == gap.channel), None)
            if (gap.channel, gap.epoch) not in planned and first is not None:
                one = found[first]
                found[first] = replace(one, lost=[*one.lost, (one.start, gap.end - gap.start)])
        return found

    def partition(self, planned: Range, number: int) -> InputPartition:
        """The task that reads a range."""
        return RangePartition(planned, self.request.since, self.request.until)

    def _look(self) -> ArchiveWatch:
        if self._watch is None:
            self._opened = Archive(self.request.path, create=False)
            self._archive, self._watch = self._opened.id, self._opened.watch(self.request.channels)
            if awaited := self.request.missing(self._opened):
                log.warning("%s has no recording of %s: it is awaited", self.request.path, ", ".join(awaited))
        self._watch.refresh()
        return self._watch

    def _offset(self, given: dict[str, Any]) -> Offset:
        found = Offset.of(given)
        if not self._archive:
            self._look()
        if found.archive != self._archive:
            raise Invalid(
                f"{self.request.path} is another archive than the one that this query's checkpoint is about ({self._archive}, "
                f"not {found.archive}): begin with a new checkpoint, or give the query its own archive"
            )
        return found

    # ---- in a task ----

    @in_a_line
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        gc.freeze()
        assert isinstance(partition, RangePartition)
        try:
            yield from rows_of(partition, self.columns, self.request.batch_rows)
        except (PenstockError, OSError):
            planned = partition.range
            if is_remote(planned.path) or os.path.isdir(planned.path):
                raise
            what = f"recording {planned.recording} of {planned.channel} was purged while this query read it"
            if self.request.on_loss == "true":
                raise NotFound(f"{what}. Set failOnDataLoss to false, or to mark, to go on without it") from None
            log.warning("%s", what)


class Refused(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a request that is wrong: every call of Spark's raises its error."""

    def __init__(self, error: PenstockError) -> None:
        self.error = error

    @in_a_line
    def _refuse(self, *_: Any) -> Any:
        raise self.error

    initialOffset = prepareForTriggerAvailableNow = getDefaultReadLimit = _refuse  # noqa: N815
    partitions = read = _refuse

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises it. Spark counts the arguments."""
        found: dict[str, Any] = self._refuse()
        return found


def rows_of(partition: RangePartition, columns: dict[str, bool], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    batches = partition.range.rows(list(columns), since=partition.since, until=partition.until, batch_rows=batch_rows)
    for batch in batches:
        yield arrange(batch, columns)


def arrange(batch: pa.RecordBatch, columns: dict[str, bool]) -> pa.RecordBatch:
    """The columns asked for in their order, name → whether Spark takes it for nullable."""
    arrays = [batch.column(name) for name in columns]
    fields = [
        pa.field(name, array.type, nullable=nullable)
        for (name, nullable), array in zip(columns.items(), arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
