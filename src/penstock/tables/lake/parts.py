"""The parts of a stream in a query: files of its table, ranges of recordings, messages copied from memory. Each says what its rows can be.

Knows how each is read; does not know why a query needs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.columns.contract import Contract
from penstock.columns.contract.decoding import decode
from penstock.record import Range
from penstock.record.read.rows import BATCH_ROWS, MESSAGE_COLUMNS
from penstock.tables.delta.files import File
from penstock.tables.delta.table import Table
from penstock.tables.reading import read_file
from penstock.tables.schemas import STREAM, signed
from penstock.tables.work.stream_rows import own_columns, select_unerased, source_columns

SOURCE_NAMES = frozenset(STREAM.names) - {"decode_error", "_rescued"}  # columns that need no payload


@dataclass(frozen=True)
class Asked:
    """What a query needs of a part. schema: all columns of the stream, or, if it is not `whole`, those of the key and the source."""

    schema: pa.Schema
    contract: Contract
    erased: Sequence[tuple[int, int]]
    whole: bool


class Part(ABC):
    """Some rows of a stream."""

    @abstractmethod
    def bounds(self) -> ds.Expression:
        """A condition that all its rows meet: where a query's filter contradicts it, the part is not read."""

    @abstractmethod
    def read(self, asked: Asked) -> Iterator[pa.RecordBatch]:
        """Its rows."""


@dataclass(frozen=True)
class Gone:
    """Rows of a table that do not count in a query: those at or behind a position of an epoch, of one recording or of all, or those that
    were sent in a span of time, both ends inclusive."""

    epoch: int | None = None
    position: int = 0
    recording: int | None = None
    times: tuple[int, int] = (0, 0)

    def expression(self) -> ds.Expression:
        """As Arrow's condition."""
        if self.epoch is None:
            return (pc.field("timestamp_ns") >= self.times[0]) & (pc.field("timestamp_ns") <= self.times[1])
        found = (pc.field("epoch") == signed(self.epoch)) & (pc.field("position") >= self.position)
        return found if self.recording is None else found & (pc.field("recording") == self.recording)

    def sql(self) -> str:
        """As a condition of SQL."""
        if self.epoch is None:
            return f"timestamp_ns between {self.times[0]} and {self.times[1]}"
        found = f"epoch = {signed(self.epoch)} and position >= {self.position}"
        return found if self.recording is None else f"{found} and recording = {self.recording}"


@dataclass(frozen=True)
class FilePart(Part):
    """A file of the stream's table. gone: rows that do not count."""

    table: Table
    file: File
    gone: Sequence[Gone]

    def bounds(self) -> ds.Expression:
        """By the statistics of the table's log."""
        low, high = self.file.low, self.file.high
        found = pc.scalar(True)
        if "timestamp_ns" in low and "timestamp_ns" in high:
            found = _sent(low["timestamp_ns"], high["timestamp_ns"])
        if "position" in low and "position" in high:
            found = found & _at(low["position"], high["position"])
        return found

    def read(self, asked: Asked) -> Iterator[pa.RecordBatch]:
        """The whole file."""
        found = read_file(self.table, self.file, asked.schema)
        for one in self.gone:
            found = found.filter(~one.expression())
        yield from found.to_batches(BATCH_ROWS)


@dataclass(frozen=True)
class RangePart(Part):
    """A range of a recording. but: positions of messages that came from memory."""

    range: Range
    but: frozenset[int] = frozenset()

    def bounds(self) -> ds.Expression:
        """By the recording's index."""
        return _sent(self.range.time_min, self.range.time_max) & _at(self.range.start, self.range.end - 1)

    def read(self, asked: Asked) -> Iterator[pa.RecordBatch]:
        """Decoded here, as the pipeline does."""
        one = self.range
        names = [name for name in MESSAGE_COLUMNS if asked.whole or name != "payload"]
        for batch in one.scan(names, batch_rows=BATCH_ROWS):
            if self.but:
                batch = batch.filter(pc.invert(pc.is_in(batch.column("position"), pa.array(self.but, pa.int64()))))
            yield _rows(asked, batch, one.codec, one.epoch, one.recording)


@dataclass(frozen=True)
class MemoryPart(Part):
    """Messages that were copied from memory. codec, epoch: the channel's."""

    batch: pa.RecordBatch
    codec: dict[str, Any]
    epoch: int

    def bounds(self) -> ds.Expression:
        """By the messages themselves."""
        time, position = (pc.min_max(self.batch.column(name)).as_py() for name in ("timestamp_ns", "position"))
        return _sent(time["min"], time["max"]) & _at(position["min"], position["max"])

    def read(self, asked: Asked) -> Iterator[pa.RecordBatch]:
        """Decoded here."""
        for at in range(0, self.batch.num_rows, BATCH_ROWS):
            yield _rows(asked, self.batch.slice(at, BATCH_ROWS), self.codec, self.epoch, None)


def _rows(
    asked: Asked, batch: pa.RecordBatch, codec: dict[str, Any], epoch: int, recording: int | None
) -> pa.RecordBatch:
    found = source_columns(batch, epoch, recording, None)
    if asked.whole:
        found |= own_columns(decode(codec, asked.contract, batch.column("payload"), "rescue"), asked.contract, codec)
    made = pa.RecordBatch.from_arrays([found[field.name] for field in asked.schema], schema=asked.schema)
    kept = select_unerased(batch.column("timestamp_ns"), asked.erased)
    return made if kept is None else made.filter(kept)


def _sent(low: int, high: int) -> ds.Expression:
    """A condition on the two columns of the send time, by nanoseconds; both inclusive."""
    time = pc.field("time")
    least, most = (pa.scalar(ns // 1000, STREAM.field("time").type) for ns in (low, high))
    ns = pc.field("timestamp_ns")
    return (ns >= low) & (ns <= high) & (time >= least) & (time <= most)


def _at(low: int, high: int) -> ds.Expression:
    """A condition on the position; both inclusive."""
    return (pc.field("position") >= low) & (pc.field("position") <= high)
