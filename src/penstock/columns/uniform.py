"""json messages that are alike, decoded by Arrow's own reader, some times as fast as value by value.

It answers only where it gives what `objects` would give, to the bit: a block with anything odd in it is left to `objects`. Knows keys
and Arrow.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from penstock.columns.fixed import payload_bytes
from penstock.columns.keys import Key, Keys

EXACT = 1 << 53  # whole numbers up to here are exact as float64
PLAIN = (pa.null(), pa.bool_(), pa.int64(), pa.float64())


def decode(keys: Keys, payload: pa.Array) -> list[pa.Array] | None:
    """A column for each key; None if the messages are to be read one by one."""
    named = {key.label[2:]: key.type for key in keys if key.label.startswith("s:")}
    if not named or len(payload) < 2 or not all(map(_is_plain, keys)) or not _are_objects(payload):
        return None
    # One block: so no message is split, wherever it has its line breaks.
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(payload)], pa.int32()), payload), b"\n")
    text = joined[0].as_buffer()
    try:
        table = arrow_json.read_json(
            pa.BufferReader(text),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(named.items())), unexpected_field_behavior="error"
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):  # a new key, another type, a repeated key, not JSON at all
        return None
    if table.num_rows != len(payload):
        return None
    arrays = []
    for key in keys:
        if not key.label.startswith("s:"):
            arrays.append(pa.nulls(len(payload), key.type))
            continue
        column = table.column(key.label[2:]).combine_chunks()
        if not _is_known(column, key.kinds):
            return None
        arrays.append(column)
    return arrays


def _is_plain(key: Key) -> bool:
    kind = key.type.value_type if pa.types.is_list(key.type) else key.type
    return kind in PLAIN or key.kinds in ({"text"}, {"list", "list:text"})


def _are_objects(payload: pa.Array) -> bool:
    """Whether each message begins with `{` and ends with `}`, and all are UTF-8.

    Then no message can end inside another: behind a `}` that closes something in it, a line break and `{` are not JSON. So as many
    objects as messages means that each message is one.
    """
    if payload.null_count:
        return False
    content, starts = payload_bytes(payload)
    if not (np.diff(starts) > 1).all():
        return False
    if not ((content[starts[:-1]] == ord("{")) & (content[starts[1:] - 1] == ord("}"))).all():
        return False
    try:
        payload.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _is_known(column: pa.Array, kinds: frozenset[str]) -> bool:
    """Whether a column holds no kind of value that its key did not have before, and nothing that Arrow reads in another way."""
    before = ""
    if pa.types.is_list(column.type):
        column, before = column.flatten(), "list:"
    if column.null_count == len(column):
        return True
    if column.type == pa.int64():
        found = pc.min_max(column).as_py()
        known = before + "int" in kinds
        return known and ((found["min"] >= -EXACT and found["max"] <= EXACT) or before + "long" in kinds)
    if column.type == pa.float64():
        values = column.drop_null().to_numpy()
        # Whole numbers that are too large to be exact; -0, which is another number if it was written as a whole one.
        exact = bool((np.abs(values) < EXACT).all()) and not bool((np.signbit(values) & (values == 0)).any())
        return exact and before + "float" in kinds
    return True
