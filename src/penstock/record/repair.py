"""Repair: cuts an archive back to its undamaged parts. Also truncates, and closes recordings that a dead recorder left open.

Deletes no recorded byte, except in `truncate`: bytes that are cut off go to the recording's folder `damaged`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock._native import core as _native
from penstock.durable import concerning, free_name, fsync_folder, make_folder
from penstock.errors import Busy, Corrupt, NotFound, PenstockError
from penstock.record import batches, cuts, keeping
from penstock.record.archive_folder import ArchiveFolder
from penstock.record.catalog import PATIENCE_SECONDS, Row
from penstock.record.extent import Extent, end_of, extent
from penstock.record.folder import BLOCK, ENTRY, GAP, RecordingFolder, Segment
from penstock.record.mark import Mark

log = logging.getLogger("penstock")


@dataclass(frozen=True)
class Repair:
    """One change that repair made: to which file, and which change."""

    path: Path
    what: str


def repair(archive: ArchiveFolder, recording: int | None) -> list[Repair]:
    """See `Archive.repair`. One recording that cannot be repaired (a full disk) does not stop the others: its error comes last."""
    done: list[Repair] = []
    failed: PenstockError | OSError | None = None
    for folder in [f for f in archive.folders() if recording in (None, int(f.path.name))]:
        try:
            lock = folder.lock()
        except (Busy, FileNotFoundError):
            continue  # it is being written, and its recorder is responsible for it; or it was purged meanwhile
        try:
            done += repair_folder(archive, folder)
        except (PenstockError, OSError) as error:
            failed = failed or error
        finally:
            folder.unlock(lock)
    if recording is None:
        done += [Repair(path, "removed: its recorder or its purge died half way") for path in archive.sweep()]
        for path in archive.strangers():
            try:
                done.append(_move_aside(archive, path, "it is no recording"))
            except FileNotFoundError:
                continue  # its owner took it away meanwhile
            except (PenstockError, OSError) as error:
                failed = failed or error
    done += _rebuild_catalog(archive, recording)
    if failed is not None:
        raise failed
    return done


def _move_aside(archive: ArchiveFolder, path: Path, why: str) -> Repair:
    kept = archive.aside(path)
    os.rename(path, kept)
    return Repair(kept, f"moved here whole: {why}")


def repair_folder(archive: ArchiveFolder, folder: RecordingFolder) -> list[Repair]:
    """Cuts one recording back to its longest valid prefix. Needs its lock."""
    try:
        about = folder.describe()
    except (Corrupt, NotFound) as error:
        return [_move_aside(archive, folder.path, str(error))]
    right = archive.folder(about.id)
    if folder.path != right.path:
        if os.path.lexists(right.path):
            return [_move_aside(archive, folder.path, f"it describes recording {about.id}, which there is")]
        os.rename(folder.path, right.path)
        return [Repair(right.path, f"renamed: it was {folder.path.name}"), *repair_folder(archive, right)]
    folder.sweep()
    done = [_set_aside(folder, path, "it is no segment's index") for path in folder.odd_indexes()]
    try:
        cuts.read(folder.path)
    except Corrupt:
        cuts.renew(folder.path)
        done.append(Repair(folder.path / cuts.NAME, "written again"))
    try:
        batches.read(folder.path)
    except Corrupt as error:
        done.append(_set_aside(folder, folder.path / batches.NAME, str(error)))
    cut, end = _cut_back(folder, about.start_position)
    done += cut
    done += [_set_aside(folder, path, "a segment without an index") for path in folder.data_without_index()]
    if seal_last(folder):
        done.append(Repair(folder.segments()[-1].index, "sealed: its recorder did not come to it"))
    return done + _repair_mark(folder, end)


def _cut_back(folder: RecordingFolder, start: int) -> tuple[list[Repair], int]:
    """Cuts or moves aside everything that does not continue from `start`. Returns the changes and the position where the recording ends now."""
    done: list[Repair] = []
    broken = False
    segments = folder.segments()
    for number, segment in enumerate(segments):
        if broken or segment.base != start or not segment.data.is_file():
            if not broken:
                keeping.note_cut(folder, start)
            folder.lower_mark(start)
            broken = True
            done += [
                _set_aside(folder, path, "it follows damage") for path in (segment.data, segment.index) if path.exists()
            ]
            continue
        problems, valid = _native.verify_segment(str(segment.data), str(segment.index))
        entries, about = folder.index(segment)
        if len(entries) == 0 and valid == 0 and about["base"] != segment.base:
            keeping.note_cut(folder, start)
            folder.lower_mark(start)
            broken = True
            why = problems[0][3] if problems else f"its base is {about['base']}, its name says {segment.base}"
            done += [_set_aside(folder, path, why) for path in (segment.data, segment.index)]
            continue
        if problems:
            keeping.note_cut(folder, segment.base + _length(entries[: int(valid)]))
            folder.lower_mark(segment.base + _length(entries[: int(valid)]))
            done += _cut(folder, segment, int(valid), problems[0][3])
            entries, about = folder.index(segment)
        elif not about["sealed"] and _has_tail(segment, int(valid), about):
            done += _cut(folder, segment, int(valid), "the end of a recorder that died")
        start = end_of(segment, entries, about)
        if not about["sealed"] and number + 1 < len(segments):
            broken = segments[number + 1].base != start or segments[number + 1].base == segment.base
            if not broken and seal(folder, segment):  # only its seal was lost: the next segment fits
                done.append(Repair(segment.index, "sealed again"))
    return done, start


def _repair_mark(folder: RecordingFolder, end: int) -> list[Repair]:
    """Makes the recording's mark agree with its segments."""
    path = folder.path / "synced"
    try:
        mark = folder.mark()
    except Corrupt as error:
        why = str(error)
    else:
        if mark is None:
            if folder.describe().format < 2:
                return []
            why = "it was missing"
        elif mark.position > end:
            keeping.note_cut(folder, end)
            why = f"the recording ends at {end} now"
        elif mark.closed and not folder.segments():
            why = "the recording is empty now"
        else:
            if folder.segments() and not mark.closed:
                _make_durable(folder)
                folder.write_mark(Mark(end, closed=True))
            return []
    if path.is_dir():
        os.rename(path, make_folder(folder.path / "damaged") / free_name(folder.path / "damaged", path.name))
    _make_durable(folder)
    folder.write_mark(Mark(end, closed=bool(folder.segments())))
    return [Repair(path, f"written again: {why}")]


