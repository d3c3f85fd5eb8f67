"""The archive's catalog: one row per recording, in SQLite, for programs that prefer SQL to reading folders.

A cache of the folders' contents: nothing is decided by it, no recorder waits for it, and it is rebuilt when it is unusable.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from penstock.errors import Busy, Corrupt, PenstockError, SystemFailure
from penstock.util.clock import SystemClock
from penstock.util.files.durable import free_name, fresh_path, make_folder

log = logging.getLogger("penstock")

SCHEMA = """
CREATE TABLE IF NOT EXISTS recordings (
    id INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    created_ns INTEGER NOT NULL,
    start_position INTEGER NOT NULL,
    synced_position INTEGER NOT NULL
) STRICT
"""
PATIENCE_SECONDS = 5.0  # that verify, repair and purge wait for a lock
RETRY_SECONDS = 1.0
AGAIN_SECONDS = 0.02  # after a failure that another process may have caused by replacing the database
CLOSING_SECONDS = 1.0  # that the end of a recorder waits for its rows
# Errors that are not damage: the database's folder, its permissions, its users.
ELSEWHERE = {
    getattr(sqlite3, f"SQLITE_{name}") for name in ("PERM", "READONLY", "IOERR", "FULL", "CANTOPEN", "AUTH", "NOMEM")
}
LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class Row(NamedTuple):
    """The catalog's row of one recording."""

    channel: str
    epoch: int
    created_ns: int
    start_position: int
    synced_position: int


class Catalog:
    """Opens the database for each operation, so that it may be used from any thread and after a fork.

    from_folders: gives the rows that the catalog should have, to rebuild it.
    """

    def __init__(self, path: Path, from_folders: Callable[[], dict[int, Row]]) -> None:
        self.path, self._from_folders = path, from_folders

    def exists(self) -> bool:
        """Whether there is a catalog."""
        return self.path.exists()

    # ---- reading: changes nothing, and creates no catalog ----

    def rows(self, *, wait: float = 0.0) -> dict[int, Row]:
        """Recording → row. `Busy`, `Corrupt` or `SystemFailure` if the catalog cannot be read now."""
        with self._connect(wait) as db:
            rows = _all_rows(db)
        if not all(isinstance(row.channel, str) and all(isinstance(n, int) for n in row[1:]) for row in rows.values()):
            raise Corrupt(f"the catalog {self.path} is damaged: a row of it holds other types than it should")
        return rows

    def known(self) -> dict[int, Row]:
        """The rows, or none if they cannot be read at once. A hint for recordings whose folder does not suffice."""
        try:
            return self.rows()
        except PenstockError:
            return {}

    def check(self, *, wait: float = 0.0) -> str | None:
        """SQLite's complaint, or None. A fault of the file system may look like damage, so damage is checked twice."""
        return self._check(wait) and self._check(wait)

    def _check(self, wait: float) -> str | None:
        try:
            with self._connect(wait) as db:
                answer = db.execute("PRAGMA integrity_check").fetchone()[0]
            self.rows(wait=wait)  # SQLite accepts values that no row may hold
        except Corrupt as error:
            return str(error)
        return None if answer == "ok" else str(answer)

    # ---- writing ----

    def note(self, rows: Mapping[int, Row | None], *, wait: float = 0.0) -> None:
        """Writes these rows; None removes one. Rebuilds a catalog that is missing or unusable, with a warning in the log."""
        if self.exists():
            try:
                self._write(rows, wait)
                return
            except Corrupt as error:
                log.warning("%s", error)
            self.set_aside()
        self.rebuild({**self._from_folders(), **{n: row for n, row in rows.items() if row is not None}}, wait=wait)

    def _write(self, rows: Mapping[int, Row | None], wait: float) -> None:
        def change(db: sqlite3.Connection) -> None:
            for number, row in rows.items():
                _put(db, number, row)

        self._change(change, wait)

    def _change(self, change: Callable[[sqlite3.Connection], None], wait: float) -> None:
        """Changes the database. If another process replaced it in the meantime, changes the new one too. SQLite fails where its files go
        meanwhile."""
        for left in (2, 1, 0):
            before = self._file()
            try:
                with self._connect(wait) as db:
                    change(db)
            except (Corrupt, SystemFailure):
                if not left:
                    raise
                SystemClock().sleep(AGAIN_SECONDS)
                continue
            if self._file() == before:
                return
        raise Busy(f"the catalog {self.path} is being rebuilt by other processes")

    def _file(self) -> tuple[int, int]:
        with _own_errors(self.path):
            found = os.stat(self.path)
        return found.st_dev, found.st_ino

    def revise(self, before: Mapping[int, Row], wanted: Mapping[int, Row]) -> None:
        """Changes the rows `before` to `wanted`, except rows that another process changed in the meantime: a recorder's own row is right."""
        if not self.exists():
            self.rebuild(wanted)
            return

        def change(db: sqlite3.Connection) -> None:
            db.execute("BEGIN IMMEDIATE")
            now = _all_rows(db)
            there = self._from_folders()  # a purge renames the folder first, and removes its row after this change
            for number in before.keys() | wanted.keys():
                if now.get(number) == before.get(number) != wanted.get(number):
                    _put(db, number, wanted.get(number) if number in there else None)

        self._change(change, PATIENCE_SECONDS)

    def rebuild(self, rows: Mapping[int, Row], *, wait: float = PATIENCE_SECONDS) -> None:
        """Replaces the database by a new one with these rows, or newer ones."""
        self._put_new(rows)

        def change(db: sqlite3.Connection) -> None:
            db.execute("BEGIN IMMEDIATE")
            now, there = _all_rows(db), self._from_folders()
            for number in rows.keys() - there.keys():
                _put(db, number, None)
            for number, row in there.items():
                if number not in now or row.synced_position > now[number].synced_position:
                    _put(db, number, row)

        # A recorder may have written its row in the meantime into the database that was replaced, and a purge removed one there. Under
        # the lock: what a folder says is then no older than a row that its recorder has written.
        self._change(change, wait)

    def _put_new(self, rows: Mapping[int, Row]) -> None:
        fresh = fresh_path(self.path)
        with _own_errors(self.path):
            try:
                fresh.unlink(missing_ok=True)
                os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                os.chmod(fresh, 0o600)
                with contextlib.closing(sqlite3.connect(fresh)) as db, db:
                    db.execute(SCHEMA)
                    db.executemany(
                        "INSERT INTO recordings VALUES (?, ?, ?, ?, ?, ?)", [(n, *row) for n, row in rows.items()]
                    )
                for left in self._companion_files():  # of a removed database; SQLite would apply it to the new one
                    left.unlink(missing_ok=True)
                os.replace(fresh, self.path)
            finally:
                fresh.unlink(missing_ok=True)

    def set_aside(self) -> None:
        """Moves the database, and SQLite's files beside it, into the archive's folder `damaged`."""
        with _own_errors(self.path):
            aside = make_folder(self.path.parent / "damaged")
            for path in (
                self.path,
                *(self.path.with_name(self.path.name + end) for end in ("-journal", "-wal", "-shm")),
            ):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(path, aside / free_name(aside, path.name))

    def _companion_files(self) -> list[Path]:
        return [self.path.with_name(self.path.name + end) for end in ("-journal", "-wal", "-shm")]

    @contextlib.contextmanager
    def _connect(self, wait: float) -> Iterator[sqlite3.Connection]:
        if self.path.is_dir():
            raise Corrupt(f"the catalog {self.path} is a folder. It is rebuilt by repair or the next recorder")
        with _own_errors(self.path):
            uri = f"{self.path.absolute().as_uri()}?mode=rw"  # never makes one; a read-only file is read
            with contextlib.closing(sqlite3.connect(uri, timeout=wait, uri=True)) as connection, connection:
                yield connection


