"""Codecs of a program's own classes: dataclasses, `msgspec.Struct` types and TypedDicts, as JSON or MessagePack.

The channel keeps the form, and the JSON Schema of JSON. Each program chooses the class with which it reads and writes; a program that names none gets plain objects.
Knows msgspec; knows no channel and no other codec.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from penstock.codecs import encoding, foxglove, packing
from penstock.errors import Invalid

FORMS = ("json", "msgpack")
SCHEMA_PARTS = 5000
_DECODER: dict[str, Any] = {"json": msgspec.json.Decoder, "msgpack": msgspec.msgpack.Decoder}


def is_class(cls: Any) -> bool:
    """Whether it is a dataclass, a `msgspec.Struct` type, a TypedDict, or a union of those."""
    if isinstance(cls, types.UnionType) or typing.get_origin(cls) is typing.Union:
        return all(map(is_class, typing.get_args(cls)))
    if not isinstance(cls, type):
        return False
    return issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls) or typing.is_typeddict(cls)


def name_of(cls: Any) -> str:
    """A class as its user calls it."""
    return cls.__qualname__ if isinstance(cls, type) else " | ".join(map(name_of, typing.get_args(cls))) or str(cls)


def coders(cls: Any, form: str) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """How objects of a class are encoded and decoded. `Invalid` for a class with fields that cannot be decoded."""
    name, encode = name_of(cls), encoding.CODERS[form][0]
    named = tuple(typing.get_origin(one) or one for one in typing.get_args(cls)) or (cls,)
    members = tuple(dict if typing.is_typeddict(one) else one for one in named)
    try:
        parse = _DECODER[form](cls).decode
        odd = _beyond(cls)
    except (TypeError, NameError, RecursionError) as error:
        raise Invalid(f"{name} is not a codec: {str(error).splitlines()[0]}") from error
    if odd is not None:
        raise Invalid(
            f"{name} is not a codec: it has a field of the type {odd.__module__}.{odd.__qualname__}, which {form} lacks"
        )

    def checked(value: Any) -> bytes:
        if not isinstance(value, members):
            raise Invalid(f"this handle carries objects of {name}, not of {type(value).__qualname__}")
        return encode(value)

    return checked, parse


def json_schema(cls: Any) -> dict[str, Any] | None:
    """The JSON Schema of a class, without references: some readers follow none. A class within itself may be anything there. None if
    it has no such schema, or one of thousands of parts."""
    try:
        made = msgspec.json.schema(cls)
    except (TypeError, ValueError):
        return None
    defined, room = made.pop("$defs", {}), [SCHEMA_PARTS]

    def plain(part: Any, inside: tuple[str, ...]) -> Any:
        room[0] -= 1
        if room[0] < 0:
            raise OverflowError
        if isinstance(part, list):
            return [plain(one, inside) for one in part]
        if not isinstance(part, dict):
            return part
        if isinstance(part.get("$ref"), str):
            name = part["$ref"].rpartition("/")[2]
            return {} if name in inside else plain(defined[name], (*inside, name))
        found = {key: value for key, value in part.items() if key not in ("default", "discriminator")}
        if isinstance(found.get("properties"), dict):  # a field may be called as a word of the schema
            fields = {name: plain(one, inside) for name, one in part["properties"].items()}
            return {**plain({k: v for k, v in found.items() if k != "properties"}, inside), "properties": fields}
        return {key: value if key in ("enum", "const") else plain(value, inside) for key, value in found.items()}

    try:
        found: dict[str, Any] = plain(made, ())
    except (OverflowError, RecursionError):
        return None
    if all(one.get("type") == "object" for one in found.get("anyOf", [{}])):
        found["type"] = "object"  # Foxglove asks for it
    return found


@functools.lru_cache(256)
def stored_schema(cls: Hashable, name: str | None) -> dict[str, str]:
    """The schema of a class as its channel keeps it: a name, and the JSON Schema where it has one. `Invalid` for the name of a
    schema of Foxglove's whose fields the class lacks."""
    found = json_schema(cls)
    if name is not None:
        foxglove.check(name, found, name_of(cls))
    packed = {} if found is None else {"json": packing.pack(json.dumps(found, separators=(",", ":")).encode())}
    return {"name": name or name_of(cls), **packed}


def _beyond(cls: Any) -> Any:
    """A type among the fields that nothing here can decode; None if there is none."""
    todo: list[Any] = [msgspec.inspect.type_info(cls)]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, msgspec.inspect.CustomType):
            return item.cls
        if isinstance(item, tuple):
            todo += item
        elif isinstance(item, msgspec.inspect.Type | msgspec.inspect.Field):
            todo += [getattr(item, name) for name in item.__struct_fields__]
    return None
