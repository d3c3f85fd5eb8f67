"""Messages that bring their own keys (json, msgpack, protobuf) as columns: one per key, of the narrowest type that holds all its values exactly.

Goes column by column, since a stream's messages are mostly alike; the slow way, value by value, is for those that are not.
"""

from __future__ import annotations

import datetime
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from penstock.codecs import from_spec
from penstock.columns import uniform
from penstock.columns.keys import BARE, Key, Keys, canonical, resolve
from penstock.columns.names import RESERVED, folded, free

KEYS_MAX = 1000
ERROR_MAX = 200
PIECE = 4096  # messages that are decoded together
EXACT = 1 << 53  # whole numbers up to here are exact as float64
KINDS = ("json", "msgpack", "protobuf")  # of codecs
# MessagePack's time stamps with nanoseconds; the decoder rounds them to microseconds.
STAMPS = re.compile(rb"\xd7\xff(?P<short>.{8})|\xc7\x0c\xff(?P<ns>.{4})(?P<s>.{8})", re.DOTALL)
DOUBLED = "a key is repeated: only the payload has both values"
Errors = dict[int, str]


def schema(keys: Keys) -> pa.Schema:
    """The columns of these keys. Each field's metadata has the key as it was."""
    return pa.schema([pa.field(key.name, key.type, metadata={"key": key.label}) for key in keys])


def learn(codec: dict[str, Any], keys: Keys, payload: pa.Array, taken: Iterable[str] = ()) -> Keys:
    """The keys with what these messages bring."""
    for at in range(0, len(payload), PIECE):
        piece = payload.slice(at, PIECE)
        if codec["kind"] != "json" or uniform.decode(keys, piece) is None:
            columns, _ = _columns(codec, keys, piece)
            keys = _grow(keys, {label: _kinds(values) for label, values in columns.items()}, taken)
    return keys


def decode(
    codec: dict[str, Any], keys: Keys, payload: pa.Array, taken: Iterable[str] = ()
) -> tuple[Keys, list[pa.Array], pa.Array]:
    """(keys grown by these messages, a column for each, errors). In pieces: an odd message slows down only its own piece, and
    Python's collector of garbage sees few objects."""
    starts = range(0, len(payload), PIECE)
    if len(starts) < 2:
        return _decode_piece(codec, keys, payload, taken)
    made: dict[int, tuple[Keys, list[pa.Array], pa.Array]] = {}
    for _ in range(2):  # again those that were decoded before all keys were known
        for at in starts:
            if at not in made or made[at][0] is not keys:
                made[at] = _decode_piece(codec, keys, payload.slice(at, PIECE), taken)
                keys = made[at][0]
    columns = zip(*(arrays for _, arrays, _ in made.values()), strict=True)
    return (
        keys,
        [pa.concat_arrays(column) for column in columns],
        pa.concat_arrays([errors for _, _, errors in made.values()]),
    )


def _decode_piece(
    codec: dict[str, Any], keys: Keys, payload: pa.Array, taken: Iterable[str]
) -> tuple[Keys, list[pa.Array], pa.Array]:
    kind = codec["kind"]
    if kind == "json" and (alike := uniform.decode(keys, payload)) is not None:
        return keys, alike, pa.nulls(len(payload), pa.string())
    columns, errors = _columns(codec, keys, payload)
    found = _grow(keys, {label: _kinds(values) for label, values in columns.items()}, taken)
    plain = kind == "json"  # then JSON carries whatever there is
    arrays = [_array(columns[key.label], key, errors, plain) for key in found]
    known = {key.label for key in found}
    for label, values in columns.items():
        if label not in known:
            for at, value in enumerate(values):
                if value is not None:
                    _note(errors, at, f"{_shown(label)}: a stream has at most {KEYS_MAX} columns")
    if not errors:
        return found, arrays, pa.nulls(len(payload), pa.string())
    return found, arrays, pa.array([errors.get(at) for at in range(len(payload))], pa.string())


def _note(errors: Errors, at: int, text: str) -> None:
    before = errors.get(at)
    text = text if before is None else f"{before}; {text}"
    errors[at] = text[:ERROR_MAX].encode("utf-8", "replace").decode()


# ---- messages ----