def _all_rows(db: sqlite3.Connection) -> dict[int, Row]:
    found = db.execute("SELECT id, channel, epoch, created_ns, start_position, synced_position FROM recordings")
    return {row[0]: Row(*row[1:]) for row in found}


def _put(db: sqlite3.Connection, number: int, row: Row | None) -> None:
    if row is None:
        db.execute("DELETE FROM recordings WHERE id = ?", (number,))
    else:
        db.execute("INSERT OR REPLACE INTO recordings VALUES (?, ?, ?, ?, ?, ?)", (number, *row))


@contextlib.contextmanager
def _own_errors(path: Path) -> Iterator[None]:
    """SQLite's and the file system's errors as this library's."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in LOCKED:
            raise Busy(f"the catalog {path} is locked by another process: {error}") from error
        if code in ELSEWHERE:
            raise SystemFailure(errno.EIO, f"cannot use the catalog {path}: {error}") from error
        raise Corrupt(
            f"the catalog {path} is damaged ({error}). It is rebuilt from the recordings by repair or the next recorder"
        ) from error
    except (UnicodeError, OverflowError) as error:  # SQLite's words about a damaged database may be no UTF-8
        raise Corrupt(
            f"the catalog {path} is damaged ({error}). It is rebuilt by repair or the next recorder"
        ) from error
    except OSError as error:
        if isinstance(error, PenstockError):
            raise
        raise SystemFailure(error.errno or errno.EIO, f"cannot use the catalog {path}: {error}") from error


class Notes:
    """Writes rows into a catalog in a separate thread, so that a recorder never waits for SQLite or for another process's lock.

    Newer rows replace older ones that were not written yet. A failed write is logged once and tried again.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._changed = threading.Condition()
        self._waiting: dict[int, Row] = {}
        self._closing, self._is_dropped = False, False
        self._thread: threading.Thread | None = None

    def put(self, rows: Mapping[int, Row]) -> None:
        """Queues rows to be written. Returns at once."""
        with self._changed:
            self._waiting.update(rows)
            self._changed.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="penstock-catalog", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # too many threads: the next rows try again
                    log.warning("the catalog %s is not written: %s", self._catalog.path, error)
                    return
                self._thread = thread

    def close(self, timeout: float = CLOSING_SECONDS) -> bool:
        """Writes the queued rows; returns whether everything was written within `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive() and not self._waiting
        return not self._waiting

    def drop(self) -> None:
        """Ends it without what is not written yet, and without a word: the rows' recordings are about to be removed."""
        with self._changed:
            self._waiting, self._is_dropped = {}, True
        self.close()

    def _run(self) -> None:
        warned = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                rows, last = dict(self._waiting), self._closing
            try:
                if rows:
                    self._catalog.note(rows, wait=CLOSING_SECONDS / (2 if last else 4))
                warned = False
            except Exception as error:
                if (last or not warned) and not self._is_dropped:
                    log.warning("%s. The recordings are intact; repair rewrites the catalog", error)
                warned = True
            with self._changed:
                if not warned:
                    self._waiting = {n: row for n, row in self._waiting.items() if row != rows.get(n)}
                if last:
                    return
                if warned:
                    self._changed.wait_for(lambda: self._closing, RETRY_SECONDS)
