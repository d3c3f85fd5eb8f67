"""Truncation: removes a recording's end for good."""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import replace

import numpy as np

from penstock.errors import Corrupt, PenstockError
from penstock.record.format import batches
from penstock.record.format.archive_folder import ArchiveFolder
from penstock.record.format.catalog import PATIENCE_SECONDS, Row
from penstock.record.format.folder import (
    GAP,
    HOLE,
    RecordingFolder,
    Segment,
)
from penstock.record.format.sync_marker import SyncMarker
from penstock.record.keep import catalog_repair, purge_guard, repair, restore
from penstock.record.keep.segment_repair import index_length, length_of
from penstock.util.files.durable import fsync_folder

log = logging.getLogger("penstock")


def truncate(archive: ArchiveFolder, folder: RecordingFolder, position: int) -> int:
    """See `Archive.truncate`."""
    lock = folder.lock()
    try:
        start = end = folder.describe().start_position
        _lower_catalog_row(archive, folder)
        folder.lower_mark(max(start, position))
        segments = folder.segments()
        kept = [s for s in segments if s.base < position or s.base == start]
        if segments:
            purge_guard.note_cut(folder, _truncated_at(folder, kept[-1], position)[1] if kept else start)
        for segment in reversed(segments[len(kept) :]):  # from the end: so a kill leaves a prefix
            segment.index.unlink()
            segment.data.unlink()
        for segment in kept:
            end = _truncate_segment(folder, segment, position)
        restore.forget_pieces(folder, end)
        fsync_folder(folder.path)
        repair.seal_last(folder)
        repair.make_durable(folder)
        folder.write_mark(SyncMarker(end, closed=bool(kept), appended=batches.is_in(folder.path)))
    finally:
        folder.unlock(lock)
    catalog_repair.rebuild_catalog(archive, int(folder.path.name))
    return end


def _lower_catalog_row(archive: ArchiveFolder, folder: RecordingFolder) -> None:
    """Lowers the catalog's row before a cut. If this process is killed, the row may lag the recording, but never leads it."""
    about = folder.describe()
    with contextlib.suppress(Corrupt):  # the cut is followed by a mark that is right
        mark = folder.mark()
        if mark is not None and mark.listed:
            folder.write_mark(replace(mark, listed=False))
    row = Row(about.channel, about.epoch, about.created_ns, about.start_position, about.start_position)
    try:
        archive.catalog.note({about.id: row}, wait=PATIENCE_SECONDS)
    except PenstockError as error:
        log.warning("%s. Repair corrects it", error)


def _truncate_segment(folder: RecordingFolder, segment: Segment, position: int) -> int:
    """Cuts off a segment's blocks and gaps that end after `position`. Returns where it ends now, a gap at its end included."""
    entries, _ = folder.index(segment)
    keep, end = _truncated_at(folder, segment, position)
    if keep < len(entries):
        folder.lower_mark(end)
    os.truncate(segment.index, index_length(keep))
    os.truncate(segment.data, length_of(entries[:keep]))
    return end


def _truncated_at(folder: RecordingFolder, segment: Segment, position: int) -> tuple[int, int]:
    """(how many index entries of a segment end at or before `position`, where the last of them ends)."""
    entries, _ = folder.index(segment)
    missing = np.where((entries["kind"] == GAP) | (entries["kind"] == HOLE), entries["time_min"], 0)
    beyond = entries["position"] + entries["length"] + missing > position
    keep = int(beyond.argmax()) if beyond.any() else len(entries)
    gaps = entries["time_min"][:keep][entries["kind"][:keep] == GAP]
    return keep, segment.base + length_of(entries[:keep]) + int(gaps.sum())
