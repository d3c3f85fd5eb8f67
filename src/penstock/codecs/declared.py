"""The columns that a class declares, as text of Spark's DDL: `px double, ts timestamp`. The channel keeps it, for tables.

Knows msgspec's types; needs no Arrow, so that any program can publish.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import msgspec
from msgspec import inspect

DEPTH = 12
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SIMPLE: dict[type, str] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "bigint",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "binary",
    inspect.ByteArrayType: "binary",
    inspect.MemoryViewType: "binary",
    inspect.DateType: "date",
    inspect.TimeType: "string",
    inspect.TimeDeltaType: "string",
    inspect.UUIDType: "string",
    inspect.DecimalType: "decimal(38,18)",
}
OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
LISTS = (inspect.ListType, inspect.SetType, inspect.FrozenSetType, inspect.VarTupleType, inspect.CollectionType)


def columns(cls: Any) -> str:
    """The columns of a class, or of all members of a union; empty if it declares none. Fields without one type are left out: their
    columns follow from the messages."""
    found = _fields(inspect.type_info(cls), 0)
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in (found or {}).items())


def quoted(name: str) -> str:
    """A name as the DDL has it."""
    return name if PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _fields(one: Any, depth: int) -> dict[str, str] | None:
    """Name → type of an object's fields; None if it is no object, or its members disagree."""
    if isinstance(one, inspect.UnionType):
        merged: dict[str, str] = {}
        for member in one.types:
            fields = _fields(member, depth)
            if fields is None or any(merged.get(name, kind) != kind for name, kind in fields.items()):
                return None
            merged |= fields
        return merged
    if not isinstance(one, OBJECTS) or getattr(one, "array_like", False) or depth > DEPTH:
        return None
    found: dict[str, str] = {}
    if isinstance(one, inspect.StructType) and one.tag is not None and one.tag_field is not None:
        found[one.tag_field] = "string" if isinstance(one.tag, str) else "bigint"
    for part in one.fields:
        kind = _type(part.type, depth + 1)
        if kind:
            found[part.encode_name] = kind
    return found


def _type(one: Any, depth: int) -> str:
    """The type of a value; empty where it has none that all its values share."""
    if isinstance(one, inspect.Metadata):
        return _type(one.type, depth)
    if isinstance(one, inspect.UnionType):
        kinds = {_type(member, depth) for member in one.types if not isinstance(member, inspect.NoneType)}
        return "double" if kinds == {"bigint", "double"} else kinds.pop() if len(kinds) == 1 else _struct(one, depth)
    if isinstance(one, inspect.DateTimeType):
        return "timestamp_ntz" if one.tz is False else "timestamp"
    if isinstance(one, inspect.EnumType | inspect.LiteralType):
        values = [item.value for item in one.cls] if isinstance(one, inspect.EnumType) else one.values
        sorts = {type(value) for value in values}
        return {frozenset({str}): "string", frozenset({int}): "bigint"}.get(frozenset(sorts), "")
    if isinstance(one, LISTS):
        return _wrap("array", _type(one.item_type, depth + 1))
    if isinstance(one, inspect.TupleType):
        kinds = {_type(item, depth + 1) for item in one.item_types}
        return _wrap("array", kinds.pop()) if len(kinds) == 1 else ""
    if isinstance(one, inspect.DictType):
        key = _type(one.key_type, depth + 1)
        return _wrap("map", key if key == "string" else "", _type(one.value_type, depth + 1))
    return SIMPLE.get(type(one)) or _struct(one, depth)


def _wrap(kind: str, *inside: str) -> str:
    return f"{kind}<{', '.join(inside)}>" if all(inside) else ""


def _struct(one: Any, depth: int) -> str:
    """A struct, if its fields' names are plain and none has another in other letters."""
    fields = _fields(one, depth) if depth <= DEPTH else None
    if not fields or not all(map(PLAIN.fullmatch, fields)) or len({name.lower() for name in fields}) != len(fields):
        return ""
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in fields.items())}>"


@functools.lru_cache(256)
def safely(cls: Any) -> str:
    """`columns`; empty for a class that msgspec cannot look into."""
    try:
        return columns(cls)
    except (TypeError, NameError, RecursionError, msgspec.MsgspecError):
        return ""


__all__ = ["columns", "quoted", "safely"]
