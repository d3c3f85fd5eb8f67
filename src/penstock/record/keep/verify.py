"""Verify: checks every byte of an archive's recordings, and whether the catalog agrees with them.

Knows the files of recordings. Changes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Busy, Corrupt, NotFound, PenstockError, SystemFailure
from penstock.record.format import batches, last_values, segment_totals, sync_marker, truncations
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.catalog import PATIENCE_SECONDS, Row
from penstock.record.format.coverage import cut_short
from penstock.record.format.folder import COPY, DESCRIPTION, FOLLOWING, SEGMENT_TOTALS, Description, RecordingFolder
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.keep import purge_guard
from penstock.util.files.durable import is_refusal, is_shortage, system_failure

log = logging.getLogger("penstock")


@dataclass(frozen=True)
class Damage:
    """Bytes that differ from those written: `length` bytes from `offset` of `path`. `what` describes the damage. is_unread: this user may
    not read it, so nothing is known of its bytes."""

    path: Path
    offset: int
    length: int
    what: str
    is_unread: bool = False


def verify(archive: ArchiveFolder, recording: int | None) -> list[Damage]:
    """See `Archive.verify`."""
    folders = [f for f in archive.folders() if recording in (None, int(f.path.name))]
    found: list[Damage] = []
    for folder in folders:
        found += verify_folder(folder)
    if recording is None:
        found += [Damage(path, 0, 0, "it is not a recording's folder") for path in archive.stray_entries()]
    if recording is None:
        found += [Damage(path, 0, 0, what) for path, what in purge_guard.wrong(archive)]
    in_catalog, rows = _rows(archive)
    if recording is not None and not folders and (rows is None or recording not in rows):
        raise NotFound(archive.no_such(recording))
    if recording is None:
        found += in_catalog
    differs = _compare(archive, folders, rows, recording)
    if differs:  # a recorder's change between two reads is not a difference
        again = _compare(archive, folders, _rows(archive)[1], recording)
        differs = [damage for damage in differs if damage in again]
    return found + differs


def verify_folder(folder: RecordingFolder) -> list[Damage]:
    """The damage of one recording. If its recorder, a repair or a purge changes it in the meantime, it is checked again."""
    found: list[Damage] = []
    for attempt in range(3):
        before = _mark_of(folder)
        try:
            found = _verify_folder(folder, before)
        except (NotFound, SystemFailure, OSError) as error:  # a file went away, or a system call failed
            if attempt < 2 and folder.path.is_dir():
                continue
            if is_shortage(error):
                raise
            found = [
                Damage(folder.path, 0, 0, f"it cannot be read: {_describe_error(error)}", is_unread=is_refusal(error))
            ]
        if not folder.path.is_dir():
            return []  # purged in the meantime
        if not found or _mark_of(folder) == before:
            break
    return found


def _describe_error(error: OSError) -> str:
    """An error's text with the path that it concerns, without its number."""
    if isinstance(error, PenstockError):
        return error.strerror or str(error)
    return str(system_failure(error).strerror)


def _mark_of(folder: RecordingFolder) -> SyncMarker | Corrupt | None:
    try:
        return folder.mark()
    except Corrupt as error:
        return error
    except OSError as error:
        if is_shortage(error):
            raise
        return Corrupt(f"{folder.path / sync_marker.NAME} cannot be read: {error}")


def _verify_folder(folder: RecordingFolder, mark: SyncMarker | Corrupt | None) -> list[Damage]:
    found: list[Damage] = []
    about: Description | None = None
    for name in (DESCRIPTION, COPY):
        try:
            described = folder.description_in(name)
            if about is not None and described != about:
                found.append(Damage(folder.path / name, 0, _size(folder.path / name), f"it differs from {DESCRIPTION}"))
            about = about or described
        except (Corrupt, NotFound) as error:
            found.append(Damage(folder.path / name, 0, _size(folder.path / name), str(error)))
    found += [Damage(path, 0, 0, "it is not a segment's index") for path in folder.odd_indexes()]
    for name, read in (
        (truncations.NAME, lambda: truncations.read(folder.path)),
        (batches.NAME, lambda: batches.read(folder.path, expected=isinstance(mark, SyncMarker) and mark.appended)),
        (FOLLOWING, folder.following),
        (last_values.NAME, lambda: last_values.read(folder.path)),
    ):
        try:
            read()
        except Corrupt as error:
            found.append(Damage(folder.path / name, 0, _size(folder.path / name), str(error)))
    damaged, end, sealed = _verify_segments(folder, None if about is None else about.start_position)
    lone = [path for path in folder.data_without_index() if _size(path) != 0]
    if end is not None and isinstance(mark, SyncMarker) and (mark.partial or (mark.appended and mark.position == end)):
        # a copy, or an append, was killed: the next one begins there again
        lone = [path for path in lone if path != folder.segment_paths(end).data]
    found += [Damage(path, 0, 0, "a segment without an index") for path in lone]
    found += damaged + _verify_mark(folder, mark, about, end, sealed)
    if about is not None and (odd := segment_totals.find_error(folder, about.start_position)):
        found.append(Damage(folder.path / SEGMENT_TOTALS, odd[0], segment_totals.LENGTH, odd[1]))
    return found


