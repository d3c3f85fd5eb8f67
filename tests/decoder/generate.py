"""Messages of every kind that a codec can carry, and bytes that are none. All choices follow from a `random.Random`."""

from __future__ import annotations

import json
import struct

import numpy as np

KEYS = [
    "a",
    "b",
    "a-b",
    "A",
    "B",
    "id",
    "t",
    "time",
    "Time",
    "time_",
    "time__",
    "bytes",
    "bytes_",
    "position",
    "stream",
    "decode_error",
    "payload",
    "value",
    "sender",
    "type",
    "body",
    "parts",
    "_metadata",
    "__filename",
    "x.y",
    "x_y",
    "ü",
    "é",
    "speed",
    "SPEED",
    "list",
    "n",
    "",
    "a b",
    "a\x00b",
    "'",
    '"',
    "`",
    "long" * 100,
    "1",
    "None",
    "True",
]
WHOLE = [0, 1, -1, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63), 10**18]
HUGE = [2**63, 2**63 + 1, 2**64 - 1, 2**64, -(2**63) - 1, 10**38 - 1, 10**38, -(10**40), 10**300]
FLOATS = [0.0, -0.0, 0.5, 1.0, 2.0**53, 2.0**63, 1e16, 1e300, 5e-324, -1.5, 0.1, 3.0]
NOT_FINITE = [float("nan"), float("inf"), float("-inf")]
TEXTS = ["", "a", "0.5", "true", "null", "é", "𝄞", "a\0b", "\n", "x" * 300, "2026-01-01T00:00:00Z", "[1]", '"']


class Literal(str):
    """JSON text to be written as it is."""


def value(rng, depth=0, *, wild=True):
    """A value that JSON carries; wild: also numbers that few columns hold."""
    kind = rng.randrange(13 if depth < 3 else 8)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind in (2, 3):
        return rng.choice(WHOLE) if rng.random() < 0.5 else rng.randrange(-100, 100)
    if kind == 4:
        return rng.choice(HUGE) if wild else rng.randrange(1000)
    if kind == 5:
        return rng.choice(FLOATS) if rng.random() < 0.5 else rng.random()
    if kind in (6, 7):
        return rng.choice(TEXTS)
    if kind in (8, 9):
        return [value(rng, depth + 1, wild=wild) for _ in range(rng.randrange(4))]
    if kind == 10:
        same = rng.choice([FLOATS, WHOLE, TEXTS, [True, False], HUGE])
        return [rng.choice([*same, None]) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): value(rng, depth + 1, wild=wild) for _ in range(rng.randrange(3))}


def steady(rng):
    """A way to make messages that are mostly alike, as a stream's are: the same keys, each with values of one or two kinds."""
    made = []
    for key in rng.sample(KEYS, rng.randrange(1, 6)):
        kinds = [
            WHOLE,
            HUGE[:5],
            FLOATS,
            TEXTS,
            [True, False],
            [None],
            [[1, 2], []],
            [[0.5], [1]],
            [["a"], []],
            [{"a": 1}],
        ]
        chosen = rng.sample(kinds, rng.choice([1, 1, 1, 2]))
        made.append((key, [item for kind in chosen for item in kind]))
    return lambda: {key: rng.choice(items) for key, items in made if rng.random() < 0.95}


def to_json(rng, item):
    """JSON text, not always written as one would; sometimes a key comes twice."""
    if isinstance(item, dict):
        pairs = [
            f"{json.dumps(key, ensure_ascii=rng.random() < 0.5)}:{to_json(rng, part)}" for key, part in item.items()
        ]
        if pairs and rng.random() < 0.03:
            pairs.append(rng.choice(pairs))
        return "{" + rng.choice([",", " ,\n"]).join(pairs) + "}"
    if isinstance(item, list):
        return "[" + ",".join(to_json(rng, part) for part in item) + "]"
    if isinstance(item, float) and rng.random() < 0.1:
        return f"{item:e}"
    return json.dumps(item, ensure_ascii=rng.random() < 0.5)


