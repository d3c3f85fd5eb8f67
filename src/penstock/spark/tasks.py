"""One task of the pipeline: reads a range of a recording and writes its share of the tables, or writes files of a table again.

Runs on executors. Gets everything in its argument and answers with what it wrote; knows no Spark and no Delta log. An error of a
stream is part of the answer, so that other streams go on.
"""

from __future__ import annotations

import base64
import errno
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock import columns
from penstock.columns.objects import as_text
from penstock.columns.parts import Unwritten, Writer
from penstock.errors import Corrupt, PenstockError
from penstock.record import Range
from penstock.record.read import rows
from penstock.spark.ledger import Row, fresh_stem, source_of
from penstock.spark.workers import told_in_a_line
from penstock.tables.delta_files import Added, written
from penstock.tables.places import Place

UTC = pa.timestamp("us", "UTC")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_SHARED = [
    ("stream", pa.string()),
    ("session", pa.int32()),
    ("position", pa.int64()),
    ("time", UTC),
    ("timestamp_ns", pa.int64()),
    ("recorded_ns", pa.int64()),
]
RAW = pa.schema([*_SHARED, ("flags", pa.int32()), ("payload", pa.binary())])
MESSAGES = pa.schema(
    [
        *_SHARED,
        ("interval_ns", pa.int64()),
        ("lost", pa.int64()),
        ("bytes", pa.int32()),
        ("payload", pa.binary()),
        ("decode_error", pa.string()),
    ]
)
# Of a stream's own table, in front of the columns that its codec decodes.
STREAM = pa.schema([*_SHARED[1:], ("decode_error", pa.string())])


def run(task: Row) -> Row:
    """Does one task. The answer names the files that were written, or the error of its stream. `number` is the task's own."""
    kinds: dict[str, Callable[[Row], Row]] = {
        "range": _write_range,
        "amend": _amend,
        "retype": _retype,
        "check": _check,
        "join": _join,
    }
    try:
        answer = kinds[task["kind"]](task)
    except PenstockError as error:
        if isinstance(error, Unwritten) or getattr(error, "errno", None) in NO_ROOM:  # no stream's fault
            raise
        answer = {"stream": task["stream"], "files": {}, "done": {}, "error": str(error)}
    return {"number": task["number"], **answer}


def run_in_worker(task: Row) -> Row:
    """The same, in a process of Spark's that does nothing else."""
    gc.freeze()
    with told_in_a_line():
        return run(task)


def pack(schema: pa.Schema) -> str:
    """A schema for a task's argument."""
    return base64.b64encode(schema.serialize()).decode()


