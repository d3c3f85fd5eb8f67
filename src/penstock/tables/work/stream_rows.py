"""Messages as rows of a stream's table: the columns that say where they are from, and those of the contract.

For tasks, whose rows become files of a table, and for queries, which have the same rows before that. Knows Arrow; reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.contract import Contract
from penstock.columns.contract.decoding import Decoded
from penstock.tables.schemas import STREAM, signed

PLAIN = "plain bytes, which have no columns: only messages has the payload"


def source_columns(
    batch: pa.RecordBatch, epoch: int, recording: int | None, ingested_us: int | None
) -> dict[str, pa.Array]:
    """The key and the source of messages. recording, ingested_us: None of messages that are not recorded, or in no table yet."""
    there = set(batch.schema.names)
    found = {name: batch.column(name) for name in STREAM.names if name in there}
    fixed = {"epoch": signed(epoch), "recording": recording, "ingested_at": ingested_us}
    if "recorded_ns" not in there:
        fixed["recorded_ns"] = None
    for name, value in fixed.items():
        found[name] = pa.repeat(pa.scalar(value, STREAM.field(name).type), batch.num_rows)
    return found


def own_columns(decoded: Decoded, contract: Contract, codec: Mapping[str, Any]) -> dict[str, pa.Array]:
    """The columns of the messages themselves. contract: as it was decoded by, or with more columns behind these. codec: plain bytes
    are in a stream that has other codecs too."""
    own = dict(zip((column.name for column in contract), decoded.arrays, strict=False))
    errors = decoded.errors
    if codec["kind"] == "bytes":
        errors = pa.repeat(pa.scalar(PLAIN, pa.string()), len(errors))
    return {"decode_error": errors, "_rescued": decoded.rescued, **own}


def select_unerased(times: pa.Array, erased: Sequence[tuple[int, int]]) -> pa.Array | None:
    """Which rows were sent in none of these spans, both ends inclusive; None for all."""
    kept = None
    for since, until in erased:
        outside = pc.or_(pc.less(times, since), pc.greater(times, until))
        kept = outside if kept is None else pc.and_(kept, outside)
    return kept
