"""Keeping tables: what is old goes, what is small is joined, what must be forgotten is erased, and tables that were set back go on.

Deletion and compaction are delta-rs's own; the pipeline's state is not changed by them, so nothing comes back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from penstock.errors import NotFound
from penstock.record import Range, ReadPlanner, intervals
from penstock.record.format.intervals import Interval
from penstock.tables.folder import Folder
from penstock.tables.schemas import signed
from penstock.tables.state import Row, Stored, sql_text

SMALL_BYTES = 32 << 20
TARGET_BYTES = 128 << 20
FILES_MAX = 64  # small files of a table: with more it is compacted while the pipeline goes on
GRAIN = 1 << 20  # bytes of a recording whose rows are counted together
VACUUM_HOURS = 168  # files that were replaced stay so long, as Delta has it


def expire(folder: Folder, keep: Mapping[str | None, int]) -> int:
    """Drops the files whose rows are all older than their stream is kept, by their statistics. keep: nanoseconds by stream; None: of all
    others. How many files."""
    if not keep:
        return 0
    now, count = time.time_ns(), 0
    for stored in (folder.messages, *folder.streams.values()):
        table = stored.table
        gone = []
        for file in table.files() if table is not None else ():
            high = file.high.get("timestamp_ns")
            span = _kept(stored, file, keep)
            if high is not None and span is not None and high < now - span:
                gone.append(file.path)
        if gone:
            stored.commit(removes=gone)
            count += len(gone)
    return count


def _kept(stored: Stored, file: object, keep: Mapping[str | None, int]) -> int | None:
    """How long a file's rows are kept. A file of several streams is kept as long as the one that is kept longest."""
    if stored.name is not None and ":" in stored.name:
        return keep.get(stored.name, keep.get(None))
    low, high = (getattr(file, side).get("stream") for side in ("low", "high"))
    if low is not None and low == high:
        return keep.get(low, keep.get(None))
    everything = keep.get(None)
    return None if everything is None else max(everything, *(span for span in keep.values()))


# ---- compaction ----


@dataclass(frozen=True)
class Optimized:
    """The result. files_before, files_after: of all tables; files_removed: that no version of the last days has any more."""

    files_before: int
    files_after: int
    files_removed: int
    seconds: float


def compact_grown(folder: Folder) -> None:
    """Joins the small files of tables that have many of them."""
    for stored in folder.all():
        table = stored.table
        if table is not None and sum(file.size < SMALL_BYTES for file in table.files()) > FILES_MAX:
            table.compact(TARGET_BYTES)


def optimize(folder: Folder) -> Optimized:
    """Joins small files of all tables, and deletes files that were replaced more than seven days ago."""
    begun = time.monotonic()
    before = after = removed = 0
    for stored in folder.all():
        table = stored.table
        if table is not None:
            before += len(table.files())
            table.compact(TARGET_BYTES)
            after += len(table.files())
            removed += table.vacuum(VACUUM_HOURS)
    return Optimized(before, after, removed, time.monotonic() - begun)


# ---- erasure ----


def erase(folder: Folder, stream: str | None, since: int, until: int) -> int:
    """Deletes the rows of a stream, or of all, that were sent in a span, both ends inclusive, from every table and from the disk. No run
    brings them back. How many rows of *messages*."""
    if stream is not None and stream not in {row["channel"] for row in folder.messages.state.done}:
        raise NotFound(f"{folder.place} has no stream {stream}")
    folder.note_erased(stream, since, until)  # first: a run after a kill brings nothing back
    times = f"timestamp_ns >= {since} AND timestamp_ns <= {until}"
    of = "" if stream is None else f" AND stream = {sql_text(stream)}"
    count = 0
    for stored in (folder.messages, *folder.streams.values()):
        mine = stored is folder.messages or stream in (None, stored.name)
        if mine and stored.table is not None:
            deleted = stored.delete(times + (of if stored is folder.messages else ""))
            stored.table.vacuum(0)
            count += deleted if stored is folder.messages else 0
    return count


# ---- tables that were set back ----


def refill(stored: Stored, survey: ReadPlanner) -> None:
    """The state of a table follows from its rows: ranges of recordings whose rows are not all there are read again, and what is there of
    them goes first."""
    table = stored.table
    if table is None:
        return
    there = _positions(stored)
    done: list[Row] = []
    partial: list[Row] = []
    planned: dict[int, list[Range]] = {}
    for part in survey.plan(range_bytes=GRAIN):
        planned.setdefault(part.recording, []).append(part)
    for info in (one.info for one in survey.recordings):
        mine = [row for row in stored.state.done if (row["channel"], row["recording"]) == (info.channel, info.id)]
        found = there.get((signed(info.epoch), info.id), np.zeros(0, np.int64))
        for part in planned.get(info.id, ()):
            for low, high in intervals.common([(part.start, part.end)], _parts(mine)):
                count = int(np.searchsorted(found, high) - np.searchsorted(found, low))
                row: Row = {
                    "channel": info.channel,
                    "epoch": info.epoch,
                    "recording": info.id,
                    "start": low,
                    "end": high,
                }
                if count == part.messages and (low, high) == (part.start, part.end):
                    done.append(row)
                elif count:
                    partial.append(row)
    kept = {row["recording"] for row in (*done, *partial)} | {one.info.id for one in survey.recordings}
    stored.state.done = [*done, *(row for row in stored.state.done if row["recording"] not in kept)]
    stored.state.cover("", 0, 0, [])  # neighbours as one
    for row in partial:
        epoch, where = signed(row["epoch"]), f"position >= {row['start']} AND position < {row['end']}"
        stored.delete(f"epoch = {epoch} AND recording = {row['recording']} AND {where}")


def _parts(rows: list[Row]) -> list[Interval]:
    return intervals.union([(row["start"], row["end"]) for row in rows])


def _positions(stored: Stored) -> dict[tuple[int, int], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """(epoch, recording) → the positions of the rows, in order."""
    found: dict[tuple[int, int], list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
    assert stored.table is not None
    for file in stored.table.files():
        with stored.place.fs.open_input_file(stored.place.file(file.path)) as source:
            rows = pq.read_table(source, columns=["epoch", "recording", "position"], partitioning=None)
        epochs, recordings, positions = (rows[name].to_numpy() for name in ("epoch", "recording", "position"))
        for key in set(zip(epochs.tolist(), recordings.tolist(), strict=True)):
            mine = (epochs == key[0]) & (recordings == key[1])
            found.setdefault((int(key[0]), int(key[1])), []).append(positions[mine])
    return {key: np.sort(np.concatenate(parts)) for key, parts in found.items()}