def _verify_segments(folder: RecordingFolder, start: int | None) -> tuple[list[Damage], int | None, bool]:
    """The segments' damage, where the segments end, and whether the last is sealed. They should begin at `start`."""
    found: list[Damage] = []
    sealed = False
    segments = folder.segments()
    for number, segment in enumerate(segments):
        _, about = folder.index(segment)
        problems = about["problems"]
        if segment.data.is_file():
            problems, _ = folder.verify_segment(segment)
        else:
            found.append(Damage(segment.data, 0, 0, "the segment is missing"))
        found += [Damage(Path(path), offset, length, what) for path, offset, length, what in problems]
        if start is not None and segment.base != start:
            what = f"the recording continues at position {start}, but this segment begins at {segment.base}"
            found.append(Damage(segment.index, 0, 0, what))
        start, sealed = int(about["end"]), bool(about["sealed"])
        if number + 1 < len(segments) and not sealed and not problems:
            what = "the segment is not sealed but another follows"
            found.append(Damage(segment.index, _size(segment.index), 0, what))
    return found, start, sealed


def _verify_mark(
    folder: RecordingFolder, mark: SyncMarker | Corrupt | None, about: Description | None, end: int | None, sealed: bool
) -> list[Damage]:
    path = folder.path / sync_marker.NAME
    if isinstance(mark, Corrupt):
        return [Damage(path, 0, _size(path), str(mark))]
    if mark is None:
        return [] if about is None or about.format < 2 else [Damage(path, 0, 0, "the file is missing")]
    found = []
    if about is not None and mark.position < about.start_position:
        what = f"it has {mark.position}, but the recording begins at {about.start_position}"
        found.append(Damage(path, 0, 8, what))
    segments = folder.segments()
    place = segments[-1].index if segments else folder.path
    if end is not None and (short := cut_short(folder, mark.position, end)):
        found.append(Damage(place, _size(place) if segments else 0, 0, short))
    elif mark.closed and not sealed and (segments or not mark.appended):  # programs may append nothing
        what = "the recording was closed, but its last segment's seal is missing"
        found.append(Damage(place, _size(place) if segments else 0, 0, what))
    return found


def _rows(archive: ArchiveFolder) -> tuple[list[Damage], dict[int, Row] | None]:
    """The catalog's damage as a database, and its rows; None if the rows cannot be read."""
    path = archive.catalog.path
    if not archive.catalog.exists():
        return [], {}
    problem: str | None = None
    for _ in range(2):  # a fault of the file system may look like damage
        try:
            problem = archive.catalog.check(wait=PATIENCE_SECONDS)
            if problem is None:
                return [], archive.catalog.rows(wait=PATIENCE_SECONDS)
        except (Busy, SystemFailure) as error:
            log.warning("%s. It was not compared with the recordings", error)
            return [], None
        except Corrupt as error:
            problem = str(error)
    return [Damage(path, 0, _size(path), problem or "it cannot be read")], None


def _compare(
    archive: ArchiveFolder, folders: list[RecordingFolder], rows: dict[int, Row] | None, recording: int | None
) -> list[Damage]:
    """Differences between catalog and folders. A row may lag if it could not be written."""
    found: list[Damage] = []
    if rows is None:
        return found
    path = archive.catalog.path
    for folder in folders:
        number = int(folder.path.name)
        try:
            about, mark = folder.describe(), folder.mark()
        except (Corrupt, NotFound, OSError):
            rows.pop(number, None)
            continue  # that was found above
        row = rows.pop(number, None)
        listed = mark is not None and mark.listed
        if row is None:
            if listed:
                found.append(Damage(path, 0, 0, f"recording {number} is not in the catalog"))
            continue
        if row[:4] != (about.channel, about.epoch, about.created_ns, about.start_position):
            found.append(Damage(path, 0, 0, f"the catalog's row of recording {number} differs from its folder"))
        elif mark is not None and row.synced_position != mark.position:
            ahead = row.synced_position > mark.position and not folder.is_live() and folder.mark() == mark
            if ahead or listed or row.synced_position < about.start_position:
                what = f"by the catalog, recording {number} is durable up to {row.synced_position}, by its folder up to {mark.position}"
                found.append(Damage(path, 0, 0, what))
    # A number without a folder may be from a recorder that died as it began; a synced recording is a loss.
    found += [
        Damage(archive.folder(number).path, 0, 0, f"recording {number} is in the catalog and has no folder")
        for number, row in rows.items()
        if recording in (None, number) and row.synced_position > row.start_position and not archive.explains(number)
    ]
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