def unpack(text: str) -> pa.Schema:
    """From `pack`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


class Output:
    """A Parquet file of a table that a task writes."""

    def __init__(self, task: Row, place: str, source: Row, start: int, end: int) -> None:
        self.place = Place.of(place)
        self._writer = Writer(self.place, fresh_stem(source, start, end), "parquet", task["compression"])

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        if batch.num_rows:
            self._writer.write(batch)

    def close(self) -> list[Any] | None:
        """The file, as `Added.to_json`. None if there were no rows: then there is no file."""
        made = self._writer.close()
        return None if made is None else written(self.place, made.path).to_json()

    def discard(self) -> None:
        """Leaves nothing behind."""
        self._writer.discard()


# ---- a range into raw, messages and its stream's table ----


def _write_range(task: Row) -> Row:
    """One range of a recording into the tables that lack it. Where its messages need more columns than it was given, it writes
    nothing and answers with the keys."""
    planned, places = Range(**task["range"]), task["places"]
    source = source_of(planned, task["generation"])
    outputs = {name: Output(task, place, source, planned.start, planned.end) for name, place in places.items()}
    try:
        return _fill(task, planned, source, outputs)
    except BaseException:
        for output in outputs.values():
            output.discard()
        raise


def _fill(task: Row, planned: Range, source: Row, outputs: dict[str, Output]) -> Row:
    frames, batches, holes, damage = found = rows.read(planned, "raw" in outputs)
    answer: Row = {"stream": planned.channel, "source": source, "files": {}, "done": {}}
    answer["damaged"] = found.damaged(planned.channel)
    if "messages" in outputs or "stream" in outputs:
        ordered = rows.Ordered(batches, planned, damage)
        keys = _write_messages(task, planned.codec, ordered, batches, outputs)
        if keys is not None:
            for output in outputs.values():
                output.discard()
            return {**answer, "keys": columns.keys_to_json(keys)}
        answer["told"] = [[start, end, at] for start, end, at in ordered.reported]
        answer["last"] = ordered.last
    for batch in frames if "raw" in outputs else ():
        outputs["raw"].write(arranged(batch, RAW))
    whole = [(planned.start, planned.end)]
    answer["done"] = {name: whole if name == "raw" else _done(planned, holes) for name in outputs}
    answer["files"] = {name: output.close() for name, output in outputs.items()}
    return answer


def _write_messages(
    task: Row, codec: Row, ordered: rows.Ordered, batches: list[pa.RecordBatch], outputs: dict[str, Output]
) -> columns.Keys | None:
    """Writes the rows; None. Or the keys that they need, if those are more than were given."""
    keys = given = columns.keys_from_json(task["keys"])
    wanted = unpack(task["columns"]) if "stream" in outputs else None
    at = 0
    for batch in batches:
        if keys is given:
            made, keys = ordered.enrich(batch, at, codec, keys)
            if keys is given:
                if "messages" in outputs:
                    outputs["messages"].write(arranged(made, MESSAGES))
                if wanted is not None:
                    outputs["stream"].write(arranged(made, wanted))
        else:
            keys = columns.learn(codec, keys, batch.column("payload"))
        at += batch.num_rows
    return None if keys is given else keys


def _done(planned: Range, holes: list[int]) -> list[tuple[int, int]]:
    """The range's positions but for the holes in it."""
    starts = [planned.start, *(hole + rows.FRAME_STEP for hole in holes)]
    ends = [*holes, planned.end]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def arranged(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with exactly these columns: others go, missing ones are null, and types become those."""
    there = {name.lower(): number for number, name in enumerate(batch.schema.names)}
    arrays = []
    for field in schema:
        number = there.get(field.name.lower())
        nothing = number is None or pa.types.is_null(batch.column(number).type)
        arrays.append(pa.nulls(batch.num_rows, field.type) if nothing else _as(batch.column(number), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values in a wider type, or as text."""
    if array.type == kind:
        return array
    if kind != pa.string() or pa.types.is_dictionary(array.type):
        return array.cast(kind)
    if pa.types.is_binary(array.type):
        return pa.array([None if value is None else value.hex() for value in array.to_pylist()], kind)
    if pa.types.is_temporal(array.type) or pa.types.is_decimal(array.type):
        return pc.cast(array, kind)
    return pa.array([as_text(value, True) for value in array.to_pylist()], kind)


# ---- files written again ----


def _amend(task: Row) -> Row:
    """Rewrites a file. below: only rows before this position. lost, before: by a row's position, the bytes lost in front of it, and the
    send time of the message before it."""
    return _rewrite(task, lambda batch: _amended(batch, task))


def _rewrite(task: Row, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Row:
    place, entry = Place.of(task["place"]), task["entry"]
    end = entry["end"] if task.get("below") is None else min(entry["end"], task["below"])
    output = Output(task, task["place"], source_in(entry), entry["start"], end)
    for batch in _batches(place, entry["path"]):
        output.write(change(batch))
    return {"stream": task["stream"], "source": source_in(entry), "old": [entry["path"]], "file": output.close()}


def source_in(entry: Row) -> Row:
    """The source of a file."""
    return {name: entry[name] for name in ("channel", "epoch", "recording", "generation", "codec")}


def _batches(place: Place, path: str) -> Iterator[pa.RecordBatch]:
    with place.fs.open_input_file(place.file(path)) as source, pq.ParquetFile(source) as file:
        yield from file.iter_batches(rows.BATCH_ROWS)


def _amended(batch: pa.RecordBatch, task: Row) -> pa.RecordBatch:
    if task["below"] is not None:
        batch = batch.filter(pc.less(batch.column("position"), task["below"]))
    if not task["lost"] and not task["before"]:
        return batch
    positions = batch.column("position").to_pylist()
    columns_of = {name: batch.column(name).to_pylist() for name in ("lost", "interval_ns")}
    times = batch.column("timestamp_ns").to_pylist()
    for at, position in enumerate(positions):
        if str(position) in task["lost"]:
            columns_of["lost"][at] = task["lost"][str(position)]
        if str(position) in task["before"]:
            columns_of["interval_ns"][at] = times[at] - task["before"][str(position)]
    for name, values in columns_of.items():
        number = batch.schema.get_field_index(name)
        batch = batch.set_column(number, batch.schema.field(number), pa.array(values, pa.int64()))
    return batch


def _retype(task: Row) -> Row:
    """Rewrites a file of a stream's table in which columns get other types: its rows are decoded again, from the payloads in *messages*."""
    codec, keys, wanted = task["entry"]["codec"], columns.keys_from_json(task["keys"]), unpack(task["columns"])
    payloads = _Payloads(Place.of(task["messages"]), task["paths"])

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        if codec.get("pixels"):  # messages has no payloads of theirs
            return arranged(batch, wanted)
        found = columns.decode(codec, keys, payloads.of(batch.column("position").to_numpy(), task["entry"]))
        shared = batch.select([name for name in STREAM.names if name != "decode_error"])
        fields = [*shared.schema, pa.field("decode_error", pa.string()), *found.schema]
        made = pa.RecordBatch.from_arrays([*shared.columns, found.errors, *found.arrays], schema=pa.schema(fields))
        return arranged(made, wanted)

    return _rewrite(task, change)


def _check(task: Row) -> Row:
    """Decodes the rows of a file of *messages* again, with more keys, and rewrites it if errors differ."""
    codec, keys = task["entry"]["codec"], columns.keys_from_json(task["keys"])
    errors = MESSAGES.get_field_index("decode_error")
    different = False

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal different
        found = columns.decode(codec, keys, batch.column("payload")).errors
        different = different or not found.equals(batch.column(errors))
        return batch.set_column(errors, MESSAGES.field(errors), found)

    answer = _rewrite(task, change)
    if different:
        return answer
    if answer["file"]:
        Place.of(task["place"]).delete(answer["file"][0])
    return {**answer, "old": [], "file": None}


class _Payloads:
    """Payloads of one stream's rows in files of *messages*, by position."""

    def __init__(self, place: Place, paths: list[str]) -> None:
        self._parts = []
        for path in paths:
            with place.fs.open_input_file(place.file(path)) as source:
                found = pq.read_table(source, columns=["position", "payload"], partitioning=None)
            self._parts.append(found)

    def of(self, positions: Any, entry: Row) -> pa.Array:
        """The payloads of these rows. `Corrupt` if *messages* lacks one."""
        found = pa.concat_tables(self._parts).combine_chunks() if self._parts else MESSAGES.empty_table()
        there = found["position"].to_numpy()
        order = np.argsort(there, kind="stable")
        at = np.searchsorted(there[order], positions)
        if len(positions) and (at.max() >= len(there) or not np.array_equal(there[order][at], positions)):
            raise Corrupt(
                f"the table messages lacks rows of {entry['channel']} that its own table has: remove that table"
            )
        return found["payload"].take(pa.array(order[at])).combine_chunks()


def _join(task: Row) -> Row:
    """Several files of one source as one, in the order of positions."""
    place, entries, wanted = Place.of(task["place"]), task["entries"], unpack(task["columns"])
    start, end = min(entry["start"] for entry in entries), max(entry["end"] for entry in entries)
    output = Output(task, task["place"], source_in(entries[0]), start, end)
    batches = [arranged(batch, wanted) for entry in entries for batch in _batches(place, entry["path"])]
    for batch in pa.Table.from_batches(batches, wanted).sort_by("position").to_batches(rows.BATCH_ROWS):
        output.write(batch)
    paths = [entry["path"] for entry in entries]
    return {"stream": task["stream"], "source": source_in(entries[0]), "old": paths, "file": output.close()}


__all__ = ["MESSAGES", "RAW", "STREAM", "Added", "arranged", "pack", "run", "source_in"]
