"""Python values as a column of a type that is given. A value that does not fit is null there and is rescued: nothing is changed. But a
time with nanoseconds is there without them, too.

Goes column by column and level by level, so that a value costs Python work only where it is odd.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.fixed import FIRST_TIME, LAST_TIME

Rescue = Callable[[int, str, Any], None]  # row, where in the message, value
WHOLE_DIGITS = 19  # of the widest whole number
EXACT = 1 << 53  # whole numbers up to here are exact as float64
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII | re.IGNORECASE
)
FAST: dict[Any, set[type]] = {
    pa.bool_(): {bool},
    pa.int64(): {int},
    pa.float64(): {float},
    pa.string(): {str},
    pa.binary(): {bytes},
}
NOTHING = type(None)


@dataclass(frozen=True)
class Into:
    """Where values go. rescue: called for each value, or part of one, that does not fit. has_bytes: whether the codec has bytes of its
    own; in JSON, a text in base64 stands for them."""

    rescue: Rescue
    has_bytes: bool


class Misfit(Exception):
    """A value that a column's type does not hold as it is."""

    near: Any = None  # what the column gets instead


class Shortened(Misfit):
    """A time with nanoseconds: a column of microseconds gets it without them."""

    def __init__(self, near: Any) -> None:
        self.near = near


def build(values: Sequence[Any], kind: pa.DataType, into: Into, path: str) -> pa.Array:
    """A column of these values."""
    if pa.types.is_struct(kind):
        return _structs(values, kind, into, path)
    if pa.types.is_list(kind):
        return _lists(values, kind, into, path)
    if pa.types.is_map(kind):
        return _maps(values, kind, into, path)
    return _scalars(values, kind, into, path)


def _scalars(values: Sequence[Any], kind: pa.DataType, into: Into, path: str) -> pa.Array:
    plain = FAST.get(kind)
    if plain is not None and set(map(type, values)) <= plain | {NOTHING}:
        try:
            return pa.array(values, kind)
        except (OverflowError, ValueError, pa.ArrowException):  # one of them: it is found below
            pass
    fit = fitting(kind, has_bytes=into.has_bytes)
    found: list[Any] = []
    for row, value in enumerate(values):
        if value is None:
            found.append(None)
            continue
        try:
            found.append(fit(value))
        except Misfit as error:
            found.append(error.near)
            into.rescue(row, path, value)
    return pa.array(found, kind)


def _structs(values: Sequence[Any], kind: pa.DataType, into: Into, path: str) -> pa.Array:
    rows = [value if type(value) is dict else None for value in values]
    names = [field.name for field in kind]
    known = set(names)
    for row, value in enumerate(values):
        if rows[row] is None:
            if value is not None:
                into.rescue(row, path, value)
        elif not known.issuperset(value):
            for key in value:
                if key not in known and value[key] is not None:
                    into.rescue(row, f"{path}.{key}", value[key])
    children = [
        build([None if one is None else one.get(field.name) for one in rows], field.type, into, f"{path}.{field.name}")
        for field in kind
    ]
    missing = np.fromiter((one is None for one in rows), bool, len(rows))
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(missing) if missing.any() else None)


def _lists(values: Sequence[Any], kind: pa.DataType, into: Into, path: str) -> pa.Array:
    whole = [value if type(value) in (list, tuple) else None for value in values]
    offsets, (inside,), bad = _inside(values, whole, into, path, [lambda one: one], [kind.value_type])
    return pa.ListArray.from_arrays(_with_nulls(offsets, whole, bad), inside, type=kind)


def _maps(values: Sequence[Any], kind: pa.DataType, into: Into, path: str) -> pa.Array:
    whole = [value if type(value) is dict else None for value in values]
    offsets, (keys, items), bad = _inside(
        values, whole, into, path, [dict.keys, dict.values], [kind.key_type, kind.item_type], required=0
    )
    return pa.MapArray.from_arrays(_with_nulls(offsets, whole, bad), keys, items, type=kind)


def _inside(
    values: Sequence[Any],
    whole: list[Any],
    into: Into,
    path: str,
    parts: list[Callable[[Any], Any]],
    kinds: list[pa.DataType],
    required: int | None = None,
) -> tuple[np.ndarray[Any, Any], list[pa.Array], set[int]]:
    """(offsets, the elements of all rows, rows with an element that does not fit). Such a row is rescued as a whole: a part of it would
    be another value. required: the part that is never null."""
    for row, value in enumerate(values):
        if value is not None and whole[row] is None:
            into.rescue(row, path, value)
    bad: set[int] = set()
    while True:
        kept = [() if one is None or row in bad else one for row, one in enumerate(whole)]
        offsets = np.cumsum([0, *map(len, kept)], dtype=np.int32)
        worse: set[int] = set()

        def note(element: int, _: str, value: Any, offsets: Any = offsets, worse: set[int] = worse) -> None:
            worse.add(int(np.searchsorted(offsets, element, side="right")) - 1)

        found = []
        for number, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
            elements = list(itertools.chain.from_iterable(part(one) if one != () else () for one in kept))
            if number == required:
                for element, value in enumerate(elements):
                    if value is None:
                        note(element, path, value)
            found.append(build(elements, kind, Into(note, into.has_bytes), path))
        if not worse:
            break
        bad |= worse
    for row in sorted(bad):
        into.rescue(row, path, values[row])
    return offsets, found, bad


