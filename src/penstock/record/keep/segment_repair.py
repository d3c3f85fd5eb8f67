"""Repairs one segment: computes the entries of its index, and replaces the index.

A damaged block is a hole: its bytes stay where they are. Knows one segment's files.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock._native import core as _native
from penstock.record.format.folder import BLOCK, ENTRY, HOLE, SEAL, Description, RecordingFolder, Segment
from penstock.util.clock import SystemClock
from penstock.util.files.durable import free_name, fsync_folder, naming_path, open_private

MAGIC, VERSION = int.from_bytes(b"PNSTIDX1", "little"), 1
_HEADER = struct.Struct("<QIIqiiQQ12x")  # of an index: docs/design/recording.md


@dataclass
class SegmentRepair:
    """A segment, its entries without the seal, and why its index is written again. before: messages in earlier segments."""

    segment: Segment
    entries: np.ndarray[Any, Any]
    before: int
    sealed: bool
    why: list[str]

    @property
    def length(self) -> int:
        """Bytes of its data that the entries cover."""
        return length_of(self.entries)

    def miss(self, kind: int, missing: int) -> None:
        """A gap or a hole at its end."""
        entry = np.zeros(1, ENTRY)
        entry["position"], entry["time_min"], entry["kind"] = self.segment.base + self.length, missing, kind
        entry["recorded_ns"] = SystemClock().now_ns()
        entry["messages_before"] = self.before + int(self.entries["begins"].sum())
        self.entries = np.concatenate([self.entries, entry])


def as_holes(entries: np.ndarray[Any, Any], bad: list[int]) -> np.ndarray[Any, Any]:
    """Index entries without the seal, and with holes in place of some blocks. A hole has the block's length; its bytes are not trusted."""
    made = entries.copy()
    made["spare"] = 0
    for number in bad:
        made["time_min"][number] = made["length"][number]
        for name in ("length", "block_crc", "time_max", "payload"):
            made[name][number] = 0
        made["kind"][number] = HOLE
    without_seal: np.ndarray[Any, Any] = made[made["kind"] != SEAL]
    return without_seal


def write_index(folder: RecordingFolder, about: Description, one: SegmentRepair) -> None:
    """Replaces a segment's index, sealed and durable. The old one is kept in `damaged`."""
    seal = np.zeros(1, ENTRY)
    seal["position"], seal["kind"], seal["recorded_ns"] = one.segment.base + one.length, SEAL, SystemClock().now_ns()
    seal["messages_before"] = one.before + int(one.entries["begins"].sum())
    raw = bytearray(np.concatenate([one.entries, seal]).tobytes())
    size = ENTRY.itemsize
    for at in range(0, len(raw), size):
        raw[at + size - 4 : at + size] = _native.crc32c(bytes(raw[at : at + size - 4])).to_bytes(4, "little")
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        about.term_length,
        one.segment.base,
        about.initial_term_id,
        about.stream_id,
        one.before,
        about.id,
    )
    if not one.segment.data.exists():  # of a gap that the recording begins with
        os.close(open_private(one.segment.data, os.O_RDWR))
    fresh = one.segment.unnamed_index
    write_durably(fresh, header + _native.crc32c(header).to_bytes(4, "little") + bytes(raw))
    if one.segment.index.exists():
        aside = folder.aside()
        write_durably(aside / free_name(aside, one.segment.index.name), one.segment.index.read_bytes())
        fsync_folder(aside)
    os.replace(fresh, one.segment.index)
    fsync_folder(folder.path)


def write_durably(path: Path, raw: bytes) -> None:
    try:
        with naming_path(path), open(path, "wb", opener=open_private) as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)  # a full disk: nothing was replaced, and nothing half done is left
        raise


def index_length(entries: int) -> int:
    """Bytes of an index with `entries` entries."""
    return _native.INDEX_HEADER_LENGTH + entries * ENTRY.itemsize


def length_of(entries: np.ndarray[Any, Any]) -> int:
    """Bytes of data that these entries cover."""
    holes = entries["time_min"][entries["kind"] == HOLE]
    return int(entries["length"][entries["kind"] == BLOCK].sum()) + int(holes.sum())
