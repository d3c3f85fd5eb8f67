"""Repair of the catalog: its rows are written again from the recordings."""

from __future__ import annotations

import logging
from dataclasses import replace

from penstock.errors import Busy
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.catalog import PATIENCE_SECONDS, Row
from penstock.record.format.coverage import coverage_of
from penstock.record.format.folder import (
    RecordingFolder,
)
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.keep.change import Repair

log = logging.getLogger("penstock")


def rebuild_catalog(archive: ArchiveFolder, recording: int | None) -> list[Repair]:
    """Makes the catalog agree with the folders, for all recordings or for one. A catalog that is locked or cannot be read is not changed."""
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
        for number, row in wanted.items():
            if row == of_all.get(number):  # the row of another recording may lag
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
    """A recording's row. Without a mark, the recording is durable up to the catalog's position, or else to its end."""
    folder = archive.folder(number)
    if folder.mark() is not None:
        return row
    end = coverage_of(folder, row.start_position).end_position
    known = before is not None and row.start_position <= before.synced_position <= end
    return row._replace(synced_position=before.synced_position if before is not None and known else end)


def _note_listed(folder: RecordingFolder) -> None:
    """Notes in a closed recording's mark that the catalog has its row, so that a later loss of the row is noticed."""

    def wanted(mark: SyncMarker | None) -> bool:
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
            folder.write_mark(replace(mark, closed=True, listed=True))
    finally:
        folder.unlock(lock)
