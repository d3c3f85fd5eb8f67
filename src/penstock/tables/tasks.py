"""One task of the pipeline: reads a range of a recording, and writes its rows of *messages* and of its stream's table.

Runs in any process. Gets everything in its argument and answers with what it wrote; knows no Spark and no Delta log. An error of a
stream is part of the answer, so that other streams go on.
"""

from __future__ import annotations

import errno
import secrets
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns import contract as contracts
from penstock.columns.contract.declared import declared
from penstock.columns.contract.decoding import Decoded, decode
from penstock.columns.parts import Unwritten, Writer, table_name
from penstock.errors import PenstockError
from penstock.record import Range
from penstock.record.read import rows
from penstock.tables.delta_files import written
from penstock.tables.places import Place
from penstock.tables.schemas import MESSAGES, STREAM, of_stream, signed

Row = dict[str, Any]
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
MESSAGES_TABLE, STREAM_TABLE = "messages", "stream"


def run(task: Row) -> Row:
    """Does one task. The answer has the files that it wrote, or the error of its stream. `number` is the task's own."""
    try:
        answer = _write_range(task)
    except PenstockError as error:
        if isinstance(error, Unwritten) or getattr(error, "errno", None) in NO_ROOM:  # no stream's fault
            raise
        answer = {"files": {}, "done": [], "error": str(error)}
    return {"number": task["number"], **answer}


class Output:
    """A Parquet file of a table that a task writes. Its name is never given twice: an attempt that was killed harms none."""

    def __init__(self, task: Row, place: str, channel: str, schema: pa.Schema) -> None:
        self.place, self.schema = Place.of(place), schema
        name = f"{table_name(channel)}-{task['batch']}-{secrets.token_hex(6)}"
        self._writer = Writer(self.place, name, "parquet", task["compression"])

    def write(self, columns: dict[str, pa.Array], count: int) -> None:
        """Adds rows: those columns of the table that there are; others are null."""
        if count:
            arrays = [
                columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in self.schema
            ]
            self._writer.write(pa.RecordBatch.from_arrays(arrays, schema=self.schema))

    def close(self) -> list[Any] | None:
        """The file, as `Added.to_json`. None if there were no rows: then there is no file."""
        made = self._writer.close()
        return None if made is None else written(self.place, made.path).to_json()

    def discard(self) -> None:
        """Leaves nothing behind."""
        self._writer.discard()


def _write_range(task: Row) -> Row:
    planned = Range(**task["range"])
    found = rows.read(planned, False)
    given = contracts.unpack(task["contract"])
    contract, decoded = _decoded(planned.codec, given, found.messages, task["mode"])
    places: dict[str, str] = task["places"]
    schemas = {MESSAGES_TABLE: MESSAGES, STREAM_TABLE: of_stream(contract, planned.codec["kind"])}
    outputs = {name: Output(task, place, planned.channel, schemas[name]) for name, place in places.items()}
    erased = [tuple(span) for span in task["erased"]]
    try:
        for batch, one in zip(found.messages, decoded, strict=True):
            _write(batch, one, planned, contract, outputs, erased, task["ingested_us"])
        files = {name: output.close() for name, output in outputs.items()}
    except BaseException:
        for output in outputs.values():
            output.discard()
        raise
    answer: Row = {"files": files, "done": _done(planned, found.holes), "damaged": found.damaged(planned.channel)}
    answer["lost"] = [[one.start, one.end] for one in found.damage]
    if len(contract) > len(given):
        answer["contract"] = contracts.pack(contract)
    return answer


def _decoded(
    codec: Row, contract: contracts.Contract, batches: list[pa.RecordBatch], mode: str
) -> tuple[contracts.Contract, list[Decoded]]:
    """All batches by one contract, which grows by the keys that they bring."""
    contract = beginning(codec, contract)
    found = []
    for batch in batches:
        found.append(decode(codec, contract, batch.column("payload"), mode))
        contract = found[-1].contract
    return contract, found


def beginning(codec: Row, contract: contracts.Contract) -> contracts.Contract:
    """A contract with the columns that a codec declares."""
    return contracts.add(
        contract, ((column.label, contracts.key_text(column.label), column.type) for column in declared(codec))
    )


def _write(
    batch: pa.RecordBatch,
    decoded: Decoded,
    planned: Range,
    contract: contracts.Contract,
    outputs: dict[str, Output],
    erased: list[tuple[int, int]],
    ingested_us: int,
) -> None:
    count = batch.num_rows
    found = {name: batch.column(name) for name in ("session", "position", "time", "timestamp_ns", "recorded_ns")}
    found |= {
        "stream": pa.repeat(pa.scalar(planned.channel, pa.string()), count),
        "epoch": pa.repeat(pa.scalar(signed(planned.epoch), pa.int64()), count),
        "recording": pa.repeat(pa.scalar(planned.recording, pa.int64()), count),
        "ingested_at": pa.repeat(pa.scalar(ingested_us, STREAM.field("ingested_at").type), count),
        "decode_error": decoded.errors,
    }
    kept = _not_erased(batch.column("timestamp_ns"), erased)
    if STREAM_TABLE in outputs:
        own = dict(zip((column.name for column in contract), decoded.arrays, strict=False))
        _write_kept(outputs[STREAM_TABLE], {**found, "_rescued": decoded.rescued, **own}, kept, count)
    if MESSAGES_TABLE in outputs:
        payload = batch.column("payload")
        found["bytes"] = pc.binary_length(payload)
        if planned.codec.get("pixels"):  # they have their own column
            payload = pc.if_else(pc.is_null(decoded.errors), pa.scalar(None, pa.binary()), payload)
        _write_kept(outputs[MESSAGES_TABLE], {**found, "payload": payload}, kept, count)


def _write_kept(output: Output, columns: dict[str, pa.Array], kept: pa.Array | None, count: int) -> None:
    if kept is not None:
        columns = {name: array.filter(kept) for name, array in columns.items()}
        count = len(next(iter(columns.values())))
    output.write(columns, count)


def _not_erased(times: pa.Array, erased: list[tuple[int, int]]) -> pa.Array | None:
    """Which rows were sent in none of these spans, both ends inclusive; None for all."""
    kept = None
    for since, until in erased:
        outside = pc.or_(pc.less(times, since), pc.greater(times, until))
        kept = outside if kept is None else pc.and_(kept, outside)
    return kept


def _done(planned: Range, holes: list[int]) -> list[tuple[int, int]]:
    """The range's positions but for the holes in it."""
    starts = [planned.start, *(hole + rows.FRAME_STEP for hole in holes)]
    ends = [*holes, planned.end]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]
