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
from penstock.durable import concerning, fsync_folder, open_private
from penstock.errors import Corrupt
from penstock.record import ledger

NAME = "cuts"
_FIELDS = struct.Struct("<qQ")
_CRC = struct.Struct("<I")
LENGTH = _FIELDS.size + _CRC.size


@dataclass(frozen=True)
class Cut:
    """Nothing at or behind `position` that was read before is in the recording any more. token: of this cut alone."""

    position: int
    token: int


def note(folder: Path, position: int) -> None:
    """Notes a cut, durably. Call it before bytes are cut off: a reader that forgets too much reads it again."""
    _append(folder / NAME, position)
    fsync_folder(folder)
    ledger.cut(folder, position)


def read(folder: Path) -> list[Cut]:
    """A recording's cuts, the oldest first. `Corrupt` if a checksum is wrong. A cut that is not written whole is left out."""
    path = folder / NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for at in range(0, len(raw) - LENGTH + 1, LENGTH):
        fields = raw[at : at + _FIELDS.size]
        if _CRC.pack(_native.crc32c(fields)) != raw[at + _FIELDS.size : at + LENGTH]:
            raise Corrupt(f"{path} is damaged at byte {at}: a checksum is wrong. Run repair, which writes it again")
        found.append(Cut(*_FIELDS.unpack(fields)))
    return found


def renew(folder: Path) -> None:
    """Writes a damaged file again: as one cut at the beginning, so that readers read the whole recording again."""
    fresh = folder / f"{NAME}.new"
    fresh.unlink(missing_ok=True)
    _append(fresh, 0)
    os.replace(fresh, folder / NAME)
    fsync_folder(folder)


def _append(path: Path, position: int) -> None:
    fields = _FIELDS.pack(position, secrets.randbits(63))
    with concerning(path):
        fd = open_private(path, os.O_RDWR)
        try:
            whole = os.fstat(fd).st_size // LENGTH * LENGTH  # a killed writer may have left a part of one
            os.ftruncate(fd, whole)
            os.pwrite(fd, fields + _CRC.pack(_native.crc32c(fields)), whole)
            os.fsync(fd)
        finally:
            os.close(fd)
