"""ROS 2 messages as columns, by their definition: structs and lists. Bytes are binary; uint64 is a decimal, which holds every value.

A message without fields, and one whose fields differ in large and small letters alone, is a column of JSON: no struct has such fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.codecs import ros2
from penstock.columns.names import folded
from penstock.errors import Invalid

PLAIN: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "byte": pa.int16(),
    "char": pa.int16(),
    "octet": pa.int16(),
    "int8": pa.int8(),
    "uint8": pa.int16(),
    "int16": pa.int16(),
    "uint16": pa.int32(),
    "int32": pa.int32(),
    "uint32": pa.int64(),
    "int64": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
}


def columns(codec: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The columns of a message, by its fields' names. None without the package rosbags, or by a definition that is none: then no message can be read."""
    try:
        about = ros2.read(codec)
    except (Invalid, ValueError):
        return {}
    return {field.name: _type(about, field) for field in about.fields[about.message]}


Parser = Callable[[bytes], tuple[dict[str, Any], dict[str, list[Any]]]]


def parser(codec: Mapping[str, Any]) -> Parser:
    """How a message's bytes become a dictionary of such values. The second one is empty: CDR has no field that its definition lacks."""
    try:
        about = ros2.read(codec)
    except (Invalid, ValueError) as error:  # each message has that error
        text = str(error)

        def fail(data: bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
            raise Invalid(text)

        return fail

    def parse(data: bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        return _struct(about, about.message, ros2.parse_fields(about, data)), {}

    return parse


def _type(about: ros2.Definition, field: ros2.Field) -> pa.DataType:
    if field.kind in ros2.BYTES and field.form != "one":
        return pa.binary()
    one = PLAIN[field.kind] if field.kind in PLAIN else _message(about, field.kind)
    return one if field.form == "one" else pa.list_(one)


def _message(about: ros2.Definition, message: str) -> pa.DataType:
    if _is_text(about, message):
        return pa.string()
    return pa.struct([(field.name, _type(about, field)) for field in about.fields[message]])


def _is_text(about: ros2.Definition, message: str) -> bool:
    names = [field.name for field in about.fields[message]]
    return not names or len(set(map(folded, names))) != len(names)


def _struct(about: ros2.Definition, message: str, found: dict[str, Any]) -> dict[str, Any]:
    return {field.name: _value(about, field, found[field.name]) for field in about.fields[message]}


def _value(about: ros2.Definition, field: ros2.Field, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes() if field.kind in ros2.BYTES else value.tolist()
    if field.kind not in about.fields:
        return value
    return (
        _inner(about, field.kind, value) if field.form == "one" else [_inner(about, field.kind, one) for one in value]
    )


def _inner(about: ros2.Definition, message: str, value: dict[str, Any]) -> Any:
    if _is_text(about, message):
        return msgspec.json.encode(value, enc_hook=lambda array: array.tolist()).decode()
    return _struct(about, message, value)
