"""MessagePack byte by byte: where its objects are, and its time stamps, of which a datetime holds only those of the years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

STAMP = 0xFF  # the code of time stamps
SECONDS = range(-62_135_596_800, 253_402_300_800)  # of the years 1 to 9999, since 1970
FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
FIXED |= {
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
    0xDC: 2,
    0xDD: 4,
}  # extension types with their codes; lengths of arrays
# First byte → how many bytes the length has, and how many there are besides those that it counts.
SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
SIZED |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}


def headers(item: bytes) -> Iterator[tuple[int, int]]:
    """Each object of a MessagePack message that was decoded: (where its first byte is, that byte)."""
    at = 0
    while at < len(item):
        first = item[at]
        yield at, first
        at += 1
        if 0xA0 <= first < 0xC0:
            at += first & 31
        elif first in (0xDE, 0xDF):
            at += 2 if first == 0xDE else 4
        elif first in SIZED:
            width, more = SIZED[first]
            at += width + more + int.from_bytes(item[at : at + width], "big")
        else:
            at += FIXED.get(first, 0)


def extensions(item: bytes) -> Iterator[tuple[int, bytes]]:
    """(where its code is, its data) of each extension."""
    for at, first in headers(item):
        if 0xD4 <= first <= 0xD8:
            yield at + 1, item[at + 2 : at + 1 + FIXED[first]]
        elif first in (0xC7, 0xC8, 0xC9):
            code = at + 1 + SIZED[first][0]
            yield code, item[code + 1 : code + 1 + int.from_bytes(item[at + 1 : code], "big")]


def of_stamp(data: bytes) -> tuple[int, int]:
    """(seconds since 1970, nanoseconds) of a time stamp with both."""
    if len(data) == 8:
        number = int.from_bytes(data, "big")
        return number & ((1 << 34) - 1), number >> 34
    return int.from_bytes(data[4:], "big", signed=True), int.from_bytes(data[:4], "big")


def decode(message: bytes) -> Any:
    """A message as msgspec decodes it, with the time stamps that no datetime holds as `msgspec.msgpack.Ext`."""
    try:
        return msgspec.msgpack.decode(message)
    except ValueError as error:  # msgspec's too
        item = bytes(message)
        found = [(code, data) for code, data in extensions(item) if item[code] == STAMP]
        far = [code for code, data in found if len(data) in (8, 12) and not _is_near(data)]
        if not far:
            raise
        try:
            return decode_spared(item, far, lambda data: msgspec.msgpack.Ext(-1, data))
        except ValueError:  # something else is wrong with it
            raise error from None


def _is_near(data: bytes) -> bool:
    seconds, nanoseconds = of_stamp(data)
    return seconds in SECONDS and nanoseconds < 10**9


def decode_spared(item: bytes, codes: Iterable[int], hook: Callable[[bytes], Any]) -> Any:
    """Decodes a message whose extensions at `codes` go to `hook`, and not to the decoder."""
    free = next(one for one in range(1, 128) if all(item[code] != one for code, _ in extensions(item)))
    spared = bytearray(item)
    for code in codes:
        spared[code] = free
    return msgspec.msgpack.decode(spared, ext_hook=partial(_spared, free, hook))


def _spared(free: int, hook: Callable[[bytes], Any], code: int, data: memoryview) -> Any:
    return hook(bytes(data)) if code == free else msgspec.msgpack.Ext(code, bytes(data))
