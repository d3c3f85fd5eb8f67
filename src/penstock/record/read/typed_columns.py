"""A recording's messages as typed columns: the columns of a scan, and those that the channel's codec decodes. Knows Arrow and codecs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.columns.contract import to_schema
from penstock.columns.contract.declared import begun
from penstock.columns.contract.decoding import Decoded, decode
from penstock.errors import Invalid

NOT_DECODED = ("flags",)


def check(names: Sequence[str], frames: bool) -> None:
    """`Invalid` for columns that decoded messages do not have."""
    if frames:
        raise Invalid("decode and frames exclude each other: a frame may be a part of a message")
    for name in set(names) & set(NOT_DECODED):
        raise Invalid(f"decoded messages have no column {name}: their own columns may have that name")


def table(batches: Iterable[pa.RecordBatch], names: Sequence[str], codec: dict[str, Any]) -> pa.Table:
    """Batches with `names` and the payload, as one table: those columns, `decode_error`, `_rescued`, and the codec's.

    Keys of json and msgpack are columns, whose types follow from the first messages that have them.
    """
    contract = begun(codec)
    made: list[tuple[pa.RecordBatch, Decoded]] = []
    for batch in batches:
        kept = batch.select(
            [name for name in batch.schema.names if name in names]
        )  # not the payload, unless it is asked for
        made.append((kept, decode(codec, contract, batch.column("payload"))))
        contract = made[-1][1].contract
    own = to_schema(contract)
    schema: pa.Schema | None = None
    whole = []
    for batch, found in made:
        fields = list(batch.schema)
        schema = pa.schema([*fields, ("decode_error", pa.string()), ("_rescued", pa.string()), *own])
        more = [pa.nulls(batch.num_rows, field.type) for field in list(own)[len(found.arrays) :]]
        arrays = [*batch.columns, found.errors, found.rescued, *found.arrays, *more]
        whole.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    assert schema is not None  # there is at least the empty batch
    return pa.Table.from_batches(whole, schema=schema)
