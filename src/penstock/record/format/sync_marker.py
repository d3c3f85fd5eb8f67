"""The file `synced` of a recording: the durable position, and how the recording ended. 16 bytes, written in place.

Only the recorder knows this. Everything else about a recording follows from its segments. Layout: docs/design/recording.md.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from penstock._native import core as _native
from penstock.errors import Corrupt
from penstock.record.format.numbers import seal

NAME = "synced"
CLOSED, LISTED, APPENDED, LOST, PARTIAL = 1, 2, 4, 8, 16
_FIELDS = struct.Struct("<qI")
_CRC = struct.Struct("<I")
LENGTH = _FIELDS.size + _CRC.size


@dataclass(frozen=True)
class SyncMarker:
    """position: everything below it is durable. closed: the recorder sealed the recording. listed: the catalog has the recording's row.
    appended: programs append to it, so that it has a file `batches`. lost: its session on the network fell silent before it closed.
    partial: it is a copy, and there was more to copy."""

    position: int
    closed: bool = False
    listed: bool = False
    appended: bool = False
    lost: bool = False
    partial: bool = False

    def encode(self, recording: int) -> bytes:
        """The mark's 16 bytes, for this recording."""
        flags = (
            CLOSED * self.closed
            | LISTED * self.listed
            | APPENDED * self.appended
            | LOST * self.lost
            | PARTIAL * self.partial
        )
        fields = _FIELDS.pack(self.position, flags)
        return fields + _CRC.pack(_native.crc32c(seal(fields, recording)))


def write(fd: int, mark: SyncMarker, recording: int) -> None:
    """Writes a recording's mark in one call. Call it only once everything below its position is durable."""
    os.pwrite(fd, mark.encode(recording), 0)


def read(folder: Path, recording: int) -> SyncMarker | None:
    """A recording's mark, or None if it has none. `Corrupt` if its checksum is wrong, or it is another recording's."""
    path = f"{folder}/{NAME}"
    for _ in range(3):  # a read beside a write may see some of each
        try:
            with open(path, "rb", buffering=0) as file:
                raw = file.read(LENGTH + 1)
        except FileNotFoundError:
            return None
        if (found := _decoded(raw, recording)) is not None:
            return found
    raise _wrong(path)


def is_lost(folder: Path, recording: int) -> bool:
    """Whether the recording's session was lost. False if the mark cannot be read: verify reports that."""
    return sure(folder, recording).lost


def sure(folder: Path, recording: int) -> SyncMarker:
    """A recording's mark; one that says nothing if it has none, or if that cannot be read: verify reports that."""
    with contextlib.suppress(Corrupt):
        return read(folder, recording) or SyncMarker(0)
    return SyncMarker(0)


def ended(mark: SyncMarker, sealed: bool) -> str:
    """The state of a recording that no recorder writes, by its mark. sealed: its last segment is. One that programs append to has none
    as long as they appended nothing."""
    if mark.partial:
        return "partial"
    return "crashed" if not sealed and not (mark.closed and mark.appended) else "lost" if mark.lost else "closed"


def decode(raw: bytes, path: object, recording: int) -> SyncMarker:
    """A recording's mark in these bytes. `Corrupt` if their checksum is wrong. path: for the error."""
    found = _decoded(raw, recording)
    if found is None:
        raise _wrong(path)
    return found


def _decoded(raw: bytes, recording: int) -> SyncMarker | None:
    if len(raw) != LENGTH or _CRC.pack(_native.crc32c(seal(raw[: _FIELDS.size], recording))) != raw[_FIELDS.size :]:
        return None
    position, flags = _FIELDS.unpack_from(raw)
    if flags > CLOSED | LISTED | APPENDED | LOST | PARTIAL:
        return None
    return SyncMarker(position, *(bool(flags & flag) for flag in (CLOSED, LISTED, APPENDED, LOST, PARTIAL)))


def _wrong(path: object) -> Corrupt:
    return Corrupt(
        f"{path} is damaged: its checksum is wrong, or it is another recording's. Run repair, which writes it again"
    )