def _make_durable(folder: RecordingFolder) -> None:
    """Syncs the last segment. Earlier segments were synced when they were sealed."""
    for segment in folder.segments()[-1:]:
        for file in (segment.data, segment.index):
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())


def _has_tail(segment: Segment, valid: int, about: dict[str, int]) -> bool:
    return segment.data.stat().st_size != about["data_length"] or segment.index.stat().st_size != _index_length(valid)


def _index_length(entries: int) -> int:
    """Bytes of an index with so many entries."""
    return _native.INDEX_HEADER_LENGTH + entries * ENTRY.itemsize


def _length(entries: np.ndarray[Any, Any]) -> int:
    return int(entries["length"][entries["kind"] == BLOCK].sum())


def _cut(folder: RecordingFolder, segment: Segment, valid: int, why: str) -> list[Repair]:
    """Keeps `valid` index entries and the blocks they cover; the rest is kept aside."""
    entries, _ = folder.index(segment)
    done = []
    for path, end in ((segment.data, _length(entries[:valid])), (segment.index, _index_length(valid))):
        if path.stat().st_size <= end:
            continue
        aside = make_folder(folder.path / "damaged")
        with open(path, "r+b") as file:
            file.seek(end)
            rest = aside / free_name(aside, f"{path.name}.from-{end}")
            try:
                with concerning(rest), open(rest, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
                    shutil.copyfileobj(file, out)
                    out.flush()
                    os.fsync(out.fileno())
            except BaseException:
                rest.unlink(missing_ok=True)  # a full disk: nothing was cut, and nothing half done is left
                raise
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())
        done.append(Repair(path, f"cut at byte {end}: {why}"))
    fsync_folder(folder.path)
    return done


