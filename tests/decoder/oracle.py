"""The content of a message, found by other means than the decoder's: the standard library's JSON, a MessagePack reader of our own,
NumPy one scalar at a time. `check_message` and `check_record` compare a table's row with it."""

from __future__ import annotations

import base64
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

from penstock.columns.contract import key_text
from penstock.columns.names import RESERVED, folded

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
LONGEST = 4300  # digits of a number: no parser reads more


class Wrong(Exception):
    """The bytes are no message, or one that no row can hold: a key comes twice, a time is finer than microseconds."""


class Beyond:
    """A value of an extension type."""

    def __init__(self, code, data):
        self.code, self.data = code, data


class Stamp(int):
    """Nanoseconds since the epoch."""


class Fine(Stamp):
    """One that is no whole number of microseconds: a column has it without the rest, and `_rescued` the whole of it."""

    def __str__(self):
        return f"{moment(self - self % 10**9):%Y-%m-%dT%H:%M:%S}.{self % 10**9:09d}Z".rjust(30, "0")


class Pairs(list):
    """A map: (key, value) each. Keys may be anything."""


# ---- MessagePack ----


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
    return (_stamp(raw) if code == b"\xff" else Beyond(code[0] - 256 * (code[0] > 127), raw)), at


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
    if ns >= 10**9 or not FIRST <= seconds * 10**6 + ns // 1000 <= LAST:
        return Beyond(-1, raw)
    return (Fine if ns % 1000 else Stamp)(seconds * 10**9 + ns)


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
    return (unique(zip(found[::2], found[1::2], strict=True)) if maps else found), at


def unique(pairs):
    """A map, or `Wrong` if a key is none that Python has, or comes twice: Python does not tell 1, 1.0 and True apart."""
    found = Pairs(pairs)
    keys = [_hashable(key) for key, _ in found]
    if len(set(keys)) != len(keys):
        raise Wrong("a key twice")
    return found


def _hashable(key):
    if isinstance(key, Pairs | Beyond):
        raise Wrong("no key")
    if isinstance(key, list):
        return tuple(map(_hashable, key))
    if isinstance(key, Stamp):
        return ("time", int(key))
    return key if key == key else "nan is one key"


# ---- JSON ----


def json_value(data):
    """The value of a JSON text. Its numbers are as they are written."""
    try:
        text = data.decode()
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # half a surrogate pair is no text
        return json.loads(
            text, parse_float=Decimal, parse_int=Decimal, parse_constant=_no_constant, object_pairs_hook=unique
        )
    except (ValueError, RecursionError) as error:
        raise Wrong(str(error)) from error


def _no_constant(name):
    raise ValueError(name)


# ---- messages with keys ----

PARSERS = {"json": json_value, "msgpack": msgpack}


def check_message(kind, data, row, contract, error, rescued):
    """The row has what the message has: in its columns, or in `_rescued`; or it says why not. Whether the message was decoded.

    row: name → cell, of the columns of the contract.
    """
    try:
        value = PARSERS[kind](data)
    except Wrong:
        assert error or len(data) > LONGEST, (data, row)
        assert set(map(repr, row.values())) <= {"None"}, (data, row)
        assert rescued is None
        return False
    if error and kind == "json" and len(data) > LONGEST:
        return False
    assert error is None, (data, error)
    left = json.loads(rescued, parse_float=Decimal, parse_int=Decimal) if rescued else {}
    there = {}
    for key, item in value if isinstance(value, Pairs) else [(None, value)]:
        label = _label(key) if isinstance(value, Pairs) else "bare"
        assert label not in there, (data, label)
        there[label] = item
    by_label = {column.label: column for column in contract}
    for label, item in there.items():
        column = by_label.get(label)
        check_cell(item, None if column is None else row[column.name], column and column.type, left, key_text(label))
    for label, column in by_label.items():
        assert label in there or label.startswith("o:") or row[column.name] is None, (data, label, row)
    assert not left, (data, row, left)
    return True


def check_cell(value, cell, kind, rescued, path):
    """The value is in the cell, but for the parts that were rescued; these are taken away."""
    if cell is None:
        assert value is None or take(rescued, path, value), (path, value, rescued)
    elif pa.types.is_struct(kind):
        assert isinstance(value, Pairs), (path, value)
        for key, part in value:
            number = kind.get_field_index(key) if isinstance(key, str) else -1
            check_cell(
                part,
                cell[key] if number >= 0 else None,
                kind.field(number).type if number >= 0 else None,
                rescued,
                f"{path}.{_python(key)}",
            )
        names = {key for key, _ in value if isinstance(key, str)}
        assert all(cell[field.name] is None for field in kind if field.name not in names), path
    else:
        assert same(cell, value), (path, cell, value)
        assert not has_fine(value) or take(rescued, path, value), (path, value, rescued)


def has_fine(value):
    """Whether a time in it has nanoseconds."""
    if isinstance(value, list):
        return any(map(has_fine, value))
    return isinstance(value, Fine) or (isinstance(value, tuple) and any(map(has_fine, value)))


