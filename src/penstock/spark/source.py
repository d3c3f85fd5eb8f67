"""The data source `penstock`: archives as rows. Plans partitions from indexes, pushes filters into the plan, and gives
Spark Arrow batches that the compiled core makes straight from segments.
"""

from __future__ import annotations

import datetime
import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from penstock.errors import Invalid
from penstock.front import Archive
from penstock.record.archive import COLUMNS, TIME_MAX, TIME_MIN, Scanner
from penstock.record.plan import Range, plan

SCHEMA = (
    "stream STRING NOT NULL, session INT NOT NULL, position BIGINT NOT NULL, time TIMESTAMP NOT NULL, "
    "timestamp_ns BIGINT NOT NULL, sender STRING, type STRING, flags INT NOT NULL, lost BIGINT NOT NULL, "
    "recorded_ns BIGINT NOT NULL, payload BINARY NOT NULL"
)
TYPES = {
    "stream": "string",
    "session": "int",
    "position": "bigint",
    "time": "timestamp",
    "timestamp_ns": "bigint",
    "sender": "string",
    "type": "string",
    "flags": "int",
    "lost": "bigint",
    "recorded_ns": "bigint",
    "payload": "binary",
}
RANGE_BYTES_MAX, RANGE_BYTES_MIN = 64 << 20, 4 << 20
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Wanted:
    """What the pushed filters leave to read."""

    channels: set[str] | None = None
    since: int = TIME_MIN
    until: int = TIME_MAX
    start: int = 0
    end: int = (1 << 64) - 1

    def take(self, pushed: Filter) -> bool:
        """Applies a filter exactly; False if Spark must."""
        if isinstance(pushed, EqualTo | In) and pushed.attribute == ("stream",):
            values = {pushed.value} if isinstance(pushed, EqualTo) else set(pushed.value)
            self.channels = values if self.channels is None else self.channels & values
            return True
        bounds = _bounds(pushed)
        if bounds is None:
            return False
        column, low, high = bounds
        if column == "position":
            self.start, self.end = max(self.start, low), min(self.end, high + 1)
        else:
            self.since, self.until = max(self.since, low), min(self.until, high)
        return True


def _bounds(pushed: Filter) -> tuple[str, int, int] | None:
    """(column, lowest, highest) of a comparison on position, timestamp_ns or time, in whole units; None for others."""
    if not isinstance(pushed, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    column = pushed.attribute[0] if len(pushed.attribute) == 1 else ""
    value = pushed.value
    width = 1
    if column == "time" and isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.UTC) if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        value, width = ((moment - EPOCH) // datetime.timedelta(microseconds=1)) * 1000, 1000
    elif column not in ("position", "timestamp_ns") or not isinstance(value, int):
        return None
    low, high = TIME_MIN, TIME_MAX
    if isinstance(pushed, EqualTo | GreaterThanOrEqual):
        low = value
    if isinstance(pushed, GreaterThan):
        low = value + width
    if isinstance(pushed, EqualTo | LessThanOrEqual):
        high = value + width - 1
    if isinstance(pushed, LessThan):
        high = value - 1
    return column, low, high


@dataclass
class RangePartition(InputPartition):
    """One task's share."""

    range: Range
    since: int
    until: int

    def __init__(self, planned: Range, since: int, until: int) -> None:
        self.range, self.since, self.until = planned, since, until


class PenstockDataSource(DataSource):
    """`spark.read.format("penstock").load(ARCHIVE)`; `penstock.spark.load` writes the options.

    Options that narrow what is read, exactly: `stream` (names with commas), `since` and `until` (send time, nanoseconds
    since the epoch, inclusive), `start` and `end` (positions, end exclusive). A schema given by the user is a projection.
    `pushdown=true` also takes filters from Spark. It is off by default because Spark 4.2 and 4.3 keep the narrowed plan
    for later queries on the same DataFrame that push no filter, which then miss rows: use each such DataFrame once.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock"

    def schema(self) -> str:
        """All columns there are."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        kind = PushingReader if self.options.get("pushdown", "false").lower() == "true" else PenstockReader
        return kind(schema, dict(self.options))


class PenstockReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        for field in schema.fields:
            if field.name not in TYPES:
                raise Invalid(f"recordings have no column {field.name}; they have {SCHEMA}")
            if field.dataType.simpleString() != TYPES[field.name]:
                raise Invalid(f"the column {field.name} is {TYPES[field.name]}, not {field.dataType.simpleString()}")
        if not options.get("path"):
            raise Invalid('name the archive: spark.read.format("penstock").load("ARCHIVE")')
        self.columns = {field.name: bool(field.nullable) for field in schema.fields}
        self.path = options["path"]
        self.range_bytes = int(options.get("rangebytes", "0"))
        self.batch_rows = int(options.get("batchrows", "32768"))
        self.wanted = Wanted()
        if options.get("stream"):
            self.wanted.channels = set(options["stream"].split(","))
        for name in ("since", "until", "start", "end"):
            if options.get(name):
                setattr(self.wanted, name, _whole(name, options[name]))

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges that the filters leave, by the indexes alone."""
        w = self.wanted
        archive = Archive(self.path, create=False)
        since, until = (w.since if w.since > TIME_MIN else None), (w.until if w.until < TIME_MAX else None)
        size = self.range_bytes or _range_bytes(archive)
        ranges = plan(
            archive,
            channels=w.channels,
            since=since,
            until=until,
            start=max(w.start, 0),
            end=max(w.end, 0),
            range_bytes=size,
        )
        return [RangePartition(planned, w.since, w.until) for planned in ranges] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        gc.freeze()
        if not isinstance(partition, RangePartition):
            return
        columns = [name for name in self.columns if name in COLUMNS] or ["position"]
        planned = partition.range
        scanner = Scanner(
            list(planned.segments),
            planned.channel,
            columns,
            start=planned.start,
            end=planned.end,
            since=partition.since,
            until=partition.until,
            batch_rows=self.batch_rows,
        )
        for batch in scanner:
            yield arrange(batch, self.columns)


class PushingReader(PenstockReader):
    """Takes filters from Spark, too."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Takes what it can apply exactly, gives the rest back."""
        for pushed in filters:
            if not self.wanted.take(pushed):
                yield pushed


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Invalid(f"the option {name} is {text!r}: it must be a whole number") from None


def arrange(batch: pa.RecordBatch, columns: dict[str, bool]) -> pa.RecordBatch:
    """The columns asked for, name → whether null is allowed; those that a log lacks (sender, type) are null."""
    arrays, fields = [], []
    for name, nullable in columns.items():
        known = name in batch.schema.names
        arrays.append(batch.column(name) if known else pa.nulls(batch.num_rows, pa.string()))
        fields.append(pa.field(name, arrays[-1].type, nullable=nullable))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _range_bytes(archive: Archive) -> int:
    """About four tasks per core for what there is, within reason."""
    total = sum(info.bytes for info in archive.list())
    return min(RANGE_BYTES_MAX, max(RANGE_BYTES_MIN, total // (4 * (os.cpu_count() or 1))))
