"""One task of an export: a range of a recording into one file. Runs in any process: it gets everything in its argument, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns import contract as contracts
from penstock.columns.contract import Contract, to_schema
from penstock.columns.contract.declared import begun, is_open
from penstock.columns.contract.decoding import decode
from penstock.columns.parts import Unwritten, Writer
from penstock.errors import PenstockError
from penstock.record import TIME_MAX, TIME_MIN, Range
from penstock.record.read import rows
from penstock.util.files.durable import is_refusal, is_shortage, system_failure
from penstock.util.files.storage import where

SAMPLE = 2000


def beginning(planned: Range) -> Contract:
    """The columns of a stream: those that are declared, and those of its first messages. Those alone that are declared if the first cannot
    be read: then the range's task reports it."""
    found = begun(planned.codec)
    if not is_open(planned.codec):
        return found
    try:
        batch = next(planned.scan(["payload"], batch_rows=SAMPLE), None)
    except (PenstockError, OSError):
        batch = None
    return found if batch is None else decode(planned.codec, found, batch.column("payload")).contract


def schema(contract: Contract) -> pa.Schema:
    """The columns of a stream's files."""
    return pa.schema([*rows.COMMON, *to_schema(contract)])


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Writes one file. The answer: its `part`; or the `contract` of its messages, if they have more keys than were given, and no file; or an
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
    contract = given = contracts.unpack(task["contract"])
    found = rows.read(planned, False)
    batches, damaged = found.messages, found.damaged(planned.channel)
    ordered = rows.Ordered(batches, planned, found.damage)
    wanted = schema(given)
    writer = Writer(where(task["out"]), task["relative"], task["form"], task["compression"])
    at = 0
    try:
        for batch in batches:
            made, contract = ordered.enrich(batch, at, planned.codec, contract)
            if contract == given and (made := _filter_times(made, task["since"], task["until"])).num_rows:
                writer.write(made.select(wanted.names).cast(wanted))
            at += batch.num_rows
        if contract != given:
            writer.discard()
            return {"contract": contracts.pack(contract), "damaged": damaged}
        part = writer.close()
    except BaseException:
        writer.discard()
        raise
    return {"damaged": damaged} if part is None else {"part": asdict(part), "damaged": damaged}


def _filter_times(batch: pa.RecordBatch, since: int, until: int) -> pa.RecordBatch:
    if since <= TIME_MIN and until >= TIME_MAX:
        return batch
    times = batch.column("timestamp_ns")
    return batch.filter(pc.and_(pc.greater_equal(times, since), pc.less_equal(times, until)))
