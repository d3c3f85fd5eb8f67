"""The file `last` of a recording: the newest message of each key from before the recording begins, of a log that keeps last values.

It is written once, before the recording's first segment. Layout: docs/design/recording.md. Knows no codec and no channel.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock._native import core as _native
from penstock.errors import Corrupt
from penstock.record.format.numbers import number_of, seal
from penstock.util.files.durable import write_atomically

NAME = "last"
_FIELD, _ROW, _CRC = struct.Struct("<HI"), struct.Struct("<qqiI"), struct.Struct("<I")


class LastValue(NamedTuple):
    """A message as it was sent. payload: the encoded bytes."""

    position: int
    time_ns: int
    session: int
    payload: bytes


@dataclass(frozen=True)
class LastValues:
    """field: of the messages, their key. values: in the order of their positions, all before the recording's first."""

    field: str
    values: Sequence[LastValue]


def write(folder: Path, found: LastValues) -> None:
    """Writes the file, durably."""
    name = found.field.encode()
    parts = [_FIELD.pack(len(name), len(found.values)), name]
    for one in found.values:
        parts += [_ROW.pack(one.position, one.time_ns, one.session, len(one.payload)), one.payload]
    content = b"".join(parts)
    write_atomically(folder / NAME, content + _CRC.pack(_sum(content, folder)), private=True)


def read(folder: Path) -> LastValues | None:
    """A recording's; None if its channel keeps none. `Corrupt` if a checksum is wrong."""
    path = folder / NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    content = raw[: -_CRC.size]
    if len(content) < _FIELD.size or _CRC.pack(_sum(content, folder)) != raw[-_CRC.size :]:
        raise Corrupt(
            f"{path} is damaged: a checksum is wrong, or it is another recording's. Run repair, which sets it aside"
        )
    length, count = _FIELD.unpack_from(content)
    at = _FIELD.size + length
    values = []
    for _ in range(count):
        position, time_ns, session, size = _ROW.unpack_from(content, at)
        at += _ROW.size + size
        values.append(LastValue(position, time_ns, session, content[at - size : at]))
    return LastValues(content[_FIELD.size : _FIELD.size + length].decode(), values)


def _sum(content: bytes, folder: Path) -> int:
    return _native.crc32c(seal(content, number_of(folder)))
