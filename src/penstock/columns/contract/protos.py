"""Protobuf messages as columns, by their descriptor: structs, lists, maps and times, nearly as Spark's `from_protobuf` has them.

uint32 is a bigint and uint64 a decimal, which hold every value; a duration is its nanoseconds; a wrapper is its value; an enumeration is its name.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.codecs import protobufs
from penstock.columns.contract.types import UTC
from penstock.columns.names import clean, folded
from penstock.errors import MissingPackage

Field = Any  # google.protobuf.descriptor.FieldDescriptor
WRAPPED = "google.protobuf."
WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
TIMESTAMP, DURATION = f"{WRAPPED}Timestamp", f"{WRAPPED}Duration"
TEXTS = tuple(f"{WRAPPED}{name}" for name in ("Any", "Struct", "Value", "ListValue", "FieldMask", "Empty"))  # as JSON
UNSIGNED = pa.decimal128(20, 0)
# By protobuf's numbers of types.
PLAIN: dict[int, pa.DataType] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: UNSIGNED,
    5: pa.int32(),
    6: UNSIGNED,
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    14: pa.string(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}


def columns(codec: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """The columns of a message, by its fields' names. None without the package protobuf: then no message can be read."""
    try:
        descriptor = protobufs.message_class(codec).DESCRIPTOR
    except MissingPackage:
        return {}
    return {field.name: _type(field, (descriptor.full_name,)) for field in descriptor.fields}


Parser = Callable[[bytes], tuple[dict[str, Any], dict[str, list[Any]]]]


def parser(codec: Mapping[str, Any]) -> Parser:
    """How a message's bytes become a dictionary of such values, and one of the fields that its description lacks, by their numbers."""
    read = protobufs.reader(codec)

    def parse(data: bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        message = read(data)
        values = {
            field.name: _value(message, field, (message.DESCRIPTOR.full_name,)) for field in message.DESCRIPTOR.fields
        }
        size = message.ByteSize()
        message.DiscardUnknownFields()
        return values, {} if message.ByteSize() == size else protobufs.unknown_fields(read(data))

    return parse


def _is_map(field: Field) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _type(field: Field, inside: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_single(key, inside), _single(value, inside))
    return pa.list_(_single(field, inside)) if field.is_repeated else _single(field, inside)


def _single(field: Field, inside: tuple[str, ...]) -> pa.DataType:
    if field.message_type is None:
        return PLAIN[field.type]
    name = field.message_type.full_name
    if name == TIMESTAMP:
        return UTC
    if name == DURATION:
        return pa.int64()
    if _is_wrapper(name):
        return PLAIN[field.message_type.fields_by_name["value"].type]
    if _is_text(field.message_type, inside):
        return pa.string()
    return pa.struct([(one.name, _type(one, (*inside, name))) for one in field.message_type.fields])


def _is_text(message: Any, inside: tuple[str, ...]) -> bool:
    """Whether a message is a column of JSON: it may hold anything, or itself, or fields that no struct has."""
    names = [field.name for field in message.fields]
    odd = not names or any(clean(name) != name for name in names) or len(set(map(folded, names))) != len(names)
    return message.full_name in TEXTS or message.full_name in inside or odd


def _is_wrapper(name: str) -> bool:
    return (
        name.removeprefix(WRAPPED).removesuffix("Value") in WRAPPERS
        and name.startswith(WRAPPED)
        and name.endswith("Value")
    )


def _value(message: Any, field: Field, inside: tuple[str, ...]) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        item = field.message_type.fields_by_name["value"]
        return {key: _one(item, one, inside) for key, one in value.items()}
    return [_one(field, one, inside) for one in value] if field.is_repeated else _one(field, value, inside)


def _one(field: Field, value: Any, inside: tuple[str, ...]) -> Any:
    if field.message_type is None:
        if field.enum_type is None:
            return value
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name  # a number fits no column of names: it is rescued
    name = field.message_type.full_name
    if name == TIMESTAMP:
        return _moment(value)
    if name == DURATION:
        return value.seconds * 1_000_000_000 + value.nanos
    if _is_wrapper(name):
        return value.value
    if _is_text(field.message_type, inside):
        return json.dumps(protobufs.json_form(value))
    return {one.name: _value(value, one, (*inside, name)) for one in field.message_type.fields}


def _moment(value: Any) -> Any:
    """A time stamp; its text where a column of microseconds cannot hold it."""
    if value.nanos % 1000 == 0:
        try:
            return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
                seconds=value.seconds, microseconds=value.nanos // 1000
            )
        except OverflowError:
            return f"{value.seconds}.{value.nanos:09}"
    try:
        return str(value.ToJsonString())
    except ValueError:
        return f"{value.seconds}.{value.nanos:09}"


__all__ = ["Parser", "columns", "parser"]