def _set_aside(folder: RecordingFolder, path: Path, why: str) -> Repair:
    aside = make_folder(folder.path / "damaged")
    target = aside / free_name(aside, path.name)
    os.rename(path, target)
    fsync_folder(folder.path)
    return Repair(target, f"moved aside: {why}")


def _rebuild_catalog(archive: ArchiveFolder, recording: int | None) -> list[Repair]:
    """Makes the catalog agree with the folders, for all recordings or for one. A catalog that is locked or cannot be read is left as it is."""
    done: list[Repair] = []
    path = archive.catalog.path
    try:
        if archive.catalog.exists() and archive.catalog.check(wait=PATIENCE_SECONDS) is not None:
            archive.catalog.set_aside()
            done.append(Repair(path, "rebuilt from the recordings"))
        before = archive.catalog.rows(wait=PATIENCE_SECONDS) if archive.catalog.exists() else {}
        rows = archive.rows()
        of_all = {**rows, **{n: _row_by_extent(archive, n, row, before.get(n)) for n, row in rows.items()}}
        wanted = of_all if recording is None or not archive.catalog.exists() else {**before, **_only(of_all, recording)}
        if recording is not None and recording not in of_all:
            wanted.pop(recording, None)
        if before != wanted or not archive.catalog.exists():
            archive.catalog.revise(before, wanted)
        for number in wanted:
            _note_listed(archive.folder(number))
    except (Busy, OSError) as error:
        log.warning("the catalog was not looked at: %s", error)
        return done
    done += [Repair(path, f"row of recording {n} written") for n, row in wanted.items() if before.get(n) != row]
    done += [Repair(path, f"row of recording {n} removed: it has no folder") for n in before if n not in wanted]
    return done


def _only(rows: dict[int, Row], recording: int) -> dict[int, Row]:
    return {recording: rows[recording]} if recording in rows else {}


def _row_by_extent(archive: ArchiveFolder, number: int, row: Row, before: Row | None) -> Row:
    """A recording's row. Without a mark, the recording is durable as far as the catalog said, or else to its end."""
    folder = archive.folder(number)
    if folder.mark() is not None:
        return row
    end = extent(folder, row.start_position).end_position
    known = before is not None and row.start_position <= before.synced_position <= end
    return row._replace(synced_position=before.synced_position if before is not None and known else end)


def _note_listed(folder: RecordingFolder) -> None:
    """A closed recording's mark says that the catalog has its row, so that a row that is lost later shows."""

    def wanted(mark: Mark | None) -> bool:
        return mark is not None and mark.closed and not mark.listed

    if not wanted(folder.mark()):
        return
    try:
        lock = folder.lock()
    except (Busy, FileNotFoundError):
        return
    try:
        mark = folder.mark()
        if mark is not None and wanted(mark):
            folder.write_mark(Mark(mark.position, closed=True, listed=True))
    finally:
        folder.unlock(lock)


def close_crashed(folder: RecordingFolder) -> Extent:
    """Prepares a recording to be extended: cuts off the unpublished end that a dead recorder left. `Corrupt` if more is wrong.

    Needs the recording's lock. Returns how much the recording holds now.
    """
    start = folder.describe().start_position
    folder.sweep()
    segments = folder.segments()
    if segments:
        last = segments[-1]
        problems, valid = _native.verify_segment(str(last.data), str(last.index))
        if problems:
            raise Corrupt(f"{problems[0][0]}: {problems[0][3]}. Run repair before extending this recording")
        _, about = folder.index(last)
        if _has_tail(last, int(valid), about):
            _cut(folder, last, int(valid), "the end of a recorder that died")
    found = extent(folder, start)
    if found.damage:
        raise Corrupt(f"{found.damage}. Run repair before extending this recording")
    folder.lower_mark(found.end_position)
    seal_last(folder)
    _make_durable(folder)  # a sealed one may have been killed before it was synced
    return found


