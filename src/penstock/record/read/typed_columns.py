"""A recording's messages as typed columns: the columns of a scan, and those that the channel's codec decodes. Knows Arrow and codecs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock import columns
from penstock.errors import Invalid

NOT_DECODED = ("flags",)


def check(names: Sequence[str], frames: bool) -> None:
    """`Invalid` for columns that decoded messages do not have."""
    if frames:
        raise Invalid("decode and frames exclude each other: a frame may be a part of a message")
    for name in set(names) & set(NOT_DECODED):
        raise Invalid(f"decoded messages have no column {name}: their own columns may have that name")


def table(batches: Iterable[pa.RecordBatch], names: Sequence[str], codec: dict[str, Any]) -> pa.Table:
    """Batches with `names` and the payload, as one table: those columns, `decode_error`, and the codec's.

    Keys of json and msgpack are columns; one that was only ever null is a column of text.
    """
    keys: columns.Keys = ()
    made: list[tuple[pa.RecordBatch, columns.Decoded]] = []
    for batch in batches:
        found = columns.decode(codec, keys, batch.column("payload"))
        keys = found.keys or keys
        made.append((batch, found))
    wanted = columns.schema(codec, keys)
    own = [field.with_type(pa.string()) if pa.types.is_null(field.type) else field for field in wanted]
    schema: pa.Schema | None = None
    whole = []
    for batch, first in made:
        # Later messages brought more keys, or wider values: then these are decoded again.
        found = first if first.schema == wanted else columns.decode(codec, keys, batch.column("payload"))
        arrays = [
            pa.nulls(batch.num_rows, field.type) if pa.types.is_null(array.type) else array
            for array, field in zip(found.arrays, own, strict=True)
        ]
        fields = [batch.schema.field(name) for name in batch.schema.names if name in names]
        schema = pa.schema([*fields, pa.field("decode_error", pa.string()), *own])
        left = [batch.column(field.name) for field in fields]
        whole.append(pa.RecordBatch.from_arrays([*left, found.errors, *arrays], schema=schema))
    assert schema is not None  # there is at least the empty batch
    return pa.Table.from_batches(whole, schema=schema)