def _columns(codec: dict[str, Any], keys: Keys, payload: pa.Array) -> tuple[dict[str, list[Any]], Errors]:
    """Label → values, those of `keys` first, then in the order in which labels appeared; and what is wrong with which row."""
    data = payload.to_pylist()
    errors: Errors = {}
    kind, decoder = codec["kind"], from_spec(codec).parse
    try:
        rows: list[Any] = [decoder(item) for item in data]
    except Exception:  # one of them: which one, and why, is found one by one
        rows = [_decode_one(decoder, item, at, errors) for at, item in enumerate(data)]
    if kind == "msgpack":
        for at, item in enumerate(data):
            if (b"\xd7\xff" in item or b"\xc7\x0c\xff" in item) and at not in errors and _was_rounded(item, rows[at]):
                rows[at] = {}
                _note(errors, at, "a time stamp has nanoseconds, the column microseconds: only the payload has it")
    if set(map(type, rows)) <= {dict}:
        seen: dict[Any, Any] = {}
        for row in rows:
            seen.update(row)
        if all(type(key) is str for key in seen):
            labels = {key.label: None for key in keys} | {f"s:{key}": None for key in seen}
            return {label: _gather(rows, label) for label in labels}, errors
    if kind == "msgpack":
        _refuse_doubled(data, rows, errors)
    rows = [_labelled(row, at, errors) for at, row in enumerate(rows)]
    seen = dict.fromkeys(key.label for key in keys)
    for row in rows:
        seen.update(row)
    return {label: [row.get(label) for row in rows] for label in seen}, errors


def _gather(rows: list[dict[str, Any]], label: str) -> list[Any]:
    if not label.startswith("s:"):
        return [None] * len(rows)
    key = label[2:]
    try:
        return list(map(operator.itemgetter(key), rows))
    except KeyError:
        return [row.get(key) for row in rows]


def _decode_one(decoder: Callable[[Any], Any], item: bytes, at: int, errors: Errors) -> Any:
    try:
        return decoder(item)
    except RecursionError:
        _note(errors, at, "it is nested too deep")
    except Exception as error:  # any error of a decoder is that message's error
        _note(errors, at, str(error) or type(error).__name__)
    return {}


def _labelled(row: Any, at: int, errors: Errors) -> dict[str, Any]:
    if type(row) is not dict:
        return {BARE: row}
    try:
        return {"s:" + key: value for key, value in row.items()}
    except TypeError:
        found = {}
        for key, value in row.items():
            label = _label(key)
            if label is None:
                _note(errors, at, f"a key of the type {type(key).__name__} has no column")
            elif label in found:  # nan is not equal to itself, so a map may have it twice
                _note(errors, at, DOUBLED)
                return {}
            else:
                found[label] = value
        return found


def _label(key: Any) -> str | None:
    if isinstance(key, str):
        return f"s:{key}"
    if key is None or isinstance(key, bool | int | float):
        return f"{type(key).__name__[0]}:{key}"
    return f"x:{key.hex()}" if isinstance(key, bytes) else None


def _text_of(label: str) -> str:
    """The text that a column is named after: bytes as text if they are UTF-8."""
    if label == BARE:
        return "value"
    if label.startswith("x:"):
        raw = bytes.fromhex(label[2:])
        return raw.decode() if raw.isascii() and raw else label[2:]
    return label[2:]


def _shown(label: str) -> str:
    return f"key {_text_of(label)[:60]!r}"


def _refuse_doubled(data: list[bytes], rows: list[Any], errors: Errors) -> None:
    """Keys that Python takes for equal (1, 1.0, true) have overwritten each other: then only the payload has them all."""
    for at, item in enumerate(data):
        if type(rows[at]) is dict and any(type(key) is not str for key in rows[at]):
            first = item[0]
            size = int.from_bytes(item[1 : 3 if first == 0xDE else 5], "big") if first in (0xDE, 0xDF) else first & 15
            if size != len(rows[at]):
                rows[at] = {}
                _note(errors, at, DOUBLED)


def _was_rounded(item: bytes, row: Any) -> bool:
    stamps = [value for value in _all_values(row) if isinstance(value, datetime.datetime)]
    for match in STAMPS.finditer(item) if stamps else ():
        if match["short"] is not None:
            number = int.from_bytes(match["short"], "big")
            nanoseconds, seconds = number >> 34, number & ((1 << 34) - 1)
        else:
            nanoseconds, seconds = int.from_bytes(match["ns"], "big"), int.from_bytes(match["s"], "big", signed=True)
        if nanoseconds % 1000 and any(abs(_seconds(stamp) - seconds) <= 1 for stamp in stamps):
            return True
    return False


