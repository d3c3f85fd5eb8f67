"""Keeping tables: what is old goes, what is small is joined, and what must be forgotten is erased.

Deletion and compaction are delta-rs's own; the pipeline's state is not changed by them, so nothing comes back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Corrupt, Invalid, NotFound, SystemFailure
from penstock.record import Moment
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder import Folder, locked
from penstock.tables.reading import names
from penstock.tables.state import Stored
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
    left_out: list[str] = []
    with locked(place):
        count = erase_in(Folder(place, left_out), stream, span[0], min(span[1], time.time_ns()))
    if left_out:
        raise Corrupt(f"{left_out[0]}; nothing is erased there, and {count} messages are elsewhere")
    return count


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
