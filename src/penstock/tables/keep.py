"""Keeping tables: what is old goes, what is small is joined, and what must be forgotten is erased.

Deletion and compaction are delta-rs's own; the pipeline's state is not changed by them, so nothing comes back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.channels.uri.value import AnyChannel
from penstock.errors import Corrupt, Invalid, NotFound, PenstockError, SystemFailure
from penstock.record import Moment
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder import Folder, locked
from penstock.tables.folder.state import Stored
from penstock.tables.reading import names, stream_of
from penstock.util.errors_in_text import first_of
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
        with folder.apart(stored):
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


def compact_grown(folder: Folder) -> None:
    """Joins the small files of tables that have many of them and got commits, and deletes files that were replaced more than seven days ago.
    Where that fails, the table gets rows as before."""
    for stored in folder.take_changed():
        table = stored.table
        if table is None or sum(file.size < SMALL_BYTES for file in table.files()) <= FILES_MAX:
            continue
        try:
            table.compact(TARGET_BYTES)
            table.vacuum(VACUUM_HOURS)
        except PenstockError as error:
            anew = (
                f"; if a file of it is gone or damaged, --rebuild {stored.name} makes it anew"
                if not folder.is_of_all(stored)
                else ""
            )
            folder.damaged.append(f"the small files of {stored.place} cannot be joined: {error}{anew}")


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
    failed: list[PenstockError] = []
    for name in found:
        try:
            table = Table.open(place / name)
            if table is not None:
                before += len(table.files())
                table.compact(TARGET_BYTES)
                after += len(table.files())
                removed += table.vacuum(VACUUM_HOURS)
        except PenstockError as error:
            failed.append(error)
    if failed:
        raise Corrupt(f"{first_of(failed)}; the small files of all other tables are joined") from failed[0]
    return Optimized(before, after, removed, time.monotonic() - begun)


# ---- erasure ----


def erase(
    out: str | os.PathLike[str] | Place,
    stream: AnyChannel | None = None,
    *,
    since: Moment = LEAST,
    until: Moment = MOST,
) -> int:
    """Deletes the rows of a stream, or of all, that were sent in a span, both ends inclusive, from every table and from the disk, with
    all earlier versions. No run brings them back. How many rows of *messages*.

    Messages that are sent later come into the tables. The archive is left as it is, and so are the tables of the user's own. `Busy` while a pipeline writes; `NotFound` for a stream that
    the tables do not have.
    """
    span, only = interval(since, until), stream_of(stream)
    if only is None and span == (LEAST, MOST):
        raise Invalid("name a stream, or a span of time by since and until")
    place = Place.of(out)
    if not names(place):
        raise NotFound(f"{place} holds no tables")
    left_out: list[str] = []
    with locked(place):
        count = erase_in(Folder(place, left_out), only, span[0], min(span[1], time.time_ns()))
    if left_out:
        raise Corrupt(
            f"{left_out[0]}; nothing is erased there, and {count} messages are elsewhere. The pipeline's next run tries it again, and with "
            "--rebuild STREAM it makes a table anew of which files are gone or damaged"
        )
    return count


def erase_in(folder: Folder, stream: str | None, since: int, until: int) -> int:
    """As `erase`, by whoever holds the lock of the folder."""
    if stream is not None and stream not in {row["channel"] for row in folder.messages.state.done}:
        raise NotFound(f"{folder.place} has no stream {stream}")
    for stored in folder.all():
        stored.check()
    for stored in (folder.messages, *folder.streams.values()):
        if (stored is folder.messages or stream in (None, stored.name)) and stored.table is not None:
            stored.table.check_removing()
    folder.clean()  # files of runs that were killed may have rows of it
    folder.note_erased(stream, since, until)  # first: a run after a kill brings nothing back
    return follow_erasures(folder)


def follow_erasures(folder: Folder, apart_from: Collection[str] = ()) -> int:
    """Deletes the rows of spans that were erased, from tables that have not followed that: an erasure was killed, or a backup was put back.
    How many rows of *messages*. Where that fails, a later run does it, and a stream's table is left out until then. apart_from: streams
    whose tables are about to be made anew; the next call sees to them."""
    later = {folder.streams[name].folder for name in apart_from if name in folder.streams}
    tables = {one.folder: one for one in (folder.messages, *folder.streams.values()) if not one.is_absent}
    gone = {name: folder.erased_since(one, one.state.erased) for name, one in tables.items()}
    todo = {*folder.to_forget, *(name for name, rows in gone.items() if rows)}
    if not todo - later:
        return 0
    folder.forget(todo)
    count, left = 0, later & todo
    for name, one in tables.items():
        if name not in todo - later:
            continue
        followed = one.state.erased
        try:
            if gone[name]:
                one.state.erased = len(folder.erased)
                deleted = one.delete(" OR ".join(f"({row})" for row in gone[name]))
                count += deleted if one is folder.messages else 0
        except PenstockError as error:
            one.state.erased = followed
            left.add(name)
            _leave_rows(folder, one, error)
    for name, one in tables.items():
        if name not in todo - left or one.table is None:
            continue
        try:
            one.table.forget()
            _delete_leftovers(folder, one)
        except PenstockError as error:
            left.add(name)
            _leave_rows(folder, one, error)
    folder.forget(left)
    return count


def _leave_rows(folder: Folder, stored: Stored, error: PenstockError) -> None:
    """Erased rows are still in a table. *messages* gets rows as before."""
    if stored is not folder.messages:
        folder.fail(stored, error)
        return
    folder.damaged.append(
        f"what was erased is still in {stored.place}: {error}. Each run tries it again; a table that you remove is built again"
    )


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
