"""The content of a message, found by other means than the decoder's: the standard library's JSON, a MessagePack reader of our own,
NumPy one scalar at a time. `check` compares a table's row with it."""

from __future__ import annotations

import datetime
import json
import math
import re
import struct
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from penstock.columns.names import folded

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
BARE = "bare"


class Wrong(Exception):
    """The bytes are no message."""


class Beyond:
    """A value that only its payload has: an extension type, a time finer than microseconds or out of their range."""


class Stamp(int):
    """Nanoseconds since the epoch."""


# ---- MessagePack ----


class Pairs(list):
    """A map as it is written: keys may be anything, and come twice."""


def msgpack(data):
    """The value in MessagePack bytes."""
    try:
        value, at = _unpack(data, 0, 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Wrong(str(error)) from error
    if at != len(data):
        raise Wrong("trailing bytes")
    return value


def _take(data, at, size):
    if at + size > len(data):
        raise Wrong("cut")
    return data[at : at + size], at + size


def _unpack(data, at, depth):
    if depth > 400:
        raise Wrong("deep")
    if at >= len(data):
        raise Wrong("cut")
    first = data[at]
    at += 1
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 256), at
    if first < 0x90 or first in (0xDE, 0xDF):
        return _many(data, at, first, 0x80, {0xDE: 2, 0xDF: 4}, depth, True)
    if first < 0xA0 or first in (0xDC, 0xDD):
        return _many(data, at, first, 0x90, {0xDC: 2, 0xDD: 4}, depth, False)
    if first < 0xC0 or first in (0xD9, 0xDA, 0xDB):
        size, at = _size(data, at, first, 0xA0, {0xD9: 1, 0xDA: 2, 0xDB: 4})
        raw, at = _take(data, at, size)
        return raw.decode(), at
    if first in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[first], at
    if first in (0xC4, 0xC5, 0xC6):
        size, at = _size(data, at, first, 0, {0xC4: 1, 0xC5: 2, 0xC6: 4})
        return _take(data, at, size)
    numbers = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"} | {
        0xD0: ">b",
        0xD1: ">h",
        0xD2: ">i",
        0xD3: ">q",
    }
    if first in numbers:
        raw, at = _take(data, at, struct.calcsize(numbers[first]))
        return struct.unpack(numbers[first], raw)[0], at
    if first == 0xC1:
        raise Wrong("never used")
    fixed = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
    size, at = (fixed[first], at) if first in fixed else _size(data, at, first, 0, {0xC7: 1, 0xC8: 2, 0xC9: 4})
    code, at = _take(data, at, 1)
    raw, at = _take(data, at, size)
    return (_stamp(raw) if code == b"\xff" else Beyond()), at


def _stamp(raw):
    if len(raw) == 4:
        return Stamp(struct.unpack(">I", raw)[0] * 10**9)
    if len(raw) == 8:
        (both,) = struct.unpack(">Q", raw)
        ns, seconds = both >> 34, both & ((1 << 34) - 1)
    elif len(raw) == 12:
        ns, seconds = struct.unpack(">Iq", raw)
    else:
        raise Wrong("no time stamp")
    if ns >= 10**9:
        raise Wrong("no time stamp")
    return Stamp(seconds * 10**9 + ns)


def _size(data, at, first, base, widths):
    if first not in widths:
        return first & 31, at
    raw, at = _take(data, at, widths[first])
    return int.from_bytes(raw, "big"), at


def _many(data, at, first, base, widths, depth, maps):
    if first in widths:
        raw, at = _take(data, at, widths[first])
        size = int.from_bytes(raw, "big")
    else:
        size = first & 15
    if size > len(data):
        raise Wrong("cut")
    found = []
    for _ in range(size * (2 if maps else 1)):
        value, at = _unpack(data, at, depth + 1)
        found.append(value)
    return (Pairs(zip(found[::2], found[1::2], strict=True)) if maps else found), at