def _seconds(stamp: datetime.datetime) -> float:
    return (stamp - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds()


def _all_values(row: Any) -> list[Any]:
    found, todo = [], [row]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            todo += value
        else:
            found.append(value)
    return found


# ---- kinds and types ----


def _grow(keys: Keys, kinds: dict[str, frozenset[str]], taken: Iterable[str]) -> Keys:
    """Keys with more kinds and more keys; the very same if there is nothing new."""
    grown = [_wider(key, kinds[key.label]) for key in keys]
    known = {key.label for key in keys}
    fresh = [label for label in kinds if label not in known][: max(0, KEYS_MAX - len(keys))]
    if not fresh and all(one is other for one, other in zip(keys, grown, strict=True)):
        return keys
    used = {*RESERVED, *taken, *(folded(key.name) for key in keys)}
    return (*grown, *(Key(label, free(_text_of(label), used), canonical(kinds[label])) for label in fresh))


def _wider(key: Key, kinds: frozenset[str]) -> Key:
    more = canonical(key.kinds | kinds)
    return key if more == key.kinds else Key(key.label, key.name, more)


def merged(keys: Keys, other: Keys, taken: Iterable[str] = ()) -> Keys:
    """Two streams' worth of keys as one; names are those of the first where both have a key."""
    kinds = {key.label: frozenset[str]() for key in keys} | {key.label: key.kinds for key in other}
    return _grow(keys, kinds, taken)


def _kinds(values: list[Any]) -> frozenset[str]:
    """The kinds of a column's values."""
    found: set[str] = set()
    for kind in set(map(type, values)):
        if kind is type(None):
            continue
        simple = KIND.get(kind)
        if simple is not None:
            found.add(simple)
        elif kind is int:
            found |= _kinds_of_ints([value for value in values if type(value) is int])
        elif kind is list:
            found |= _kinds_of_lists([value for value in values if type(value) is list])
        else:
            found.add("other")
    return frozenset(found)


ELEMENTS = {bool, str, float, int, type(None)}  # of lists that have a column of lists
KIND: dict[type, str] = {bool: "bool", str: "text", bytes: "bytes", float: "float", datetime.datetime: "time"}


def _kinds_of_ints(values: list[int]) -> set[str]:
    if min(values) >= -EXACT and max(values) <= EXACT:
        return {"int"}
    return set(map(_kind_of_int, values))


def _kind_of_int(value: int) -> str:
    if -(1 << 63) <= value < 1 << 63:
        return "int" if -EXACT <= value <= EXACT or int(float(value)) == value else "long"
    return "large" if abs(value) < 10**38 else "other"


def _kinds_of_lists(lists: list[list[Any]]) -> set[str]:
    inside = list(itertools.chain.from_iterable(lists))
    if set(map(type, inside)) <= ELEMENTS and "other" not in (kinds := _kinds(inside)):
        return {"list", *(f"list:{kind}" for kind in kinds)}
    if len(lists) == 1:
        return {"other"}
    return set().union(*(_kinds_of_lists([one]) for one in lists))  # not all of them need be odd


# ---- columns ----


def _array(values: list[Any], key: Key, errors: Errors, plain: bool) -> pa.Array:
    kind = key.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    try:
        if kind != pa.string() or key.kinds == {"text"}:
            return pa.array(values, kind)
        if plain:
            return pa.array([as_text(value, True) for value in values], kind)
    except Exception:  # one value: it is found below, and only it is lost to the column
        pass
    found: list[Any] = []
    for at, value in enumerate(values):
        try:
            found.append(None if value is None else _fit(value, kind))
        except RecursionError:
            found.append(None)
            _note(errors, at, f"{_shown(key.label)}: it is nested too deep")
        except Exception as error:
            found.append(None)
            _note(errors, at, f"{_shown(key.label)}: {error}")
    return pa.array(found, kind)


def _fit(value: Any, kind: pa.DataType) -> Any:
    """One value as a column has it; raises if it would be another."""
    if kind == pa.string():
        return as_text(value)
    found = pa.scalar(value, kind).as_py()
    same = Decimal(value) if isinstance(found, Decimal) else value
    if found != same and not (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"it does not fit {kind}")
    return value


def as_text(value: Any, plain: bool = False) -> str | None:
    """A value in a column of text: text as it is, times as ISO 8601, all else as JSON. ValueError if JSON cannot carry it.

    plain: it was sent as JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if not plain:
        _refuse_beyond_json(value)
    return msgspec.json.encode(value).decode()


def _refuse_beyond_json(value: Any) -> None:
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if not all(isinstance(name, str) for name in item):
                raise ValueError("it holds a map with keys that are not text, which JSON cannot carry")
            todo += item.values()
        elif isinstance(item, list):
            todo += item
        elif item is not None and not isinstance(item, str | bool | int | float):
            raise ValueError(f"it holds {_called(item)}, which JSON cannot carry")
        elif isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"it holds {item}, which JSON cannot carry")


def _called(item: Any) -> str:
    return {"bytes": "bytes", "datetime": "a time", "Ext": "an extension type"}.get(
        type(item).__name__, type(item).__name__
    )


__all__ = ["as_text", "decode", "learn", "merged", "resolve", "schema"]
