"""The archive's catalog: which recordings exist and how far each is durable. SQLite.

A cache of what the folders say, but for `synced_position`, which only the recorder knows. Rebuilt when it is lost.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import Busy, Corrupt, SystemFailure

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


class Catalog:
    """Opens the database for each operation, so that it may be used from any thread and after a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self.path, timeout=30)
            try:
                with connection:
                    connection.execute(SCHEMA)
                    yield connection
            finally:
                connection.close()
        except sqlite3.OperationalError as error:  # the file system, or somebody who keeps the catalog locked
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Busy(f"the catalog {self.path} is locked by another process: {error}") from error
            raise SystemFailure(errno.EIO, f"cannot use the catalog {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(
                f"the catalog {self.path} is damaged ({error}): run repair, which rebuilds it from the recordings"
            ) from error

    def reserve(self, channel: str, epoch: int, created_ns: int, start_position: int) -> int:
        """A new recording's id."""
        with self._open() as db:
            cursor = db.execute(
                "INSERT INTO recordings (channel, epoch, created_ns, start_position, synced_position) VALUES (?, ?, ?, ?, ?)",
                (channel, epoch, created_ns, start_position, start_position),
            )
            return int(cursor.lastrowid or 0)

    def add(self, recording: int, channel: str, epoch: int, created_ns: int, start_position: int, synced: int) -> None:
        """A recording under a number of its own choice."""
        with self._open() as db:
            db.execute(
                "INSERT OR REPLACE INTO recordings VALUES (?, ?, ?, ?, ?, ?)",
                (recording, channel, epoch, created_ns, start_position, synced),
            )

    def synced(self, recording: int, position: int) -> None:
        """Notes that everything below `position` is durable. Call it only once it is."""
        with self._open() as db:
            db.execute("UPDATE recordings SET synced_position = ? WHERE id = ?", (position, recording))

    def rows(self) -> dict[int, tuple[str, int, int, int, int]]:
        """id → (channel, epoch, created_ns, start_position, synced_position)."""
        with self._open() as db:
            found = db.execute(
                "SELECT id, channel, epoch, created_ns, start_position, synced_position FROM recordings"
            ).fetchall()
        return {row[0]: row[1:] for row in found}

    def replace(self, rows: dict[int, tuple[str, int, int, int, int]]) -> None:
        """Makes these all there are, at once; for rebuilding."""
        with self._open() as db:
            db.execute("DELETE FROM recordings")
            db.executemany("INSERT INTO recordings VALUES (?, ?, ?, ?, ?, ?)", [(n, *row) for n, row in rows.items()])

    def remove(self, recording: int) -> None:
        """Forgets a recording."""
        with self._open() as db:
            db.execute("DELETE FROM recordings WHERE id = ?", (recording,))

    def check(self) -> str | None:
        """What SQLite finds wrong, or None. A fault of the file system may look like damage: it is looked at twice."""
        return self._check() and self._check()

    def _check(self) -> str | None:
        try:
            with self._open() as db:
                answer = db.execute("PRAGMA integrity_check").fetchone()[0]
        except Corrupt as error:
            return str(error)
        return None if answer == "ok" else str(answer)