# ---- objects ----


def fields(kind, data):
    """label → value of a message of keys; `Wrong` if it is none, or if two keys cannot be told apart by readers."""
    if kind == "json":
        try:
            value = json.loads(data.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Wrong(str(error)) from error
        return {f"s:{key}": item for key, item in value.items()} if isinstance(value, dict) else {BARE: value}
    value = msgpack(data)
    if not isinstance(value, Pairs):
        return {BARE: value}
    found, plain = {}, {}
    for key, item in value:
        label = _label(key)
        if label in found and not isinstance(key, str):
            raise Wrong("a key twice")
        found[label] = item
        if isinstance(key, str | bytes | int | float | None) and not isinstance(key, Stamp):
            if key in plain and plain[key] != label:
                raise Wrong("keys that are equal")
            plain[key] = label
    return found


def _no_constant(name):
    raise ValueError(name)


def _label(key):
    if isinstance(key, Stamp | list | Beyond):
        return ("beyond", repr(key))
    if isinstance(key, bytes):
        return f"x:{key.hex()}"
    return f"{type(key).__name__[0]}:{key}"


def check_objects(kind, data, row, schema, error):
    """The row of a table has what the message has, or says why not. True if the message was decoded whole."""
    try:
        there = fields(kind, data)
    except Wrong:
        assert error, (data, row)
        assert all(value is None for value in row.values()), (data, row)
        return False
    missing = False
    labels = {field.metadata[b"key"].decode(): field for field in schema}
    for label, value in there.items():
        field = labels.get(label) if isinstance(label, str) else None
        cell = None if field is None else row.get(field.name)
        if cell is None:
            missing |= value is not None or (field is None and not isinstance(label, str))
        else:
            assert same(value, cell, field.type), (data, field, value, cell)
    for label, field in labels.items():
        assert label in there or row.get(field.name) is None, (data, field, row)
    assert bool(error) == missing, (data, row, error)
    return not missing


def same(value, cell, kind):
    """Whether a cell of that type is the value."""
    if pa.types.is_list(kind):
        pairs = isinstance(value, list) and not isinstance(value, Pairs) and len(value) == len(cell)
        return pairs and all(
            (one is None and other is None) or (other is not None and same(one, other, kind.value_type))
            for one, other in zip(value, cell, strict=True)
        )
    if pa.types.is_timestamp(kind):
        return (isinstance(value, Stamp) and (cell - EPOCH) / datetime.timedelta(microseconds=1) * 1000 == value) or (
            isinstance(value, Stamp) and _micro(cell) * 1000 == value
        )
    if isinstance(value, Stamp):
        return kind == pa.string() and _micro(datetime.datetime.fromisoformat(cell)) * 1000 == value
    if isinstance(value, bool):
        return cell is value if kind == pa.bool_() else cell == json.dumps(value)
    if kind == pa.string():
        if isinstance(value, str):
            return cell == value
        return identical(json.loads(cell), value)
    if kind == pa.binary():
        return isinstance(value, bytes) and value == cell
    if isinstance(value, int):
        return isinstance(cell, int | Decimal | float) and not isinstance(cell, bool) and Fraction(cell) == value
    if isinstance(value, float):
        return isinstance(cell, float) and (cell == value or (math.isnan(cell) and math.isnan(value)))
    return False


def _micro(stamp):
    return (stamp - EPOCH) // datetime.timedelta(microseconds=1)


def identical(one, other):
    """The same value of the same type, all the way down."""
    if isinstance(other, Pairs):
        return isinstance(one, dict) and identical(one, dict(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(identical, one, other))
    return one == other


# ---- NumPy ----


def leaves(dtype, prefix=()):
    """(path, plain dtype) of each leaf of a structured dtype, in order."""
    for name in dtype.names:
        base = dtype[name].base
        yield from leaves(base, (*prefix, name)) if base.names else [((*prefix, name), base)]


def check_record(dtype, data, row, error):
    """A row of a struct's columns (a list of cells, in the order of the leaves) against NumPy, one scalar at a time."""
    if len(data) != dtype.itemsize:
        assert error
        assert all(cell is None for cell in row)
        return False
    record = np.frombuffer(data, dtype)
    whole = True
    for (path, base), cell in zip(leaves(dtype), row, strict=True):
        part = record
        for name in path:
            part = part[name]
        several = part.ndim > 1
        values = part.reshape(-1)
        cells = cell if several else [cell]
        assert len(values) == len(cells), (path, base, cell)
        for at in range(len(values)):
            whole &= check_scalar(values[at : at + 1], base, cells[at])
    assert bool(error) != whole, (dtype, data, row, error)
    return whole


def check_scalar(one, dtype, cell):
    """One value against its cell; False if only the payload has it."""
    kind, raw = dtype.kind, one.tobytes()
    if kind == "S":
        assert cell == raw.rstrip(b"\0"), (dtype, raw, cell)
    elif kind == "V":
        assert cell == raw, (dtype, raw, cell)
    elif kind == "U":
        try:
            text = raw.decode("utf-32-be" if dtype.str[0] == ">" else "utf-32-le").rstrip("\0")
        except UnicodeDecodeError:
            assert cell is None, (dtype, raw, cell)
            return False
        assert cell == text, (dtype, raw, cell)
    elif kind in "Mm":
        return _check_time(one, dtype, cell)
    elif kind == "c":
        half = np.dtype(f"{dtype.str[0]}f{dtype.itemsize // 2}")
        for part, name in ((one.view(half)[0:1], "real"), (one.view(half)[1:2], "imag")):
            check_scalar(part, half, cell[name])
    elif kind == "f" and dtype.itemsize > 8:
        value = one.astype(np.longdouble)[0]
        with warnings.catch_warnings():  # the smallest ones: NumPy calls that an overflow, and reads them right
            warnings.simplefilter("ignore", RuntimeWarning)
            assert np.longdouble(cell) == value or value != value, (value, cell)
    elif kind == "f":
        value = float(one[0])
        assert cell == value or (math.isnan(cell) and math.isnan(value)), (value, cell)
        assert math.copysign(1, cell) == math.copysign(1, value) or math.isnan(value)
    elif kind == "b":
        assert cell is any(raw)
    else:
        assert cell == int(one[0]), (dtype, raw, cell)
    return True


LENGTHS = {
    "W": 604_800_000_000,
    "D": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
}


def _check_time(one, dtype, cell):
    count = int(one.astype(dtype.newbyteorder("=")).view(np.int64)[0])
    if count == -(1 << 63):
        assert cell is None
        return True
    unit, step = np.datetime_data(dtype)
    if dtype.kind == "m" or unit not in {*LENGTHS, "Y", "M"}:
        assert cell == count, (dtype, count, cell)
        return True
    count *= step
    if unit in LENGTHS:
        expected = count * LENGTHS[unit]
    else:
        year, month = (1970 + count, 0) if unit == "Y" else (1970 + count // 12, count % 12)
        if not 1 <= year <= 9999:
            assert cell is None
            return False
        expected = (datetime.date(year, month + 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()) * LENGTHS[
            "D"
        ]
    if not FIRST <= expected <= LAST:
        assert cell is None, (dtype, count, cell)
        return False
    naive = EPOCH.replace(tzinfo=None)
    assert cell == naive + datetime.timedelta(microseconds=expected), (dtype, count, cell)
    return True


def check_names(schema, taken):
    """Names of columns are safe, and none comes twice or is taken, also where capitals are not told from small letters."""
    names = [folded(name) for name in schema.names]
    assert len(set(names)) == len(names), names
    assert not set(names) & set(taken), names
    assert not any(re.search(r"[\x00-/:-@\[-^`{-\x7f\s]", name) or name.startswith("__a") for name in schema.names), (
        names
    )
