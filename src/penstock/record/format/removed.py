"""The file `removed` of an archive: which positions purge, truncate and repair took away, a line of JSON each.

A reader that follows the archive compares it with what it has read, and so knows which messages it missed. A line is written before bytes are removed: a
reader ignores positions that recordings still have.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from penstock._native import core as _native
from penstock.errors import Corrupt
from penstock.record.format import intervals
from penstock.record.format.intervals import Interval
from penstock.util.files.durable import fsync_folder, naming_path, open_private, write_atomically

NAME = "removed"
LONG = 1 << 20  # bytes from which on the file is written again, with one line for each stream, at each power of two
Stream = tuple[str, int]
Positions = dict[Stream, list[Interval]]


def note(archive: Path, channel: str, epoch: int, parts: list[Interval]) -> None:
    """Notes that positions of a stream are removed. Durable before this returns."""
    if not parts:
        return
    path = archive / NAME
    with naming_path(path):
        fd = _open_locked(path)
        try:
            size, line = os.fstat(fd).st_size, _line(channel, epoch, parts)
            # At each power of two: with more streams than fit, it stays long, and a rewrite for each line costs all of them each time.
            if size + len(line) >= LONG and (size + len(line)).bit_length() > size.bit_length():
                _write_again(path, read(archive))
                os.close(fd)
                fd = _open_locked(path)
                size = os.fstat(fd).st_size
            end = _sound_end(os.pread(fd, size, 0)) if size and os.pread(fd, 1, size - 1) != b"\n" else size
            os.ftruncate(fd, end)  # removes a line that a killed writer did not finish
            behind = end > 0 and os.pread(fd, 1, end - 1) != b"\n"
            os.pwrite(fd, b"\n" * behind + line, end)
            os.fsync(fd)
        finally:
            os.close(fd)
    fsync_folder(archive)


def read(archive: Path) -> Positions:
    """Everything that was removed, by stream. `Corrupt` if a checksum is wrong. An incomplete last line is left out."""
    path = archive / NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    found: dict[Stream, list[Interval]] = {}
    at, end = 0, _sound_end(raw)
    for line in raw[:end].splitlines(keepends=True):
        row = _row(line)
        if row is None:
            raise Corrupt(
                f"{path} is damaged at byte {at}: a checksum is wrong. Run repair, which keeps its other lines: readers that "
                "follow the archive do not learn of this line's positions"
            )
        found.setdefault((row["channel"], row["epoch"]), []).extend((low, high) for low, high in row["parts"])
        at += len(line)
    return {stream: intervals.union(parts) for stream, parts in found.items()}


def _row(line: bytes) -> dict[str, Any] | None:
    """A line's content; None if it is damaged."""
    try:
        row: dict[str, Any] = json.loads(line)
        return row if row.pop("crc32c") == _sum(row) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _sound_end(raw: bytes) -> int:
    """The file's length without an incomplete last line, which has no complete value. Damage to a whole line is no such
    thing."""
    at = raw.rfind(b"\n") + 1
    try:
        json.JSONDecoder().raw_decode(raw[at:].decode())
    except ValueError:
        return at
    return len(raw)


def signature(archive: Path) -> tuple[int, int, int]:
    """Changes whenever the file does."""
    try:
        found = os.stat(archive / NAME)
    except FileNotFoundError:
        return (0, 0, 0)
    return found.st_ino, found.st_size, found.st_mtime_ns


def renew(archive: Path) -> None:
    """Rewrites a damaged file with its sound lines."""
    path = archive / NAME
    kept = [line.decode() for line in path.read_bytes().split(b"\n") if line and _row(line) is not None]
    write_atomically(path, "".join(f"{line}\n" for line in kept), private=True)


def _open_locked(path: Path) -> int:
    """A descriptor of the file, with the kernel's lock on it."""
    while True:
        fd = open_private(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(os.stat(path), os.fstat(fd)):
            return fd
        os.close(fd)  # it was written again in the meantime


def _write_again(path: Path, found: Positions) -> None:
    lines = [_line(channel, epoch, parts).decode() for (channel, epoch), parts in sorted(found.items())]
    write_atomically(path, "".join(lines), private=True)


def _line(channel: str, epoch: int, parts: list[Interval]) -> bytes:
    row: dict[str, Any] = {"channel": channel, "epoch": epoch, "parts": [list(part) for part in parts]}
    return (json.dumps({**row, "crc32c": _sum(row)}) + "\n").encode()


def _sum(row: dict[str, Any]) -> int:
    return _native.crc32c(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