def _with_nulls(offsets: np.ndarray[Any, Any], whole: list[Any], bad: set[int]) -> pa.Array:
    missing = np.fromiter((one is None or row in bad for row, one in enumerate(whole)), bool, len(whole))
    return pa.array(offsets, pa.int32(), mask=np.append(missing, False) if missing.any() else None)


# ---- one value ----


def fitting(kind: pa.DataType, *, has_bytes: bool = False) -> Callable[[Any], Any]:
    """How one value becomes one of a plain type; `Misfit` if it would be another value."""
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        return lambda value: _whole(value, -(1 << bits), (1 << bits) - 1)
    if pa.types.is_floating(kind):
        return _double if kind == pa.float64() else _single
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if pa.types.is_boolean(kind):
        return lambda value: _of(value, bool)
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_binary(kind):
        return (lambda value: _of(value, bytes)) if has_bytes else _bytes
    if pa.types.is_timestamp(kind):
        return lambda value: _microseconds(value, kind.tz is not None)
    if pa.types.is_date(kind):
        return _date
    raise TypeError(f"no column is {kind}")


def _of(value: Any, cls: type) -> Any:
    if type(value) is not cls:
        raise Misfit
    return value


def _whole(value: Any, least: int, most: int) -> int:
    if type(value) is float and value.is_integer() and abs(value) <= EXACT:
        value = int(value)
    # The exponent comes first: all the digits of 1e999999999 would take minutes.
    if (
        type(value) is Decimal
        and value.is_finite()
        and value.adjusted() < WHOLE_DIGITS
        and value == value.to_integral_value()
    ):
        value = int(value)
    if type(value) is not int or not least <= value <= most:
        raise Misfit
    return value


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int and (-EXACT <= value <= EXACT or _is_exact(value)):
        return float(value)
    raise Misfit


def _is_exact(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _single(value: Any) -> float:
    """A number of a column that was declared as a float: its text must be the float's own."""
    found = _double(value)
    with np.errstate(over="ignore"):
        single = np.float32(found)
    if math.isnan(found) or found == float(single) or (math.isfinite(single) and float(str(single)) == found):
        return float(single)
    raise Misfit


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if type(value) is float:
        value = Decimal(repr(value)) if math.isfinite(value) else None
    if type(value) is int:
        value = Decimal(value)
    if type(value) is str:
        try:
            value = Decimal(value)
        except ArithmeticError:
            raise Misfit from None
    if type(value) is not Decimal or not value.is_finite():
        raise Misfit
    # Not normalize(): it rounds to the context's digits, and overflows for exponents beyond its own.
    if not value:
        return Decimal(0)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    zeros = next((at for at, digit in enumerate(reversed(digits)) if digit), 0)
    if -(exponent + zeros) > scale or len(digits) + exponent > precision - scale:
        raise Misfit
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Misfit
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit from None
    return value


def _bytes(value: Any) -> bytes:
    """Bytes, or the text in base64 that stands for them in JSON."""
    if type(value) is str:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Misfit from None
    found: bytes = _of(value, bytes)
    return found


def _microseconds(value: Any, zoned: bool) -> int:
    """A time in microseconds since 1970, from a datetime or from ISO 8601. One with nanoseconds is `Shortened`, towards the past. zoned:
    one without a zone is in UTC, as in Spark's sessions here; else one with a zone does not fit."""
    rest = ""
    if isinstance(value, str):
        value, rest = _instant(value)
    if not isinstance(value, datetime.datetime) or (value.tzinfo is not None and not zoned):
        raise Misfit
    moment = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value
    found = (moment - EPOCH) // datetime.timedelta(microseconds=1)
    if not FIRST_TIME <= found <= LAST_TIME:  # its zone is behind the end of the calendar: no reader shows the instant
        raise Misfit
    if rest:
        raise Shortened(found)
    return found


def _instant(text: str) -> tuple[datetime.datetime, str]:
    """A time in ISO 8601, and the digits of its nanoseconds."""
    found = INSTANT.fullmatch(text.strip())
    if found is None:
        raise Misfit
    fraction = (found[3] or "").rstrip("0")
    try:
        moment = datetime.datetime.fromisoformat(
            f"{found[1]}T{found[2]}.{fraction[:6] or '0':0<6}{(found[4] or '').upper()}"
        )
    except ValueError:
        raise Misfit from None
    return moment, fraction[6:]


def _date(value: Any) -> datetime.date:
    if type(value) is str:
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            raise Misfit from None
    found: datetime.date = _of(value, datetime.date)
    return found
