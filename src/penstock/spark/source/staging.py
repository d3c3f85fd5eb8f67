"""Rows as encoded messages in files: what a task writes before the driver publishes or appends a batch. Knows codecs and Arrow; no Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import codecs
from penstock.errors import Invalid

PAYLOAD = "payload"
EXAMPLE = '[["speed", "<f4"]]'
NUMBERS = {
    "tinyint": "<i1",
    "smallint": "<i2",
    "int": "<i4",
    "bigint": "<i8",
    "float": "<f4",
    "double": "<f8",
    "boolean": "?",
    "timestamp": "<M8[us]",
    "timestamp_ntz": "<M8[us]",
    "date": "<M8[D]",
}
STAGED = pa.schema([pa.field("payload", pa.large_binary(), nullable=False), pa.field("time_ns", pa.int64())])


@dataclass(frozen=True)
class Encoding:
    """How rows become messages. columns: name → Spark's type, in order. codec: as the channel gets it; None: it keeps its own. whole:
    a row is a message, and not only its column `payload`. time: the column with the send time, or None."""

    columns: Mapping[str, str]
    codec: dict[str, Any] | None
    whole: bool
    derived: bool = False
    time: str | None = None

    @classmethod
    def of(cls, columns: Mapping[str, str], asked: str | None, time: str | None) -> Encoding:
        """From the option `codec` and the columns of a DataFrame. `Invalid` if these make no messages."""
        if time is not None and columns.get(time) not in ("timestamp", "bigint"):
            raise Invalid(f"timeColumn is {time!r}: it must name a column of type timestamp or bigint (nanoseconds)")
        if PAYLOAD in columns:
            if columns[PAYLOAD] not in ("binary", "string"):
                raise Invalid(f"the column payload is {columns[PAYLOAD]}: it must be binary or string, a message each")
            spec = None if asked is None else _spec(asked, columns, None)
            return cls(columns, spec, False, time=time)
        if asked == "bytes":
            raise Invalid("codec is bytes: then the messages come from a column payload, binary or string")
        spec = _spec(asked or "json", columns, time)
        return cls(columns, spec, True, derived=asked == "struct", time=time)

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch's rows as `STAGED`. `Invalid` for a row that is no message."""
        if self.whole:
            payload = self._rows(batch)
        else:
            payload = batch.column(PAYLOAD).cast(pa.large_binary())
            if payload.null_count:
                raise Invalid("the column payload is null in some rows: leave them out with a filter")
        return pa.RecordBatch.from_arrays([payload, self._times(batch)], schema=STAGED)

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        if self.time is None:
            return pa.nulls(batch.num_rows, pa.int64())
        found = batch.column(self.time)
        if found.null_count:
            raise Invalid(f"the column {self.time} is null in some rows: leave them out with a filter")
        if pa.types.is_timestamp(found.type):
            found = found.cast(pa.timestamp("ns", found.type.tz)).cast(pa.int64())
        return found.cast(pa.int64())

    def _rows(self, batch: pa.RecordBatch) -> pa.Array:
        names = [name for name in batch.schema.names if name != self.time]
        batch = batch.select(names)
        assert self.codec is not None
        if self.derived:
            return self._records(batch)
        made = codecs.resolve(self.codec)
        if "dtype" in self.codec:
            fields = [field[0] for field in self.codec["dtype"]]
            columns = [batch.column(name).to_pylist() for name in fields]
            messages: Any = zip(*columns, strict=True)
        else:
            messages = batch.to_pylist(maps_as_pydicts="strict")
        return pa.array([bytes(made.encode(message)) for message in messages], pa.large_binary())

    def _records(self, batch: pa.RecordBatch) -> pa.Array:
        """Numbers of fixed width: in the layout of NumPy, a column at a time."""
        import numpy as np

        assert self.codec is not None
        records = np.empty(batch.num_rows, np.dtype([tuple(field) for field in self.codec["dtype"]]))
        for name in batch.schema.names:
            column = batch.column(name)
            if column.null_count:
                raise Invalid(f"the column {name} is null in some rows, and records have no nulls: leave them out")
            records[name] = column.to_numpy(zero_copy_only=False)
        kind = pa.binary(max(records.dtype.itemsize, 1))
        found = pa.Array.from_buffers(kind, len(records), [None, pa.py_buffer(records.tobytes())])
        return found.cast(pa.binary()).cast(pa.large_binary())


def _spec(asked: str, columns: Mapping[str, str], time: str | None) -> dict[str, Any]:
    """A codec's description from the option: bytes, json, msgpack, struct, or a dtype's fields as JSON."""
    if asked in ("bytes", "json", "msgpack"):
        return {"kind": asked}
    if asked == "struct":
        if PAYLOAD in columns:
            raise Invalid(
                f"codec is struct: name the fields, as {EXAMPLE}, where the messages are in the column payload"
            )
        odd = [name for name, kind in columns.items() if kind not in NUMBERS and name != time]
        if odd:
            raise Invalid(
                f"the column {odd[0]} is {columns[odd[0]]}, which has no fixed width: name the fields, as {EXAMPLE}"
            )
        return {"kind": "struct", "dtype": [[name, NUMBERS[columns[name]]] for name in columns if name != time]}
    try:
        fields = json.loads(asked)
    except ValueError:
        fields = None
    if not isinstance(fields, list) or not fields:
        raise Invalid(
            f"codec is {asked!r}: it must be bytes, json, msgpack, struct, or a dtype's fields as JSON, as {EXAMPLE}"
        )
    made = codecs.resolve({"kind": "struct", "dtype": fields})
    missing = [str(field[0]) for field in fields if field[0] not in columns]
    if missing and PAYLOAD not in columns:
        raise Invalid(f"codec names {', '.join(missing)}, which is no column; there are {', '.join(columns)}")
    return made.spec


def write(path: Path, batches: Iterator[pa.RecordBatch], encoding: Encoding, *, durable: bool) -> int:
    """Writes a task's messages into a new file. How many; no file if there are none."""
    count, writer = 0, None
    try:
        for batch in batches:
            if batch.num_rows:
                if writer is None:
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    file = open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
                    writer = pa.ipc.new_stream(file, STAGED)
                writer.write_batch(encoding.encode(batch))
                count += batch.num_rows
        if writer is not None:
            writer.close()
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        if writer is not None:
            file.close()
    return count


def bodies(path: str) -> Iterator[bytes]:
    """The messages of a file."""
    yield from _column(path, 0)


def times_ns(paths: Sequence[str]) -> Iterator[int]:
    """When the messages of files were sent."""
    for path in paths:
        yield from _column(path, 1)


def _column(path: str, number: int) -> Iterator[Any]:
    with open(path, "rb") as file:
        for batch in pa.ipc.open_stream(file):
            yield from batch.column(number).to_pylist()
