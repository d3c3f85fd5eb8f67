"""One task of an export: a range of a recording into one file. Runs in any process: it gets everything in its argument, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import columns
from penstock.columns.parts import Unwritten, Writer
from penstock.errors import PenstockError
from penstock.record import TIME_MAX, TIME_MIN, Range
from penstock.record.read import rows
from penstock.util.durable import is_refusal, is_shortage, system_failure
from penstock.util.storage import where

SAMPLE = 2000


def beginning(planned: Range) -> columns.Keys:
    """The keys of a stream's first messages, to begin with. Empty if they cannot be read: then the range's task reports it."""
    if not columns.is_open(planned.codec):
        return ()
    try:
        batch = next(planned.scan(["payload"], batch_rows=SAMPLE), None)
    except (PenstockError, OSError):
        batch = None
    return () if batch is None else columns.learn(planned.codec, (), batch.column("payload"))


def schema(codec: dict[str, Any], keys: columns.Keys) -> pa.Schema:
    """The columns of a stream's files. A key that was only ever null is a column of text."""
    found = columns.schema(codec, keys)
    own = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in found]
    return pa.schema([*rows.COMMON, *own])


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Writes one file. The answer: its `part`; or the `keys` of its messages, if they have more than were given, and no file; or an
    `error`. `damaged`: a line for each piece of the range that is damaged and left out. `failed`: why no
    task continues: the destination is full, a file may not be read, or no descriptor is left."""
    try:
        return _run(task)
    except (PenstockError, OSError) as error:
        if isinstance(error, OSError) and (isinstance(error, Unwritten) or is_shortage(error) or is_refusal(error)):
            found = error if isinstance(error, PenstockError) else system_failure(error)
            return {"failed": [found.errno or 0, str(found.strerror)]}
        return {"error": " ".join(str(error).split())}


def _run(task: dict[str, Any]) -> dict[str, Any]:
    planned = Range(**task["range"])
    keys = given = columns.keys_from_json(task["keys"])
    found = rows.read(planned, False)
    batches, damaged = found.messages, found.damaged(planned.channel)
    ordered = rows.Ordered(batches, planned, found.damage)
    wanted = schema(planned.codec, keys)
    writer = Writer(where(task["out"]), task["relative"], task["form"], task["compression"])
    at = 0
    try:
        for batch in batches:
            if keys is given:
                made, keys = ordered.enrich(batch, at, planned.codec, keys)
                if keys is given and (made := _between(made, task["since"], task["until"])).num_rows:
                    writer.write(_add_missing_columns(made, wanted))
            else:
                keys = columns.learn(planned.codec, keys, batch.column("payload"))
            at += batch.num_rows
        if keys is not given:
            writer.discard()
            return {"keys": columns.keys_to_json(keys), "damaged": damaged}
        part = writer.close()
    except BaseException:
        writer.discard()
        raise
    return {"damaged": damaged} if part is None else {"part": asdict(part), "damaged": damaged}


def _between(batch: pa.RecordBatch, since: int, until: int) -> pa.RecordBatch:
    if since <= TIME_MIN and until >= TIME_MAX:
        return batch
    times = batch.column("timestamp_ns")
    return batch.filter(pc.and_(pc.greater_equal(times, since), pc.less_equal(times, until)))


def _add_missing_columns(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch with every column of its stream."""
    there = batch.schema.names
    arrays = [
        batch.column(field.name) if field.name in there else pa.nulls(batch.num_rows, field.type) for field in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)
