"""Keeping tables: what is old goes, what is small is joined, what must be forgotten is erased, and tables that were set back go on.

Deletion and compaction are delta-rs's own; the pipeline's state is not changed by them, so nothing comes back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Invalid, NotFound, SystemFailure
from penstock.record import Moment, Range, ReadPlanner, intervals
from penstock.record.format.intervals import Interval
from penstock.tables import losses
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder import Folder, locked
from penstock.tables.reading import names
from penstock.tables.schemas import signed
from penstock.tables.state import Key, Row, Stored, cut_predicate
from penstock.util.units import LEAST, MOST, interval

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
            span = _retention_of(stored, file, keep)
            if high is not None and span is not None and high < now - span:
                gone.append(file.path)
        if gone:
            stored.commit(removes=gone)
            count += len(gone)
    return count


def _retention_of(stored: Stored, file: object, keep: Mapping[str | None, int]) -> int | None:
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


def compact_grown(changed: Iterable[Stored]) -> None:
    """Joins the small files of tables that have many of them, and deletes files that were replaced more than seven days ago."""
    for stored in changed:
        table = stored.table
        if table is not None and sum(file.size < SMALL_BYTES for file in table.files()) > FILES_MAX:
            table.compact(TARGET_BYTES)
            table.vacuum(VACUUM_HOURS)


def optimize(out: str | os.PathLike[str] | Place) -> Optimized:
    """Joins small files of all tables, and deletes files that were replaced more than seven days ago. A pipeline may write meanwhile."""
    begun = time.monotonic()
    before = after = removed = 0
    place = Place.of(out)
    found = names(place)
    if not found:
        raise NotFound(f"{place} holds no tables: run penstock pipeline ARCHIVE --out {place}")
    if place.is_local and not os.access(place.path, os.W_OK):  # native code would say it with its calls
        number = errno.EROFS if os.statvfs(place.path).f_flag & os.ST_RDONLY else errno.EACCES
        raise SystemFailure(number, f"{place} cannot be optimized: {os.strerror(number)}")
    for name in found:
        table = Table.open(place / name)
        if table is not None:
            before += len(table.files())
            table.compact(TARGET_BYTES)
            after += len(table.files())
            removed += table.vacuum(VACUUM_HOURS)
    return Optimized(before, after, removed, time.monotonic() - begun)


# ---- erasure ----


def erase(
    out: str | os.PathLike[str] | Place, stream: str | None = None, *, since: Moment = LEAST, until: Moment = MOST
) -> int:
    """Deletes the rows of a stream, or of all, that were sent in a span, both ends inclusive, from every table and from the disk, with
    all earlier versions. No run brings them back. How many rows of *messages*.

    Messages that are sent later come into the tables. The archive is left as it is, and so are the tables of the user's own. `Busy` while a pipeline writes; `NotFound` for a stream that
    the tables do not have.
    """
    span = interval(since, until)
    if stream is None and span == (LEAST, MOST):
        raise Invalid("name a stream, or a span of time by since and until")
    place = Place.of(out)
    if not names(place):
        raise NotFound(f"{place} holds no tables")
    with locked(place):
        return erase_in(Folder(place, []), stream, span[0], min(span[1], time.time_ns()))


def erase_in(folder: Folder, stream: str | None, since: int, until: int) -> int:
    """As `erase`, by whoever holds the lock of the folder."""
    if stream is not None and stream not in {row["channel"] for row in folder.messages.state.done}:
        raise NotFound(f"{folder.place} has no stream {stream}")
    for stored in folder.all():
        stored.check()
    folder.clean()  # files of runs that were killed may have rows of it
    folder.note_erased(stream, since, until)  # first: a run after a kill brings nothing back
    return follow_erasures(folder)


def follow_erasures(folder: Folder) -> int:
    """Deletes the rows of spans that were erased, from tables that have not followed that: an erasure was killed, or a backup was put back.
    How many rows of *messages*."""
    tables = {one.folder: one for one in (folder.messages, *folder.streams.values()) if not one.is_absent}
    gone = {name: folder.erased_since(one, one.state.erased) for name, one in tables.items()}
    todo = {*folder.to_forget, *(name for name, rows in gone.items() if rows)}
    if not todo:
        return 0
    folder.forget(todo)
    count = 0
    for name, one in tables.items():
        if gone[name]:
            one.state.erased = len(folder.erased)
            deleted = one.delete(" OR ".join(f"({row})" for row in gone[name]))
            count += deleted if one is folder.messages else 0
    for name in todo:
        if name in tables and (table := tables[name].table) is not None:
            table.forget()
            _delete_leftovers(folder, tables[name])
    folder.forget([])
    return count


def _delete_leftovers(folder: Folder, stored: Stored) -> None:
    """Deletes files with erased rows that are no version's: a commit of another program failed, or is yet to come and would bring them
    back."""
    assert stored.table is not None
    wanted = folder.erased_rows(stored)
    there = {file.path for file in stored.table.files()}
    for info in stored.place.list():
        name = str(info.base_name)
        if not wanted or name in there or not name.endswith(".parquet"):
            continue
        with contextlib.suppress(OSError, pa.ArrowInvalid):  # it is not whole, or no table's
            with stored.place.fs.open_input_file(stored.place.file(name)) as source:
                found = pq.read_table(source, columns=["timestamp_ns"], filters=wanted, partitioning=None)
            if found.num_rows:
                stored.place.delete(name)


# ---- tables that were set back ----


def continue_restored(stored: Stored, folder: Folder, survey: ReadPlanner, way: str) -> None:
    """Goes on with a table that was set back. way: `keep` leaves out the rows that are gone, `refill` reads them again. Rows behind cuts,
    and rows that were erased, may have come back with it: they go."""
    gone: list[str] = []
    if way == "keep":
        stored.state = stored.recalled()
    elif stored is folder.losses:
        losses.refill(stored)
    else:
        before = stored.recalled().intervals()
        gone = refill(stored, survey)
        _tell_lost(stored, folder, survey, before)
    if stored is not folder.losses:
        for info, cut in survey.cuts:
            if stored is folder.messages or info.channel == stored.name:
                gone.append(cut_predicate(info, cut))
                if cut.token not in stored.state.cuts:
                    stored.state.forget(info, cut)
        gone += (erased := folder.erased_since(stored, 0))
        stored.state.erased = len(folder.erased)
        if erased:
            folder.forget({*folder.to_forget, stored.folder})
    stored.accept(gone)


def _tell_lost(stored: Stored, folder: Folder, survey: ReadPlanner, before: Mapping[Key, list[Interval]]) -> None:
    """Says which positions that a table had neither the table nor the archive has."""
    mine, held = stored.state.intervals(), survey.held(None)
    for key, parts in sorted(before.items()):
        lost = intervals.without(parts, intervals.union([*mine.get(key, []), *held.get(key, [])]))
        if lost:
            size = sum(high - low for low, high in lost)
            folder.damaged.append(
                f"{stored.place}: {size} bytes of {key[0]} from position {lost[0][0]} on were not brought back: the archive has them no more"
            )


def refill(stored: Stored, survey: ReadPlanner) -> list[str]:
    """The state of a table follows from its rows: ranges of recordings whose rows are not all there are read again. SQL of what is there
    of them: it must go in the commit that has the state."""
    there = _positions(stored)
    done: list[Row] = []
    partial: list[Row] = []
    planned: dict[int, list[Range]] = {}
    for part in survey.plan(range_bytes=GRAIN):
        planned.setdefault(part.recording, []).append(part)
    for info in (one.info for one in survey.recordings):
        mine = [
            row for row in stored.state.done if row["channel"] == info.channel and _key(row) == (info.epoch, info.id)
        ]
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
    here = {(one.info.epoch, one.info.id) for one in survey.recordings}
    purged = (row for row in stored.state.done if _key(row) not in here)
    stored.state.done = [*done, *(row for row in purged if (signed(row["epoch"]), row["recording"]) in there)]
    stored.state.cover("", 0, 0, [])  # neighbours as one
    return [
        f"epoch = {signed(row['epoch'])} AND recording = {row['recording']} AND position >= {row['start']} AND position < {row['end']}"
        for row in partial
    ]


def _key(row: Row) -> tuple[int, int]:
    """A recording, whichever archive it is of: each counts its own from 1."""
    return row["epoch"], row["recording"]


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
