"""Messages with odd values, and what a row must have of one: decoded by json, msgspec and numpy, without penstock."""

import base64
import json
from decimal import Decimal

import msgspec
import numpy as np

KEYS = ["i", "v", "t", "k", "s", "l", "Time", "time", "a b", "A", "a"]
SCHEMA = {"k": "bigint", "s": "string", "A": "double", "later": "boolean"}  # of keys that no dtype has
DTYPES = [
    np.dtype([("i", "<i4"), ("v", "<f8")]),
    np.dtype([("i", "<f8"), ("u", "<u8"), ("a", "<f4")]),
    np.dtype([("t", "<i2"), ("b", "?")]),
]
ODD = [
    None,
    True,
    0,
    7,
    -3,
    2**53 + 1,
    2**63,
    10**30,
    0.5,
    3.0,
    -1e300,
    "",
    "x",
    "n/a",
    "QQ==",
    "12",
    [1, 2],
    [0.5, None],
]
ODD += [[], ["a", 1], {"a": 1}, {"a": 1, "b": "x"}, {"a": {"c": [1.5]}}, {"x.y": 1}]
JUNK = {
    "json": [
        b"",
        b"{",
        b'{"i":1,"i":2}',
        b"\xff",
        b'{"i":NaN}',
        b'{"v":1e400}',
        b'{"v":0.12345678901234567890123}',
        b"5",
    ],
    "msgpack": [b"", b"\xc1", b"\x82\xa1i\x01", b"\x82\xa1i\x01\xa1i\x02", b"\x05", b"\x81\xa1v\xc4\x02\xff\x00"],
}


def make(rng, codec, number):
    """A payload. codec: json, msgpack or a dtype."""
    if isinstance(codec, np.dtype):
        record = np.zeros(1, codec)
        for name in codec.names:
            record[name] = rng.choice([number, 0, 0.5, 1]) if codec[name].kind != "b" else number % 2
        data = record.tobytes()
        return data[:-1] if rng.random() < 0.05 else data
    if rng.random() < 0.06:
        return rng.choice(JUNK[codec])
    message = {"i": number, "v": number / 2, "t": f"m{number}"}
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        message[rng.choice(KEYS)] = rng.choice(ODD)
    if codec == "msgpack":
        message = {key: 5 if type(value) is int and abs(value) >= 2**63 else value for key, value in message.items()}
        if rng.random() < 0.1:
            message["raw"] = b"\x00\xff"
    return json.dumps(message).encode() if codec == "json" else msgspec.msgpack.encode(message)


# ---- the oracle ----


class Twice(Exception):
    pass


def unique(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise Twice
    return dict(pairs)


def exact(value):
    """Numbers as decimals, digit for digit."""
    if isinstance(value, dict):
        return {key: exact(one) for key, one in value.items()}
    if isinstance(value, list):
        return [exact(one) for one in value]
    return Decimal(repr(value)) if type(value) in (int, float) else value


def decoded(codec, payload):
    """(whether it is a message, its values by label)."""
    try:
        if isinstance(codec, np.dtype):
            if len(payload) != codec.itemsize:
                return False, {}
            record = np.frombuffer(payload, codec)[0]
            return True, {f"s:{name}": exact(record[name].item()) for name in codec.names}
        if codec == "json":
            message = json.loads(
                payload.decode(),
                parse_float=Decimal,
                parse_int=Decimal,
                parse_constant=lambda _: 1 / 0,
                object_pairs_hook=unique,
            )
        else:
            message = exact(msgspec.msgpack.decode(payload))
            if isinstance(message, dict) and payload[0] & 15 != len(message):
                return False, {}
    except (Twice, ValueError, ZeroDivisionError, msgspec.DecodeError):
        return False, {}
    return True, {f"s:{key}": value for key, value in message.items()} if isinstance(message, dict) else {
        "bare": message
    }


def same(found, wanted):
    if isinstance(wanted, Decimal):
        if isinstance(found, bool) or not isinstance(found, int | float | Decimal):
            return False
        digits = len(wanted.normalize().as_tuple().digits)
        given = Decimal(found)
        return given == wanted or (
            digits <= 17 and isinstance(found, float) and Decimal(f"{found:.{digits - 1}e}") == wanted
        )
    if isinstance(wanted, bytes):
        return found == wanted or found == base64.b64encode(wanted).decode()
    if isinstance(found, Decimal) and isinstance(wanted, str):
        return found == Decimal(wanted)
    if isinstance(found, bytes) and isinstance(wanted, str):
        return base64.b64encode(found).decode() == wanted
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict):
        found = dict(found) if isinstance(found, list) else found
        if not isinstance(found, dict):
            return False
        found, wanted = ({key: one for key, one in each.items() if one is not None} for each in (found, wanted))
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    return type(found) is type(wanted) and found == wanted


def take(value, cell, rescued, path):
    """The value is in the cell, but for parts that were rescued; these are taken out of `rescued`."""
    if path in rescued:
        assert same(rescued.pop(path), value), (path, value)
        assert cell is None, (path, value, cell)
    elif value is None:
        assert cell is None, (path, value, cell)
    elif isinstance(value, dict) and isinstance(cell, dict):
        for key, part in value.items():
            if key in cell:
                take(part, cell[key], rescued, f"{path}.{key}")
            elif part is not None:
                assert same(rescued.pop(f"{path}.{key}"), part), (path, value)
        assert all(one is None for key, one in cell.items() if key not in value), (path, value, cell)
    else:
        assert same(cell, value), (path, value, cell)


def check_row(codec, payload, row, labels, *, is_edited):
    """A row of a stream's table has what its message has. labels: of the table's columns."""
    good, wanted = decoded(codec, payload)
    cells = {label: row[name] for name, label in labels.items()}
    if not is_edited:
        assert (row["decode_error"] is None) == good, (payload, row)
    if not good:
        assert set(map(repr, cells.values())) <= {"None"}, (payload, row)
        assert row["_rescued"] is None
        return
    left = json.loads(row["_rescued"], parse_float=Decimal, parse_int=Decimal) if row["_rescued"] else {}
    for label, value in wanted.items():
        path = "value" if label == "bare" else label[2:]
        if label in cells:
            take(value, cells[label], left, path)
        elif value is not None:
            assert same(left.pop(path), value), (payload, row)
    assert not left, (payload, row)
    assert all(cell is None for label, cell in cells.items() if label not in wanted), (payload, row)
