"""Codecs of a program's own classes: dataclasses and `msgspec.Struct` types, as JSON or MessagePack.

The channel keeps the form only. Each program says with which class it reads and writes; a program that names none gets plain objects.
Knows msgspec; knows no channel and no other codec.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from penstock import values
from penstock.errors import Invalid

FORMS = ("json", "msgpack")
_ENCODE: dict[str, Callable[[Any], bytes]] = {"json": values.to_json, "msgpack": values.to_msgpack}
_DECODER: dict[str, Any] = {"json": msgspec.json.Decoder, "msgpack": msgspec.msgpack.Decoder}


def is_class(asked: Any) -> bool:
    """Whether it is a dataclass, a `msgspec.Struct` type, or a union of those."""
    if isinstance(asked, types.UnionType) or typing.get_origin(asked) is typing.Union:
        return all(map(is_class, typing.get_args(asked)))
    return isinstance(asked, type) and (issubclass(asked, msgspec.Struct) or dataclasses.is_dataclass(asked))


def name_of(asked: Any) -> str:
    """A class as its user calls it."""
    return asked.__qualname__ if isinstance(asked, type) else str(asked)


def coders(asked: Any, form: str) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    """How objects of a class are encoded and decoded. `Invalid` for a class with fields that cannot be decoded."""
    name, encode = name_of(asked), _ENCODE[form]
    members = tuple(typing.get_origin(one) or one for one in typing.get_args(asked)) or (asked,)
    try:
        parse = _DECODER[form](asked).decode
        odd = _beyond(asked)
    except (TypeError, NameError, RecursionError) as error:
        raise Invalid(f"{name} is no codec: {str(error).splitlines()[0]}") from error
    if odd is not None:
        raise Invalid(
            f"{name} is no codec: it has a field of the type {odd.__module__}.{odd.__qualname__}, which {form} lacks"
        )

    def checked(value: Any) -> bytes:
        if not isinstance(value, members):
            raise Invalid(f"this handle carries objects of {name}, not of {type(value).__qualname__}")
        return encode(value)

    return checked, parse


def _beyond(asked: Any) -> Any:
    """A type among the fields that nothing here can decode; None if there is none."""
    todo: list[Any] = [msgspec.inspect.type_info(asked)]
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
