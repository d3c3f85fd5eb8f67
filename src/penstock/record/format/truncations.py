"""The file `cuts` of a recording: where repair or truncate cut it back, in 20 bytes each. It is only ever appended to.

A reader that remembers positions of a recording, as the pipeline does, forgets those from a new cut on. Layout: docs/design/recording.md.
"""

from __future__ import annotations

import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

from penstock._native import core as _native
from penstock.errors import Corrupt
from penstock.record.format.numbers import number_of, seal
from penstock.util.files.durable import fsync_folder, naming_path, open_private

NAME = "cuts"
_FIELDS = struct.Struct("<qQ")
_CRC = struct.Struct("<I")
LENGTH = _FIELDS.size + _CRC.size


@dataclass(frozen=True)
class Truncation:
    """The recording no longer has anything that was read at or after `position`. token: unique to this cut."""

    position: int
    token: int


def note(folder: Path, position: int) -> None:
    """Notes a cut, durably. Call it before bytes are cut off: a reader that forgets too much reads it again."""
    _append(folder, position)
    fsync_folder(folder)


def read(folder: Path) -> list[Truncation]:
    """A recording's cuts, the oldest first. `Corrupt` if a checksum is wrong. An incomplete last cut is left out."""
    path = folder / NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for at in range(0, len(raw) - LENGTH + 1, LENGTH):
        fields = raw[at : at + _FIELDS.size]
        if _crc(fields, folder) != raw[at + _FIELDS.size : at + LENGTH]:
            raise Corrupt(
                f"{path} is damaged at byte {at}: a checksum is wrong, or it is another recording's. "
                "Run repair, which writes it again"
            )
        found.append(Truncation(*_FIELDS.unpack(fields)))
    return found


def known(folder: Path) -> tuple[list[Truncation], str]:
    """The cuts as far as they can be read, and the damage. In place of a damaged one there is a cut at the beginning: a reader that
    forgets too much reads it again."""
    try:
        return read(folder), ""
    except Corrupt as error:
        raw = (folder / NAME).read_bytes()
        pieces = [raw[at : at + LENGTH] for at in range(0, len(raw) - LENGTH + 1, LENGTH)]
        return [
            Truncation(*_FIELDS.unpack(piece[: _FIELDS.size])) for piece in (_intact(one, folder) for one in pieces)
        ], str(error)


def _crc(fields: bytes, folder: Path) -> bytes:
    return _CRC.pack(_native.crc32c(seal(fields, number_of(folder))))


def _intact(raw: bytes, folder: Path) -> bytes:
    """A cut's bytes, or in place of damaged ones those of a cut at the beginning, always the same."""
    if _crc(raw[: _FIELDS.size], folder) == raw[_FIELDS.size :]:
        return raw
    fields = _FIELDS.pack(0, _native.crc32c(raw))
    return fields + _crc(fields, folder)


def renew(folder: Path) -> None:
    """Writes a damaged file again, as `known` gives it."""
    raw = (folder / NAME).read_bytes()
    fresh = folder / f"{NAME}.new"
    with naming_path(fresh):
        fd = open_private(fresh, os.O_WRONLY | os.O_TRUNC)
        try:
            for at in range(0, len(raw) - LENGTH + 1, LENGTH):
                os.write(fd, _intact(raw[at : at + LENGTH], folder))
            os.fsync(fd)
        finally:
            os.close(fd)
    os.replace(fresh, folder / NAME)
    fsync_folder(folder)


def _append(folder: Path, position: int) -> None:
    path, fields = folder / NAME, _FIELDS.pack(position, secrets.randbits(63))
    with naming_path(path):
        fd = open_private(path, os.O_RDWR)
        try:
            whole = os.fstat(fd).st_size // LENGTH * LENGTH  # a killed writer may have left a part of one
            os.ftruncate(fd, whole)
            os.pwrite(fd, fields + _crc(fields, folder), whole)
            os.fsync(fd)
        finally:
            os.close(fd)
