"""Columns that a codec declares: fields of a dtype, of a class, of a protobuf message, of a message of ROS 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.columns import envelopes, fixed
from penstock.columns.contract import Contract, add, merged, protos, rosmsgs, text_label, types

OPEN = ("json", "msgpack")  # codecs whose messages may bring keys that nothing declares


def inner(codec: Mapping[str, Any]) -> dict[str, Any]:
    """How the bodies of messages with envelopes are encoded; the codec itself of others."""
    return dict(codec.get("of", {"kind": "bytes"})) if codec["kind"] in envelopes.OUTER else dict(codec)


def is_open(codec: Mapping[str, Any]) -> bool:
    """Whether messages may bring keys that no description names."""
    return inner(codec)["kind"] in OPEN


def declared(codec: Mapping[str, Any]) -> Contract:
    """The columns that a codec declares; the columns of an envelope come first."""
    kind, body = codec["kind"], inner(codec)
    outer: Contract = ()
    if kind in envelopes.OUTER:
        outer = add((), ((f"o:{field.name}", field.name, field.type) for field in envelopes.OUTER[kind]))
    return add(outer, _body(body))


def has_columns(codec: Mapping[str, Any]) -> bool:
    """Whether messages of a codec have columns of their own, and so a table."""
    return is_open(codec) or len(declared(codec)) > 0


def labels(codec: Mapping[str, Any]) -> list[str]:
    """The labels of a codec's own columns, also of those for which a table has no place."""
    return [label for label, _, _ in _body(codec)]


def begun(codec: Mapping[str, Any], contract: Contract = ()) -> Contract:
    """A contract with the columns that a codec declares."""
    return merged(contract, declared(codec))


def _body(codec: Mapping[str, Any]) -> list[tuple[str, str, pa.DataType]]:
    kind = codec["kind"]
    if kind in ("struct", "array"):
        return [_fixed(field) for field in fixed.schema(dict(codec))]
    if kind == "frame":
        return [(f"o:{field.name}", field.name, field.type) for field in envelopes.frame_schema(dict(codec))]
    if kind == "protobuf":
        return [(text_label(name), name, one) for name, one in protos.columns(codec).items()]
    if kind == "ros2":
        return [(text_label(name), name, one) for name, one in rosmsgs.columns(codec).items()]
    if kind in OPEN and codec.get("columns"):
        return [(text_label(name), name, one) for name, one in types.parse(str(codec["columns"])).items()]
    return []


def _fixed(field: pa.Field) -> tuple[str, str, pa.DataType]:
    key = (field.metadata or {}).get(b"key", field.name.encode()).decode()
    return (text_label(key) if b"key" in (field.metadata or {}) else "bare", key, field.type)


__all__ = ["declared", "has_columns", "inner", "is_open", "labels"]
