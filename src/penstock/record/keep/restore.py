"""Restores the files that repairs of earlier versions moved into a recording's folder `damaged`: whole segments, and ends of segments.

Only where the recording has nothing else at their positions. Knows one recording's folder.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from penstock._native import core as _native
from penstock.record.format import segment_totals
from penstock.record.format.folder import SEAL, RecordingFolder, Segment
from penstock.record.keep import segment_repair
from penstock.util.files.durable import fsync_folder, naming_path

PIECE = re.compile(r"(?P<stem>\d{20})\.(?P<kind>idx|seg)(\.from-(?P<at>\d+))?(\.\d+)?", re.ASCII)


def bring_back(folder: RecordingFolder, start: int) -> list[tuple[Path, str]]:
    """Brings segments and ends of segments back that a repair of an earlier version moved into `damaged`, where the recording has
    nothing else at their positions."""
    aside = folder.path / "damaged"
    try:
        names = sorted(os.listdir(aside))
    except (FileNotFoundError, NotADirectoryError):
        return []
    pieces = [(found, aside / name) for name in names if (found := PIECE.fullmatch(name))]
    done = []
    for found, path in pieces:
        if found["kind"] == "idx" and found["at"] and (joined := _join_end(folder, found, path, pieces)):
            done.append((joined, "brought back from damaged: the end of this segment"))
    for found, path in pieces:
        data = path.with_name(f"{found['stem']}.seg")
        if found["kind"] == "idx" and path.name == f"{found['stem']}.idx" and data.is_file():
            target = folder.segment_paths(int(found["stem"]))
            if target.base >= start and _is_free(folder, target, path):
                os.rename(data, target.data)
                os.rename(path, target.index)  # last: a segment exists once its index does
                fsync_folder(aside)
                fsync_folder(folder.path)
                done.append((target.index, "brought back from damaged"))
    return done


def _spans(folder: RecordingFolder) -> list[tuple[int, int]]:
    """Where the recording's segments begin and end, gaps at their ends apart."""
    found = []
    for segment in folder.segments():
        _, about = folder.index(segment)
        if not about["other"]:
            found.append((segment.base, segment.base + int(about["data_length"])))
    return found


def _is_free(folder: RecordingFolder, target: Segment, index: Path) -> bool:
    """Whether an index's segment is of this recording, and at positions at which it has nothing."""
    if os.path.lexists(target.index) or os.path.lexists(target.data):
        return False
    about = _native.read_index(str(index), recording=folder.number)
    end = target.base + int(about["data_length"])
    return end > target.base and all(end <= low or high <= target.base for low, high in _spans(folder))


def _join_end(folder: RecordingFolder, found: re.Match[str], path: Path, pieces: list[Any]) -> Path | None:
    """Restores the end of a segment, data first. None if it does not fit."""
    target = folder.segment_paths(int(found["stem"]))
    if not (target.index.is_file() and target.data.is_file()):
        return None
    entries, about = folder.index(target)
    entries, length = entries[entries["kind"] != SEAL], int(about["data_length"])
    data = [
        p for other, p in pieces if (other["stem"], other["kind"], other["at"]) == (found["stem"], "seg", str(length))
    ]
    if (
        about["problems"]
        or int(found["at"]) != segment_repair.index_length(len(entries))
        or len(data) != 1
        or not data[0].is_file()
    ):
        return None
    raw = target.index.read_bytes()[: segment_repair.index_length(len(entries))] + path.read_bytes()
    joined = path.with_name(target.index.name + ".joined")
    segment_repair.write_durably(joined, raw)
    try:
        about = _native.read_index(str(joined), recording=folder.number)
        end = target.base + int(about["data_length"])
        if end <= target.base + length or any(low < end and target.base < low for low, _ in _spans(folder)):
            return None
        with naming_path(target.data), open(target.data, "r+b") as file, open(data[0], "rb") as piece:
            file.seek(length)
            shutil.copyfileobj(piece, file)
            file.flush()
            os.fsync(file.fileno())
        segment_totals.truncate(folder.path, target.base)
        os.rename(joined, target.index)
        fsync_folder(folder.path)
    finally:
        joined.unlink(missing_ok=True)
    for gone in (path, data[0]):
        gone.unlink()
    return target.index


def forget_pieces(folder: RecordingFolder, end: int) -> None:
    """Deletes the files in `damaged` from after a position, so that a truncation does not restore them."""
    aside = folder.path / "damaged"
    for path in aside.iterdir() if aside.is_dir() else ():
        found = PIECE.fullmatch(path.name)
        if found and path.is_file() and (found["at"] or int(found["stem"]) >= end):
            path.unlink()