def _python(key):
    """A key as the decoder has it."""
    if isinstance(key, list):
        return tuple(map(_python, key))
    return str(key) if isinstance(key, Fine) else moment(key) if isinstance(key, Stamp) else key


def take(rescued, path, value):
    """Removes a value from what was rescued; whether it was there. Keys that have one text have numbers behind it."""
    for name in [one for one in rescued if one == path or re.fullmatch(re.escape(path) + r"#\d+", one)]:
        if same(rescued[name], value, text=True):
            del rescued[name]
            return True
    return False


def _label(key):
    if isinstance(key, str):
        return f"s:{key}"
    if isinstance(key, bytes):
        return f"x:{key.hex()}"
    if isinstance(key, Fine):
        return f"s:{key}"
    if isinstance(key, Stamp):
        return f"d:{moment(key)}"
    if isinstance(key, list):
        return f"t:{_python(key)}"
    return f"{type(key).__name__[0]}:{key}"


def moment(stamp):
    """A time stamp as a time."""
    return EPOCH + datetime.timedelta(microseconds=stamp // 1000)


def _time_of(text):
    """A time out of JSON; None for another value, that is there by the same name."""
    try:
        return datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None


def same(found, wanted, *, text=False):
    """A value out of a column against what was sent; text: out of the JSON in `_rescued`."""
    if isinstance(wanted, str) and not text and not isinstance(found, str):
        return _is_meant(found, wanted)
    if wanted is None or isinstance(wanted, bool | str):
        return type(found) is type(wanted) and found == wanted
    if isinstance(wanted, Fine) and text:
        return found == str(wanted)
    if isinstance(wanted, Stamp):
        return (_time_of(found) if text else found) == moment(wanted)
    if isinstance(wanted, Beyond):
        return text and found == {"ext": wanted.code, "data": base64.b64encode(wanted.data).decode()}
    if isinstance(wanted, bytes):
        return found == (base64.b64encode(wanted).decode() if text else wanted)
    if isinstance(wanted, Pairs):
        return _same_map(found, wanted, text)
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(same(one, other, text=text) for one, other in zip(found, wanted, strict=True))
        )
    if isinstance(wanted, float) and not math.isfinite(wanted):
        return found == str(wanted) if text else repr(found) == repr(wanted)
    if not isinstance(found, int | float | Decimal) or isinstance(found, bool):
        return False
    if isinstance(wanted, Decimal):
        return _same_digits(found, wanted)
    return (float(found) if isinstance(wanted, float) else Fraction(found)) == wanted


def _is_meant(found, wanted):
    """Texts stand for values that JSON lacks: times, bytes in base64, decimals."""
    if isinstance(found, datetime.datetime):
        return found == datetime.datetime.fromisoformat(wanted)
    if isinstance(found, bytes):
        return base64.b64encode(found).decode() == wanted
    return isinstance(found, Decimal) and found == Decimal(wanted)


def _same_digits(found, wanted):
    digits = max(
        1, len("".join(map(str, wanted.as_tuple().digits)).strip("0"))
    )  # `normalize` overflows for exponents beyond 999999
    if isinstance(found, float):
        return Decimal(found) == wanted or (digits <= 17 and Decimal(f"{found:.{digits - 1}e}") == wanted)
    return Decimal(found) == wanted or (digits <= 17 and float(found) == float(wanted))


def _same_map(found, wanted, text):
    """Nothing is as good as null: a struct has all its fields."""
    if isinstance(found, list) and not text:  # pairs of a map
        pairs = [tuple(pair.values()) if isinstance(pair, dict) else pair for pair in found]  # as Polars has them
        left = [pair for pair in pairs if pair[1] is not None]
        for key, value in wanted:
            if value is not None:
                at = next((n for n, pair in enumerate(left) if same(pair[0], key) and same(pair[1], value)), None)
                if at is None:
                    return False
                del left[at]
        return not left
    if not isinstance(found, dict):
        return False
    left = {key: value for key, value in found.items() if value is not None}
    if not text and not all(isinstance(key, str) for key, _ in wanted):
        return False
    return all(value is None or _take_either(left, _as_text(key), value, text) for key, value in wanted) and not left


def _take_either(left, name, value, text):
    if text:
        return take(left, name, value)
    return name in left and same(left.pop(name), value)


def _as_text(key):
    """A key of an object in `_rescued`."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return base64.b64encode(key).decode()
    if isinstance(key, Fine):
        return str(key)
    if isinstance(key, Stamp):
        return moment(key).isoformat()
    if isinstance(key, float) and not math.isfinite(key):
        return str(key)
    return json.dumps(key)


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


def check_names(names):
    """Names of columns are safe, and none comes twice or is one of the table's own, also where capitals are not told from small letters."""
    alike = [folded(name) for name in names]
    assert len(set(alike)) == len(alike), names
    assert not set(alike) & RESERVED, names
    assert not any(re.search(r"[\x00-/:-@\[-^`{-\x7f\s]", name) or name.startswith("__a") for name in names), names
