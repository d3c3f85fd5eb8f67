"""Archives and folders of tables, as the page shows them: recordings, the progress of queries, each table's last commit.

A place that cannot be read is an error on the page; the others are still shown. Takes no lock and writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.record import Consumer, RecordingInfo, intervals

if TYPE_CHECKING:
    from penstock.tables.delta.places import Place

MOST = 500  # recordings that the page lists: the newest


class ArchiveView:
    """An archive, opened once."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._opened: penstock.Archive | None = None

    def read(self) -> dict[str, Any]:
        """Its recordings and queries now."""
        row: dict[str, Any] = {"path": str(self._path), "error": None, "total": 0, "recordings": [], "queries": []}
        try:
            self._opened = self._opened or penstock.Archive(self._path, create=False)
            found = self._opened.list()
            row["total"] = len(found)
            row["recordings"] = [_recording(info) for info in found[-MOST:]]
            row["queries"] = [_query(one, found) for one in _consumers(self._opened)]
        except (penstock.PenstockError, OSError) as error:
            row["error"] = str(error)
        return row


def _consumers(archive: penstock.Archive) -> list[Consumer]:
    try:
        return archive.consumers()
    except penstock.Unsupported:  # on an object storage
        return []


def _recording(info: RecordingInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "channel": info.channel,
        "state": info.state,
        "messages": info.messages,
        "bytes": info.bytes,
        "from_ms": (info.time_min if info.messages else info.created_ns) // 1_000_000,
        "seconds": info.seconds if info.messages else 0.0,
        "gaps": info.gaps,
        "lost_bytes": info.lost_bytes,
        "unsynced": info.end_position - info.synced_position,
        "damage": info.damage,
    }


def _query(consumer: Consumer, found: Sequence[RecordingInfo]) -> dict[str, Any]:
    """A query's progress, in bytes of its streams."""
    recorded = read = 0
    for info in found:
        if info.channel and consumer.wants(info.channel):
            there = [(info.start_position, info.end_position)]
            done = intervals.union(consumer.done.get((info.channel, info.epoch), []))
            recorded += intervals.total(there)
            read += intervals.total(intervals.common(there, done))
    return {"name": consumer.name, "updated_ms": consumer.updated_ns // 1_000_000, "recorded": recorded, "read": read}


class TablesView:
    """A folder of tables. A table's files are counted again only after a commit."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._known: dict[str, tuple[Any, dict[str, Any]]] = {}

    def read(self) -> dict[str, Any]:
        """Its tables now. writer: the process that writes them, if the system shows it."""
        row: dict[str, Any] = {"path": str(self._path), "error": None, "writer": None, "tables": []}
        try:
            from penstock.tables.delta.places import Place
            from penstock.tables.folder import LOCK
            from penstock.tables.reading import names

            place = Place.of(self._path)
            row["tables"] = [self._table(place, name) for name in names(place)]
            if place.is_local:
                row["writer"] = holder(Path(place.file(LOCK)))
        except (penstock.PenstockError, OSError) as error:
            row["error"] = str(error)
        return row

    def _table(self, folder: Place, name: str) -> dict[str, Any]:
        from penstock.tables.delta.table import Table

        commits = [info for info in (folder / name / "_delta_log").list() if info.base_name.endswith(".json")]
        newest = commits[-1] if commits else None
        key = None if newest is None else (newest.base_name, newest.mtime)
        known = self._known.get(name)
        if known is None or known[0] != key:
            row: dict[str, Any] = {"name": name, "committed_ms": None, "version": None, "error": None}
            if newest is not None and newest.mtime is not None:
                row["committed_ms"] = int(newest.mtime.timestamp() * 1000)
            try:
                found = Table.open(folder / name)
                if found is not None:
                    files = found.files()
                    row |= {"version": found.version, "channel": found.name, "files": len(files)}
                    row |= {"rows": sum(file.rows for file in files), "bytes": sum(file.size for file in files)}
            except (penstock.PenstockError, OSError) as error:
                row["error"] = str(error)
            known = self._known[name] = key, row
        return known[1]


def holder(path: Path) -> int | None:
    """The process that holds a file's lock, as the kernel lists it. None if there is none, or if the kernel hides it."""
    try:
        about = os.stat(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    for line in lines:
        words = line.split()
        if len(words) >= 6 and words[1] == "FLOCK" and words[3] == "WRITE" and words[5] == file:
            return int(words[4]) if int(words[4]) > 0 else None
    return None
