"""Messages of json and msgpack as Python objects that lose nothing: numbers keep their digits, and repeated keys are found."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codecs.msgpack import SECONDS, STAMP, decode_spared, extensions, headers, of_stamp

Errors = dict[int, str]
ERROR_MAX = 200
DIGITS = 17  # that a double may need
SHORT = 15  # a text of so many characters is one double, and that one has its digits
LEAST = 1e-290  # doubles below this have fewer digits
# A number with more digits than that; a shorter one with zeros in front of it is none.
LONG = r"[1-9][0-9.]{18}"
MEMBER = re.compile(rb'"\s*:')
HALF = "a text has half of a surrogate pair, which no UTF-8 has: only the payload has it"
DOUBLED = "a key is repeated: only the payload has both values"
STAMPS = (b"\xd7\xff", b"\x08\xff", b"\x0c\xff")  # those of 8 and of 12 bytes begin so


class Instant(str):
    """A time in ISO 8601, of a codec that has times. It has nanoseconds, which a datetime does not."""


def _number(text: str) -> float | Decimal:
    """A fraction as it was written: a double if that gives the same digits back, else all its digits."""
    found = float(text)
    if len(text) <= SHORT and (LEAST < abs(found) < math.inf or found == 0 == float(text.lower().partition("e")[0])):
        return found
    exact = Decimal(text)
    if not math.isfinite(found):
        return exact
    if abs(found) <= LEAST:
        return found if Decimal(repr(found)) == exact else exact
    digits = len(exact.normalize().as_tuple().digits)
    back = Decimal(f"{found:.{digits - 1}e}") if digits <= DIGITS else Decimal(found)
    return found if back == exact else exact


_decode_json = msgspec.json.Decoder(float_hook=_number).decode


def has_long_numbers(payload: pa.Array) -> bool:
    """Whether a JSON message may have a number with more digits than a double holds."""
    return bool(pc.any(pc.match_substring_regex(payload.cast(pa.string()), LONG)).as_py())


def objects(kind: str, payload: pa.Array) -> tuple[list[Any], Errors]:
    """(a message each, None where it is damaged; what is wrong with which)."""
    data = payload.to_pylist()
    errors: Errors = {}
    parse = _decode_json if kind == "json" else msgspec.msgpack.decode
    try:
        rows: list[Any] = [parse(item) for item in data]
    except Exception:  # one of them: which one, and why, is found one by one
        rows = [_one(parse, item, at, errors) for at, item in enumerate(data)]
    for at, (item, row) in enumerate(zip(data, rows, strict=True)):
        if at in errors:
            continue
        if kind == "msgpack" and any(mark in item for mark in STAMPS):
            rows[at] = row = _with_odd_stamps(item) or row
        wrong = _json_loss(item, row) if kind == "json" else _msgpack_loss(item, row)
        if wrong:
            rows[at], errors[at] = None, wrong
    return rows, errors


def note(errors: Errors, at: int, text: str) -> None:
    """What is wrong with a message, in a line of limited length."""
    errors[at] = text[:ERROR_MAX].encode("utf-8", "replace").decode()


def describe(error: Exception) -> str:
    """A decoder's error in a line of limited length."""
    errors: Errors = {}
    note(
        errors, 0, "it is nested too deep" if isinstance(error, RecursionError) else str(error) or type(error).__name__
    )
    return errors[0]


def _one(parse: Any, item: bytes, at: int, errors: Errors) -> Any:
    try:
        return parse(item)
    except Exception as error:  # any error of a decoder is that message's error
        if (
            parse is msgspec.msgpack.decode
            and any(mark in item for mark in STAMPS)
            and (found := _with_odd_stamps(item))
        ):
            return found
        errors[at] = HALF if parse is _decode_json and _has_half(item) else describe(error)
    return None


def _has_half(item: bytes) -> bool:
    """Whether a JSON message is sound but for half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        json.dumps(json.loads(item.decode()), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _json_loss(item: bytes, row: Any) -> str:
    """A repeated key: the decoder keeps the last value only. Members are counted; colons inside of texts make it look closely."""
    if len(MEMBER.findall(item)) == _members(row):
        return ""
    try:
        json.loads(item, object_pairs_hook=_unique)
    except KeyError:
        return DOUBLED
    except RecursionError:
        return "it is nested too deep"
    return ""


def _members(row: Any) -> int:
    if type(row) is dict:
        count = len(row)
        for value in row.values():
            if type(value) in (dict, list):
                count += _members(value)
        return count
    return sum(_members(value) for value in row if type(value) in (dict, list)) if type(row) is list else 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise KeyError
    return found


def _msgpack_loss(item: bytes, row: Any) -> str:
    if _is_nested(row) and (
        b"\xca" in item or not _is_plain(row) or len(msgspec.msgpack.encode(row, enc_hook=str)) != len(item)
    ):
        return DOUBLED if _pairs(item) != _distinct(row) else ""
    if type(row) is dict and (first := item[0]):
        size = int.from_bytes(item[1 : 3 if first == 0xDE else 5], "big") if first in (0xDE, 0xDF) else first & 15
        if size != len(row):
            return DOUBLED
    return ""


def _is_nested(row: Any) -> bool:
    """Whether there may be maps inside. The decoder keeps the last of a key that comes twice in one of them."""
    inside = row.values() if type(row) is dict else row if type(row) is list else ()
    return any(type(value) in (dict, list) for value in inside)


def _is_plain(row: Any) -> bool:
    """Whether all keys are text. Such a message that loses a pair is shorter when it is encoded again; floats of 32 bits get longer."""
    return all(type(key) is str for one in _maps(row) for key in one)


def _distinct(row: Any) -> int:
    """How many keys a message has; nan is one key."""
    return sum(len({key if key == key else NAN for key in one}) for one in _maps(row))


def _maps(row: Any) -> Iterator[dict[Any, Any]]:
    todo = [row]
    while todo:
        value = todo.pop()
        if type(value) is dict:
            yield value
            todo += value.values()
        elif type(value) is list:
            todo += value


NAN = object()


def _pairs(item: bytes) -> int:
    """How many pairs the maps of a message have."""
    count = 0
    for at, first in headers(item):
        if 0x80 <= first < 0x90:
            count += first & 15
        elif first in (0xDE, 0xDF):
            count += int.from_bytes(item[at + 1 : at + (3 if first == 0xDE else 5)], "big")
    return count


def _is_odd(data: bytes) -> bool:
    """Whether a time stamp is none that a datetime holds."""
    if len(data) not in (8, 12):
        return False
    seconds, nanoseconds = of_stamp(data)
    return nanoseconds % 1000 != 0 or nanoseconds >= 10**9 or seconds not in SECONDS


def _with_odd_stamps(item: bytes) -> Any:
    """The message with its times that no datetime holds: `Instant` where they have nanoseconds, extensions where they are far from now.
    None if it has none, or is no message. The decoder would round the ones, and fail at the others."""
    found = list(extensions(item))
    odd = [code for code, data in found if item[code] == STAMP and _is_odd(data)]
    if not odd:
        return None
    try:
        return decode_spared(item, odd, _instant)
    except (ValueError, RecursionError):  # something else is wrong with it
        return None


def _instant(data: bytes) -> Any:
    seconds, nanoseconds = of_stamp(data)
    if seconds not in SECONDS or nanoseconds >= 10**9:
        return msgspec.msgpack.Ext(-1, data)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return Instant(f"{moment.isoformat()}.{nanoseconds:09d}Z")
