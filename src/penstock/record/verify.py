"""Verify and repair: what of an archive is still what was written, and how to get back to that.

Knows the files of recordings. Never deletes a recorded byte: what is cut off goes to the recording's folder `damaged`.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock._native import core as _native
from penstock.errors import Busy, Corrupt, NotFound
from penstock.record.folder import BLOCK, DESCRIPTION, GAP, RecordingFolder, Segment, extent, fsync_folder

if TYPE_CHECKING:
    from penstock.record.archive import Archive

INDEX_HEADER, INDEX_ENTRY = 64, 64


@dataclass(frozen=True)
class Damage:
    """Bytes that are not what was written: `length` bytes from `offset` of `path`; `what` says how it shows."""

    path: Path
    offset: int
    length: int
    what: str


@dataclass(frozen=True)
class Repair:
    """One thing that repair did."""

    path: Path
    what: str


def verify(archive: Archive, recording: int | None) -> list[Damage]:
    """See `Archive.verify`."""
    found: list[Damage] = []
    folders = [f for f in archive.folders() if recording in (None, int(f.path.name))]
    for folder in folders:
        found += verify_folder(folder)
    if recording is None:
        found += _verify_catalog(archive, folders)
    return found


def verify_folder(folder: RecordingFolder) -> list[Damage]:
    """What is wrong with one recording."""
    found: list[Damage] = []
    start = None
    try:
        about = folder.describe()
        start = about.start_position
        if f"{about.id:08d}" != folder.path.name:
            found.append(Damage(folder.path / DESCRIPTION, 0, 0, f"it describes recording {about.id}"))
    except (Corrupt, NotFound) as error:
        found.append(Damage(folder.path / DESCRIPTION, 0, _size(folder.path / DESCRIPTION), str(error)))
    segments = folder.segments()
    found += [
        Damage(path, 0, 0, "a segment without an index") for path in folder.data_without_index() if _size(path) != 0
    ]
    for number, segment in enumerate(segments):
        if not segment.data.exists():
            found.append(Damage(segment.data, 0, 0, "the segment is missing"))
            continue
        problems, _ = _native.verify_segment(str(segment.data), str(segment.index))
        found += [Damage(Path(path), offset, length, what) for path, offset, length, what in problems]
        entries, about_index = folder.index(segment)
        if not problems and about_index["base"] != segment.base:
            found.append(
                Damage(segment.index, 16, 8, f"its base is {about_index['base']}, its name says {segment.base}")
            )
        if start is not None and segment.base != start:
            found.append(
                Damage(
                    segment.index,
                    0,
                    0,
                    f"the recording goes on at position {start}, this segment begins at {segment.base}",
                )
            )
        gaps = entries[entries["kind"] == GAP]
        start = segment.base + about_index["data_length"] + int(gaps["time_min"].sum())
        if number + 1 < len(segments) and not about_index["sealed"] and not problems:
            found.append(
                Damage(segment.index, _size(segment.index), 0, "the segment is not sealed but another follows")
            )
    return found


def _verify_catalog(archive: Archive, folders: list[RecordingFolder]) -> list[Damage]:
    path = archive.catalog.path
    problem = archive.catalog.check()
    if problem is not None:
        return [Damage(path, 0, _size(path), problem)]
    rows = archive.catalog.rows()
    found = []
    for folder in folders:
        try:
            about = folder.describe()
        except (Corrupt, NotFound):
            continue
        row = rows.pop(about.id, None)
        if row is None:
            found.append(Damage(path, 0, 0, f"recording {about.id} is not in the catalog"))
            continue
        if row[:4] != (about.channel, about.epoch, about.created_ns, about.start_position):
            found.append(Damage(path, 0, 0, f"the catalog's row of recording {about.id} differs from its folder"))
        holds = extent(folder, about.start_position)
        if not about.start_position <= row[4] <= holds.end_position and not holds.damaged:
            found.append(
                Damage(path, 0, 0, f"recording {about.id} was synced up to {row[4]} but ends at {holds.end_position}")
            )
    # A number without a folder is what a recorder leaves that dies as it begins; one that had synced is a loss.
    found += [
        Damage(path, 0, 0, f"recording {number} is in the catalog and has no folder")
        for number, row in rows.items()
        if row[4] > row[3]
    ]
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def repair(archive: Archive, recording: int | None) -> list[Repair]:
    """See `Archive.repair`."""
    done: list[Repair] = []
    folders = [f for f in archive.folders() if recording in (None, int(f.path.name))]
    for folder in folders:
        try:
            lock = folder.lock()
        except Busy:
            continue  # it is being written: its recorder is responsible for it
        except FileNotFoundError:
            lock = -1
        try:
            done += repair_folder(archive, folder)
        finally:
            folder.unlock(lock)
    if recording is None:
        unborn = RecordingFolder.sweep_unborn(archive.path / "recordings")
        done += [Repair(path, "removed: its recorder died before the recording began") for path in unborn]
        done += _rebuild_catalog(archive)
    return done


def repair_folder(archive: Archive, folder: RecordingFolder) -> list[Repair]:
    """Cuts one recording back to its longest valid prefix."""
    try:
        start = folder.describe().start_position
    except (Corrupt, NotFound) as error:
        kept = archive.path / "damaged" / folder.path.name
        kept.parent.mkdir(exist_ok=True)
        shutil.move(folder.path, kept)
        return [Repair(kept, f"moved here whole: {error}")]
    done: list[Repair] = []
    folder.sweep()
    broken = False
    segments = folder.segments()
    for number, segment in enumerate(segments):
        if broken or segment.base != start or not segment.data.exists():
            broken = True
            done += [
                _set_aside(folder, path, "it follows damage") for path in (segment.data, segment.index) if path.exists()
            ]
            continue
        problems, valid = _native.verify_segment(str(segment.data), str(segment.index))
        entries, about = folder.index(segment)
        if problems and len(entries) == 0 and valid == 0 and about["base"] != segment.base:
            broken = True
            done += [_set_aside(folder, path, problems[0][3]) for path in (segment.data, segment.index)]
            continue
        if problems:
            done += _cut(folder, segment, int(valid), problems[0][3])
            entries, about = folder.index(segment)
        elif not about["sealed"] and _has_tail(segment, int(valid), about):
            done += _cut(folder, segment, int(valid), "the end of a recorder that died")
        gaps = entries[entries["kind"] == GAP]
        start = segment.base + about["data_length"] + int(gaps["time_min"].sum())
        if not about["sealed"] and number + 1 < len(segments):
            broken = segments[number + 1].base != start or segments[number + 1].base == segment.base
            if not broken and seal(folder, segment):  # only its seal was lost: what follows fits
                done.append(Repair(segment.index, "sealed again"))
    done += [_set_aside(folder, path, "a segment without an index") for path in folder.data_without_index()]
    if seal_last(folder):
        done.append(Repair(folder.segments()[-1].index, "sealed: its recorder did not come to it"))
    return done


def _has_tail(segment: Segment, valid: int, about: dict[str, int]) -> bool:
    return _size(segment.data) != about["data_length"] or _size(segment.index) != INDEX_HEADER + valid * INDEX_ENTRY


def _cut(folder: RecordingFolder, segment: Segment, valid: int, why: str) -> list[Repair]:
    """Keeps `valid` index entries and the blocks they cover; the rest is kept aside."""
    entries, _ = folder.index(segment)
    kept = entries[:valid]
    length = int(kept["length"][kept["kind"] == BLOCK].sum())
    done = []
    for path, end in ((segment.data, length), (segment.index, INDEX_HEADER + valid * INDEX_ENTRY)):
        if _size(path) <= end:
            continue
        aside = folder.path / "damaged"
        aside.mkdir(exist_ok=True)
        with open(path, "r+b") as file:
            file.seek(end)
            rest = aside / _free_name(aside, f"{path.name}.from-{end}")
            with open(rest, "wb") as out:
                shutil.copyfileobj(file, out)
                out.flush()
                os.fsync(out.fileno())
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
        done.append(Repair(path, f"cut at byte {end}: {why}"))
    fsync_folder(folder.path)
    return done


def _set_aside(folder: RecordingFolder, path: Path, why: str) -> Repair:
    aside = folder.path / "damaged"
    aside.mkdir(exist_ok=True)
    target = aside / _free_name(aside, path.name)
    os.replace(path, target)
    fsync_folder(folder.path)
    return Repair(target, f"moved aside: {why}")


def _free_name(folder: Path, name: str) -> str:
    number, free = 0, name
    while (folder / free).exists():
        number += 1
        free = f"{name}.{number}"
    return free


def _rebuild_catalog(archive: Archive) -> list[Repair]:
    """Makes the catalog say what the folders say."""
    done = []
    path = archive.catalog.path
    if archive.catalog.check() is not None:
        aside = archive.path / "damaged"
        aside.mkdir(exist_ok=True)
        os.replace(path, aside / _free_name(aside, path.name))
        done.append(Repair(path, "rebuilt from the recordings"))
    before = archive.catalog.rows()
    wanted = {}
    for folder in archive.folders():
        about = folder.describe()
        row = before.get(about.id)
        end = extent(folder, about.start_position).end_position
        synced = min(row[4], end) if row is not None and row[4] >= about.start_position else end
        wanted[about.id] = (about.channel, about.epoch, about.created_ns, about.start_position, synced)
    if before != wanted:
        archive.catalog.replace(wanted)
    done += [Repair(path, f"row of recording {n} written") for n, row in wanted.items() if before.get(n) != row]
    done += [Repair(path, f"row of recording {n} removed: it has no folder") for n in before if n not in wanted]
    return done


def close_crashed(folder: RecordingFolder) -> None:
    """Before a recording is extended: cuts the unpublished end of a recorder that died. `Corrupt` if more is wrong."""
    folder.sweep()
    segments = folder.segments()
    if not segments:
        return
    last = segments[-1]
    problems, valid = _native.verify_segment(str(last.data), str(last.index))
    if problems:
        raise Corrupt(f"{problems[0][0]}: {problems[0][3]}. Run repair before extending this recording")
    _, about = folder.index(last)
    if _has_tail(last, int(valid), about):
        _cut(folder, last, int(valid), "the end of a recorder that died")
    seal_last(folder)


def seal_last(folder: RecordingFolder) -> bool:
    """Seals the last segment of a recording that nobody writes and whose end is clean; whether that was needed."""
    segments = folder.segments()
    return bool(segments) and seal(folder, segments[-1])


def seal(folder: RecordingFolder, last: Segment) -> bool:
    """Seals a segment whose end is clean; whether that was needed."""
    entries, about = folder.index(last)
    if about["sealed"]:
        return False
    description = folder.describe()
    segment = _native.RecordingSegment(
        data_fd=os.open(last.data, os.O_RDWR | os.O_CLOEXEC),
        data_path=str(last.data),
        index_fd=os.open(last.index, os.O_RDWR | os.O_CLOEXEC),
        index_path=str(last.index),
        base=last.base,
        term_length=description.term_length,
        initial_term_id=description.initial_term_id,
        stream_id=description.stream_id,
        recording=description.id,
        messages_before=about["messages_before"] + int(entries["begins"].sum()),
        entries=len(entries),
        data_length=about["data_length"],
    )
    segment.seal()
    segment.sync()
    return True


def truncate(folder: RecordingFolder, position: int) -> int:
    """Cuts a recording at the last block that ends at or before `position`."""
    lock = folder.lock()
    try:
        start = end = folder.describe().start_position
        segments = folder.segments()
        kept = [s for s in segments if s.base < position or s.base == start]
        for segment in reversed(segments[len(kept) :]):  # from the end: whatever a kill leaves is a prefix
            segment.index.unlink()
            segment.data.unlink()
        for segment in kept:
            entries, about = folder.index(segment)
            ends = entries["position"] + entries["length"]
            keep = int((ends <= position).sum()) if segment.base + about["data_length"] > position else len(entries)
            blocks = entries[:keep]
            length = int(blocks["length"][blocks["kind"] == BLOCK].sum())
            os.truncate(segment.index, INDEX_HEADER + keep * INDEX_ENTRY)
            os.truncate(segment.data, length)
            end = segment.base + length
        fsync_folder(folder.path)
        return end
    finally:
        folder.unlock(lock)