JUNK = [
    b"",
    b"{",
    b"NaN",
    b'{"a":NaN}',
    b'{"a":1e400}',
    b"\xff",
    b'"\\ud800"',
    b'{"a":1}x',
    b"[" * 20000 + b"]" * 20000,
    b'{"a":' + b"[" * 20000 + b"]" * 20000 + b"}",
    b"1" + b"0" * 5000,
    b'{"a":1,"a":2.5}',
    b'\xef\xbb\xbf{"a":1}',
    b"{'a':1}",
    b"\x00",
]


def mutated(rng, data):
    """Bytes that were a message: some replaced, cut, or doubled."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if found and rng.random() < 0.7:
            found[rng.randrange(len(found))] = rng.randrange(256)
        elif found:
            del found[rng.randrange(len(found)) :]
    return bytes(found)


def json_messages(rng, count):
    """Messages of a json channel, and some bytes that are none."""
    alike = steady(rng)
    found = []
    for _ in range(count):
        chance = rng.random()
        if chance < 0.7:
            found.append(to_json(rng, alike()).encode())
        elif chance < 0.85:
            top = {rng.choice(KEYS): value(rng) for _ in range(rng.randrange(5))} if rng.random() < 0.8 else value(rng)
            found.append(to_json(rng, top).encode())
        elif chance < 0.93:
            found.append(mutated(rng, to_json(rng, alike()).encode()))
        else:
            found.append(rng.choice(JUNK) if rng.random() < 0.5 else rng.randbytes(rng.randrange(20)))
    return found


# ---- MessagePack, written here: the library's encoder makes only what is sensible ----


class Map(list):
    """Pairs of any keys."""


class Ext(tuple):
    """(code, bytes)."""


class Single(float):
    """A float of 32 bits."""


def pack(item):
    """MessagePack bytes."""
    if isinstance(item, Map | dict):
        pairs = list(item.items()) if isinstance(item, dict) else item
        head = bytes([0x80 | len(pairs)]) if len(pairs) < 16 else b"\xde" + struct.pack(">H", len(pairs))
        return head + b"".join(pack(key) + pack(part) for key, part in pairs)
    if isinstance(item, Ext):
        code, raw = item
        fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
        head = bytes([fixed[len(raw)]]) if len(raw) in fixed else bytes([0xC7, len(raw)])
        return head + struct.pack(">b", code) + raw
    if isinstance(item, list):
        return (bytes([0x90 | len(item)]) if len(item) < 16 else b"\xdc" + struct.pack(">H", len(item))) + b"".join(
            map(pack, item)
        )
    if item is None or isinstance(item, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[item]
    if isinstance(item, Single):
        return b"\xca" + struct.pack(">f", item)
    if isinstance(item, float):
        return b"\xcb" + struct.pack(">d", item)
    if isinstance(item, int):
        if 0 <= item < 128:
            return bytes([item])
        return b"\xcf" + struct.pack(">Q", item) if item >= 0 else b"\xd3" + struct.pack(">q", item)
    raw = item.encode() if isinstance(item, str) else item
    head = 0xDA if isinstance(item, str) else 0xC5
    return bytes([head]) + struct.pack(">H", len(raw)) + raw


def stamp(rng):
    """A time as MessagePack has it, in one of its three forms; sometimes of nanoseconds, sometimes no time at all."""
    ns = rng.choice([0, 1000, 999_999_000, 123_456_789, 10**9])
    seconds = rng.choice([0, 1, 1_700_000_000, 2**32 - 1])
    form = rng.randrange(3)
    if form == 0:
        return Ext((-1, struct.pack(">I", seconds)))
    if form == 1:
        return Ext((-1, struct.pack(">Q", (ns << 34) | seconds)))
    return Ext((-1, struct.pack(">Iq", ns, rng.choice([seconds, -1, -62_135_596_800, 253_402_300_799, 2**60]))))


def packable(rng, depth=0):
    """A value that only MessagePack carries, or any other."""
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice([b"", b"\0\xff", b"bytes"])
    if kind == 1:
        return Ext((rng.randrange(-128, 128), rng.randbytes(rng.randrange(6))))
    if kind == 2:
        return stamp(rng)
    if kind == 3:
        return rng.choice([*NOT_FINITE, Single(0.1), Single("nan"), 2**64 - 1])
    if kind == 4 and depth < 3:
        return Map((key(rng), packable(rng, depth + 1)) for _ in range(rng.randrange(4)))
    if kind == 5 and depth < 3:
        return [packable(rng, depth + 1) for _ in range(rng.randrange(3))]
    return _of_64_bits(value(rng, depth, wild=False))


def _of_64_bits(item):
    if isinstance(item, list):
        return [_of_64_bits(part) for part in item]
    if isinstance(item, dict):
        return {name: _of_64_bits(part) for name, part in item.items()}
    return item if not isinstance(item, int) or -(2**63) <= item < 2**64 else 7


def key(rng):
    """A key of any type that MessagePack has."""
    return rng.choice(
        [
            rng.choice(KEYS),
            rng.choice(KEYS),
            rng.choice(KEYS),
            1,
            2,
            -5,
            2**63,
            b"k",
            b"\xff",
            b"",
            None,
            True,
            False,
            1.0,
            1.5,
            float("nan"),
            [1],
            Ext((5, b"a")),
            Map(),
            "1",
            stamp(rng),
        ]
    )


def msgpack_messages(rng, count):
    """Messages of a msgpack channel, and some bytes that are none."""
    alike = steady(rng)
    named = [
        (key(rng), rng.choice([WHOLE, FLOATS + NOT_FINITE, TEXTS, [b"a", b"\xff"]])) for _ in range(rng.randrange(1, 5))
    ]
    found = []
    for _ in range(count):
        chance = rng.random()
        if chance < 0.3:
            found.append(pack(_of_64_bits(alike())))
        elif chance < 0.6:
            found.append(pack(Map((name, rng.choice(items)) for name, items in named)))
        elif chance < 0.85:
            found.append(pack(Map((key(rng), packable(rng)) for _ in range(rng.randrange(5)))))
        elif chance < 0.9:
            found.append(pack(packable(rng)))
        elif chance < 0.97:
            found.append(mutated(rng, pack(Map((name, rng.choice(items)) for name, items in named))))
        else:
            found.append(rng.choice([b"\x91" * 20000 + b"\x01", b"\xdf\xff\xff\xff\xff", b"", rng.randbytes(9)]))
    return found


# ---- NumPy ----

PLAIN = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 g F D G S1 S8 S3 U1 U4 V1 V5".replace("F", "c8").replace("D", "c16").split()
UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25s", "7D"]


def plain_dtype(rng):
    """A dtype without fields, of either byte order."""
    kind = rng.randrange(5)
    if kind == 0:
        name = f"{rng.choice('Mm')}8[{rng.choice(UNITS)}]"
    elif kind == 1:
        name = rng.choice(["m8", "M8", "S8", "U4"])
    else:
        name = rng.choice(PLAIN)
    return np.dtype(name).newbyteorder(rng.choice("<>"))


def record_dtype(rng, depth=0):
    """A structured dtype: plain fields, arrays, records in records, arrays of those, names that no column may have."""
    names = rng.sample([name for name in KEYS if name and "\0" not in name and len(name) < 60], rng.randrange(1, 6))
    found = []
    for name in names:
        part = record_dtype(rng, depth + 1) if depth < 2 and rng.random() < 0.2 else plain_dtype(rng)
        shape = rng.choice([(), (), (), (2,), (2, 3), (0,), (1,)])
        found.append((name, part, shape) if shape else (name, part))
    return np.dtype(found)


def records(rng, dtype, count):
    """Bytes for a dtype: any bits at all, plausible values, and sometimes of another length."""
    found = []
    for _ in range(count):
        chance = rng.random()
        if chance < 0.1:
            found.append(rng.randbytes(rng.randrange(2 * dtype.itemsize + 2)))
        elif chance < 0.4:
            found.append(rng.randbytes(dtype.itemsize))
        elif chance < 0.5:
            found.append(bytes([rng.choice([0, 1, 255, 65, 128])]) * dtype.itemsize)
        else:  # texts with NULs inside, small numbers
            found.append(bytes(rng.choice([0, 0, 0, 65, 66, 1]) for _ in range(dtype.itemsize)))
    return found
