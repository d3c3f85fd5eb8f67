"""Messages as typed Arrow columns, by their codec: the one place where payloads are decoded for tables.

`decode` never raises for what a message holds: what does not decode becomes null, and the row's error has the reason. No value is
changed. Knows codecs and Arrow; knows no recording, no file and no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock import codecs
from penstock.util.extras import explain_missing

with explain_missing("decoding messages to columns"):
    import pyarrow as pa

from penstock.columns import envelopes, fixed, objects
from penstock.columns.keys import BARE, Keys, keys_from_json, keys_to_json
from penstock.columns.names import RESERVED, unique

__all__ = [
    "BARE",
    "RESERVED",
    "Decoded",
    "Keys",
    "decode",
    "is_open",
    "keys_from_json",
    "keys_to_json",
    "learn",
    "merged",
    "schema",
]


@dataclass(frozen=True)
class Decoded:
    """Columns of a batch. errors: text, null where all is well. keys: those given and those that this batch brought."""

    schema: pa.Schema
    arrays: list[pa.Array]
    errors: pa.Array
    keys: Keys = ()


def is_open(codec: dict[str, Any]) -> bool:
    """Whether messages bring their own keys (json, msgpack, protobuf), so that a stream's columns may grow and widen."""
    return codec.get("of", codec).get("kind") in objects.KINDS


def schema(codec: dict[str, Any], keys: Keys = ()) -> pa.Schema:
    """The columns of a stream. keys: what `learn` found, for codecs that are open; a key that was only ever null has the
    type null."""
    kind = codec["kind"]
    if kind in ("struct", "array"):
        return fixed.schema(codec)
    if kind == "frame":
        return envelopes.frame_schema(codec)
    if kind in envelopes.OUTER:
        outer, inner = envelopes.OUTER[kind], schema(_inner(codec), keys)
        if is_open(codec):  # their names were chosen beside the outer ones
            return pa.schema([*outer, *inner])
        names = unique([field.name for field in inner], {*RESERVED, *outer.names})
        return pa.schema([*outer, *(f.with_name(n) for f, n in zip(inner, names, strict=True))])
    return objects.schema(keys) if is_open(codec) else pa.schema([])


def learn(codec: dict[str, Any], keys: Keys, payload: pa.Array) -> Keys:
    """The keys of a stream with those of more messages; the same object if these bring nothing new."""
    if not is_open(codec):
        return keys
    kind = codec["kind"]
    if kind in envelopes.OUTER:
        bodies = envelopes.opened(kind, payload)
        return objects.learn(_inner(codec), keys, bodies.inner, envelopes.OUTER[kind].names)
    return objects.learn(codec, keys, payload)


def merged(codec: dict[str, Any], keys: Keys, other: Keys) -> Keys:
    """Keys of one stream found in two places as one; the first's names stay."""
    kind = codec["kind"]
    return objects.merged(keys, other, envelopes.OUTER[kind].names if kind in envelopes.OUTER else ())


def decode(codec: dict[str, Any], keys: Keys, payload: pa.Array) -> Decoded:
    """Payloads as columns: those of `keys`, widened to what these messages need. A batch of a stream whose keys are complete
    has `schema(codec, keys)`."""
    kind = codec["kind"]
    if kind in envelopes.OUTER:
        return _decode_enveloped(codec, keys, payload)
    if is_open(codec):
        found, arrays, errors = objects.decode(codec, keys, payload)
        return Decoded(objects.schema(found), arrays, errors, found)
    if kind in ("struct", "array"):
        arrays, errors = fixed.decode(codec, payload)
    elif kind == "frame":
        arrays, errors = envelopes.decode_frames(codec, payload)
    else:
        arrays, errors = [], pa.nulls(len(payload), pa.string())
    return Decoded(schema(codec), arrays, errors)


def _inner(codec: dict[str, Any]) -> dict[str, Any]:
    """How the bodies of messages with envelopes are encoded."""
    inner: dict[str, Any] = codec.get("of", codecs.BYTES.spec)
    return inner


def _decode_enveloped(codec: dict[str, Any], keys: Keys, payload: pa.Array) -> Decoded:
    """The sender, its role or the message's type, the body, and the columns of the channel's codec where the body is one message."""
    kind, inner = codec["kind"], _inner(codec)
    opened = envelopes.opened(kind, payload)
    if is_open(inner):
        found, arrays, errors = objects.decode(inner, keys, opened.inner, envelopes.OUTER[kind].names)
        made = Decoded(objects.schema(found), arrays, errors, found)
    else:
        made = decode(inner, keys, opened.inner)
    made = replace(made, schema=schema(codec, made.keys))
    whole = opened.whole
    arrays = [*opened.arrays, *(scatter(column, whole) for column in made.arrays)]
    if made.errors.null_count == len(made.errors):
        return replace(made, arrays=arrays, errors=opened.errors)
    texts = opened.errors.to_pylist()
    for at, error in zip(np.flatnonzero(whole).tolist(), made.errors.to_pylist(), strict=True):
        texts[at] = "; ".join(text for text in (texts[at], error) if text) or None
    return replace(made, arrays=arrays, errors=pa.array(texts, pa.string()))


def scatter(values: pa.Array, where: np.ndarray[Any, Any]) -> pa.Array:
    """`values` at the true places, null elsewhere."""
    return values if where.all() else values.take(pa.array(np.cumsum(where) - 1, mask=~where))
