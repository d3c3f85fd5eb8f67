"""Objects as JSON and MessagePack: encoded exactly, or refused with what to do. No value is ever changed in silence.

Knows msgspec, which is loaded with the first codec that needs it; knows no channel.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.codecs import msgpack
from penstock.codecs.values import reason_of
from penstock.errors import Invalid

# A float64 in MessagePack whose exponent is all ones: nan or infinite. Other bytes may look so; then the value is walked.
_MAYBE_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)


def _plain(value: Any) -> Any:
    """NumPy's truth values, whole numbers, floats and texts as Python's, which are equal to them. TypeError for any other object."""
    numpy = sys.modules.get("numpy")  # another thread may be importing it: then there is no value of its yet
    array: Any = getattr(numpy, "ndarray", ())
    scalar: Any = getattr(numpy, "generic", ())
    if isinstance(value, array):
        raise TypeError(f"a NumPy array of {value.dtype}: send array.tolist(), or use penstock.array as the codec")
    if isinstance(value, scalar):
        found = value.item()
        if type(found) in (bool, int, float, str) and value.dtype.kind in "biufU":
            return found
    raise TypeError(f"objects of type {type(value).__module__}.{type(value).__qualname__} are unsupported")


_JSON, _MSGPACK = msgspec.json.Encoder(enc_hook=_plain), msgspec.msgpack.Encoder(enc_hook=_plain)


def to_json(value: Any) -> bytes:
    """A value as JSON. `Invalid` for what JSON cannot carry: nan, infinities, objects of unknown classes, too deep nesting."""
    try:
        data = _JSON.encode(value)
    except _UNENCODABLE as error:
        raise Invalid(f"this value cannot be sent as JSON: {reason_of(error)}") from error
    if b"null" in data:  # the encoder writes null for None, and for numbers that JSON lacks
        _refuse_not_finite(value)
    return data


def to_msgpack(value: Any) -> bytes:
    """A value as MessagePack. `Invalid` for what it cannot carry."""
    try:
        return _MSGPACK.encode(value)
    except _UNENCODABLE as error:
        raise Invalid(f"this value cannot be sent as MessagePack: {reason_of(error)}") from error


def _refuse_not_finite(value: Any) -> None:
    try:
        if _MAYBE_NOT_FINITE.search(_MSGPACK.encode(value)) is None:
            return
    except _UNENCODABLE:
        pass  # an integer beyond 64 bits, for one: JSON carries it, so the value is walked
    todo: list[tuple[str, Any]] = [("", msgspec.to_builtins(value, enc_hook=_plain))]
    while todo:
        where, item = todo.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise Invalid(
                f"{where.removeprefix('.') or 'the value'} is {item}, and JSON has no such number: send None where a value is"
                " missing, or give the channel the codec 'msgpack'"
            )
        if isinstance(item, dict):
            todo += [(f"{where}.{key}", part) for key, part in item.items()]
        elif isinstance(item, list | tuple | set | frozenset):
            todo += [(f"{where}[{at}]", part) for at, part in enumerate(item)]


CODERS: dict[str, tuple[Callable[[Any], bytes], Callable[[Any], Any]]] = {  # how plain objects are encoded and decoded
    "json": (to_json, msgspec.json.decode),
    "msgpack": (to_msgpack, msgpack.decode),
}