def seal_last(folder: RecordingFolder) -> bool:
    """Seals the last segment of a recording that no recorder writes and whose end is clean. False if it was sealed already."""
    segments = folder.segments()
    return bool(segments) and seal(folder, segments[-1])


def seal(folder: RecordingFolder, last: Segment) -> bool:
    """Seals a segment whose end is clean. False if it was sealed already."""
    entries, about = folder.index(last)
    if about["sealed"]:
        return False
    description = folder.describe()
    data = os.open(last.data, os.O_RDWR | os.O_CLOEXEC)
    try:
        index = os.open(last.index, os.O_RDWR | os.O_CLOEXEC)
    except BaseException:
        os.close(data)
        raise
    segment = _native.RecordingSegment(
        data_fd=data,
        data_path=str(last.data),
        index_fd=index,
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


def truncate(archive: ArchiveFolder, folder: RecordingFolder, position: int) -> int:
    """See `Archive.truncate`."""
    lock = folder.lock()
    try:
        start = end = folder.describe().start_position
        _promise_less(archive, folder)
        folder.lower_mark(max(start, position))
        segments = folder.segments()
        kept = [s for s in segments if s.base < position or s.base == start]
        if segments:
            keeping.note_cut(folder, _truncated_at(folder, kept[-1], position)[1] if kept else start)
        for segment in reversed(segments[len(kept) :]):  # from the end: so a kill leaves a prefix
            segment.index.unlink()
            segment.data.unlink()
        for segment in kept:
            end = _truncate_segment(folder, segment, position)
        fsync_folder(folder.path)
        seal_last(folder)
        _make_durable(folder)
        folder.write_mark(Mark(end, closed=bool(kept)))
    finally:
        folder.unlock(lock)
    _rebuild_catalog(archive, int(folder.path.name))
    return end


def _promise_less(archive: ArchiveFolder, folder: RecordingFolder) -> None:
    """Lowers the catalog's row before a cut. If this process is killed, the row may be behind the recording, but never ahead of it."""
    about = folder.describe()
    with contextlib.suppress(Corrupt):  # the cut is followed by a mark that is right
        mark = folder.mark()
        if mark is not None and mark.listed:
            folder.write_mark(replace(mark, listed=False))
    row = Row(about.channel, about.epoch, about.created_ns, about.start_position, about.start_position)
    try:
        archive.catalog.note({about.id: row}, wait=PATIENCE_SECONDS)
    except PenstockError as error:
        log.warning("%s. Repair makes it fit", error)


def _truncate_segment(folder: RecordingFolder, segment: Segment, position: int) -> int:
    """Cuts off a segment's blocks and gaps that end after `position`. Returns where it ends now, a gap at its end included."""
    entries, _ = folder.index(segment)
    keep, end = _truncated_at(folder, segment, position)
    if keep < len(entries):
        folder.lower_mark(end)
    os.truncate(segment.index, _index_length(keep))
    os.truncate(segment.data, _length(entries[:keep]))
    return end


def _truncated_at(folder: RecordingFolder, segment: Segment, position: int) -> tuple[int, int]:
    """(how many index entries of a segment end at or before `position`, where the last of them ends)."""
    entries, _ = folder.index(segment)
    missing = np.where(entries["kind"] == GAP, entries["time_min"], 0)
    beyond = entries["position"] + entries["length"] + missing > position
    keep = int(beyond.argmax()) if beyond.any() else len(entries)
    return keep, segment.base + _length(entries[:keep]) + int(missing[:keep].sum())
