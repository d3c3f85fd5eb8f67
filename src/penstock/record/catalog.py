"""The archive's catalog: which recordings exist and how far each is durable. SQLite.

A cache of what the folders say, but for `synced_position`, which only the recorder knows. Rebuilt when it is lost.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import Corrupt

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
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
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
        """Puts a recording back; for rebuilding."""
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

    def remove(self, recording: int) -> None:
        """Forgets a recording."""
        with self._open() as db:
            db.execute("DELETE FROM recordings WHERE id = ?", (recording,))

    def check(self) -> str | None:
        """What SQLite finds wrong, or None."""
        try:
            with self._open() as db:
                answer = db.execute("PRAGMA integrity_check").fetchone()[0]
        except (Corrupt, sqlite3.OperationalError) as error:
            return str(error)
        return None if answer == "ok" else str(answer)
