"""One task of the pipeline: reads a range of a recording, and writes its rows of *messages* and of its stream's table.

Runs in any process. Gets everything in its argument and answers with what it wrote; knows no Spark and no Delta log. An error of a
stream is part of the answer, so that other streams continue.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.columns import contract as contracts
from penstock.columns.contract.declared import begun, inner
from penstock.columns.contract.decoding import Decoded, decode
from penstock.columns.parts import Unwritten, Writer, table_name
from penstock.errors import PenstockError
from penstock.record import Range
from penstock.record.read import rows
from penstock.tables.delta.files import describe_file
from penstock.tables.delta.places import Place
from penstock.tables.schemas import MESSAGES, STREAM, of_stream, recording_key
from penstock.tables.work.stream_rows import own_columns, select_unerased, source_columns

Row = dict[str, Any]
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
SAMPLE = 4096  # messages from which the columns of a stream follow that nobody declared
MESSAGES_TABLE, STREAM_TABLE = "messages", "stream"


def run(task: Row) -> Row:
    """Does one task. The answer has the files that it wrote, or the error of its stream. `number` is the task's own."""
    try:
        answer = _write_range(task) if "range" in task else _write_again(task)
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
        return None if made is None else describe_file(self.place, made.path).to_json()

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
        left_out = 0
        for batch, one in zip(found.messages, decoded, strict=True):
            left_out += _write(batch, one, planned, contract, outputs, erased, task["ingested_us"])
        files = {name: output.close() for name, output in outputs.items()}
    except BaseException:
        for output in outputs.values():
            output.discard()
        raise
    answer: Row = {
        "files": files,
        "done": _without_holes(planned, found.holes),
        "damaged": found.damaged(planned.channel),
        "erased": left_out,
    }
    answer["lost"] = [[one.start, one.end] for one in found.damage]
    if len(contract) > len(given):
        answer["contract"] = contracts.pack(contract)
    return answer


def _write_again(task: Row) -> Row:
    """A stream's rows of a file of *messages* into a file of its own table."""
    given = contract = contracts.unpack(task["contract"])
    found: list[tuple[Row, pa.RecordBatch, Decoded]] = []
    for codec, batch in _messages(Place.of(task["messages"]), task["file"], task["channel"], task["codecs"]):
        found.append((codec, batch, decode(codec, contract, batch.column("payload"), task["mode"])))
        contract = found[-1][2].contract
    kinds = {inner(codec)["kind"] for codec in task["codecs"].values()}
    output = Output(
        task, task["places"][STREAM_TABLE], task["channel"], of_stream(contract, min(kinds, default="bytes"))
    )
    try:
        for codec, batch, decoded in found:
            columns = {name: batch.column(name) for name in batch.schema.names if name in STREAM.names}
            columns["ingested_at"] = pa.repeat(
                pa.scalar(task["ingested_us"], STREAM.field("ingested_at").type), batch.num_rows
            )
            output.write(columns | own_columns(decoded, contract, codec), batch.num_rows)
        answer: Row = {"files": {STREAM_TABLE: output.close()}}
    except BaseException:
        output.discard()
        raise
    return {**answer, "contract": contracts.pack(contract)} if len(contract) > len(given) else answer


def _messages(
    place: Place, path: str, channel: str, codecs: dict[str, Row]
) -> Iterator[tuple[dict[str, Any], pa.RecordBatch]]:
    """A stream's rows of a file of *messages*, with their codec."""
    with place.fs.open_input_file(place.file(path)) as source, pq.ParquetFile(source) as file:
        for found in file.iter_batches(rows.BATCH_ROWS, columns=MESSAGES.names):
            batch = found.cast(MESSAGES)  # files that others wrote have views of texts
            mine = batch.filter(pc.equal(batch.column("stream"), channel))
            names = ("epoch", "recording")
            for one in (
                pa.Table.from_batches([mine.select(names)]).group_by(names, use_threads=False).aggregate([]).to_pylist()
            ):
                is_its = pc.and_(*(pc.equal(mine.column(name), one[name]) for name in names))
                yield codecs[recording_key(**one)], mine.filter(is_its)


def sampled(
    place: Place, paths: list[str], channel: str, codecs: dict[str, Row], contract: contracts.Contract
) -> contracts.Contract:
    """A contract with the keys of a stream's first messages in a file of *messages*."""
    for path in paths[:1]:
        for codec, batch in _messages(place, path, channel, codecs):
            return decode(codec, contract, batch.column("payload").slice(0, SAMPLE)).contract
    return contract


def _decoded(
    codec: Row, contract: contracts.Contract, batches: list[pa.RecordBatch], mode: str
) -> tuple[contracts.Contract, list[Decoded]]:
    """All batches by one contract, which grows by the keys that they bring."""
    contract = begun(codec, contract)
    found = []
    for batch in batches:
        found.append(decode(codec, contract, batch.column("payload"), mode))
        contract = found[-1].contract
    return contract, found


def _write(
    batch: pa.RecordBatch,
    decoded: Decoded,
    planned: Range,
    contract: contracts.Contract,
    outputs: dict[str, Output],
    erased: list[tuple[int, int]],
    ingested_us: int,
) -> int:
    """How many messages were erased before they came."""
    count = batch.num_rows
    found = source_columns(batch, planned.epoch, planned.recording, ingested_us)
    found["decode_error"] = decoded.errors
    kept = select_unerased(batch.column("timestamp_ns"), erased)
    if STREAM_TABLE in outputs:
        _write_kept(outputs[STREAM_TABLE], found | own_columns(decoded, contract, planned.codec), kept, count)
    if MESSAGES_TABLE in outputs:
        payload = batch.column("payload")
        found["bytes"] = pc.binary_length(payload)
        if planned.codec.get("pixels"):  # they have their own column
            payload = pc.if_else(pc.is_null(decoded.errors), pa.scalar(None, pa.binary()), payload)
        _write_kept(outputs[MESSAGES_TABLE], {**found, "payload": payload}, kept, count)
    return 0 if kept is None else count - int(pc.sum(kept).as_py() or 0)


def _write_kept(output: Output, columns: dict[str, pa.Array], kept: pa.Array | None, count: int) -> None:
    if kept is not None:
        columns = {name: array.filter(kept) for name, array in columns.items()}
        count = len(next(iter(columns.values())))
    output.write(columns, count)


def _without_holes(planned: Range, holes: list[int]) -> list[tuple[int, int]]:
    """The range's positions but for the holes in it."""
    starts = [planned.start, *(hole + rows.FRAME_STEP for hole in holes)]
    ends = [*holes, planned.end]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]
