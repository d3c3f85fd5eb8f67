"""A table's share of the recordings: its files, the positions they cover, and what the pipeline must remember of them.

All of it changes with the table's commits or not at all. Knows tables; plans nothing and writes no file.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from penstock.columns.parts import table_name
from penstock.errors import Invalid
from penstock.record import Range, RecordingInfo, Truncation
from penstock.tables.delta import Table
from penstock.tables.delta_files import Added, File
from penstock.tables.places import Place

Row = dict[str, Any]
Key = tuple[str, int]  # a channel, and the epoch that its positions belong to
Interval = tuple[int, int]
OURS = re.compile(
    r"[A-Za-z0-9._-]*-(?P<source>[0-9a-f]{12})-(?P<start>\d{20})-(?P<end>\d{20})-[0-9a-f]{12}\.parquet", re.ASCII
)


def key_of(row: Row) -> Key:
    """The stream of an interval, a loss or a file."""
    return row["channel"], row["epoch"]


def source_of(planned: Range, generation: int) -> Row:
    """The source of a range's rows. generation: of the recording; it changes when repair or truncate cut it back."""
    return {
        "channel": planned.channel,
        "epoch": planned.epoch,
        "recording": planned.recording,
        "generation": generation,
        "codec": planned.codec,
    }


def digest(source: Row) -> str:
    """A source as a part of file names."""
    return hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()[:12]


def fresh_stem(source: Row, start: int, end: int) -> str:
    """A file's name without its suffix: readable, and never given twice, so that an attempt that was killed harms none."""
    return f"{table_name(source['channel'])}-{digest(source)}-{start:020d}-{end:020d}-{secrets.token_hex(6)}"


class Ledger:
    """One table and what it holds.

    files: path → {path, rows, bytes, start, end, time_min, time_max, and its source}. done: ranges that are in; cuts: of recordings,
    already applied. told: losses, and the position of the row that tells each; waiting: those that no message follows. keys: by codec,
    of streams whose messages bring their own; codecs: of a stream, in order. folders: of streams' own tables, by channel. old: files
    that were replaced, and when. about: anything else that must change with the table.
    """

    def __init__(self, place: Place, schema: pa.Schema | None, *, name: str | None = None) -> None:
        self.place, self.name, self._schema = place, name, schema
        self.table = Table.open(place)
        state = self.table.state() if self.table is not None else {}
        self.sources: dict[str, Row] = state.get("sources", {})
        self.done: list[Row] = state.get("done", [])
        self.cuts: list[int] = state.get("cuts", [])
        self.told: list[Row] = state.get("told", [])
        self.waiting: list[list[Any]] = state.get("waiting", [])
        self.keys: dict[str, list[Any]] = state.get("keys", {})
        self.codecs: list[Row] = state.get("codecs", [])
        self.folders: dict[str, str] = state.get("folders", {})
        self.old: list[list[Any]] = state.get("old", [])
        self.about: dict[str, Any] = state.get("about", {})
        self.checked = dict(self.keys)  # the keys that the last commit has
        self.files: dict[str, Row] = {}
        for file in self.table.files() if self.table is not None else ():
            self.files[file.path] = self._entry(file)
        if self.table is not None:
            self.table.tidy()
        self._adds: list[Added] = []
        self._removes: list[str] = []
        self._notes: dict[str, int] = {}
        self._changed = False

    def _entry(self, file: File) -> Row:
        found = OURS.fullmatch(file.path)
        source = self.sources.get(found["source"]) if found else None
        if found is None or source is None:
            raise Invalid(
                f"{self.place} has the file {file.path}, which the pipeline did not write: another program has written to this table "
                "or compacted it. Only the pipeline may; remove the table and run the pipeline again"
            )
        times = {"time_min": file.low.get("timestamp_ns"), "time_max": file.high.get("timestamp_ns")}
        span = {"start": int(found["start"]), "end": int(found["end"])}
        return {"path": file.path, "rows": file.rows, "bytes": file.size, **span, **times, **source}

    def begin(self) -> None:
        """Creates the table, if there is none yet."""
        if self.table is None:
            self.changed()
            self.commit()

    def intervals(self) -> dict[Key, list[Interval]]:
        """The positions that the table holds already, as the planner takes them."""
        found: dict[Key, list[Interval]] = {}
        for row in self.done:
            found.setdefault(key_of(row), []).append((row["start"], row["end"]))
        return found

    def add(self, source: Row, added: Added) -> None:
        """A file, with the next commit."""
        self.sources[digest(source)] = source
        self._adds.append(added)
        low, high = (added.stats.get(name, {}) for name in ("minValues", "maxValues"))
        self.files[added.path] = self._entry(File(added.path, added.size, added.rows, low, high))

    def cover(self, source: Row, intervals: Iterable[Interval]) -> None:
        """Positions that the table holds with the next commit."""
        for start, end in intervals:
            where = {name: source[name] for name in ("channel", "epoch", "recording")}
            self.done.append({**where, "start": start, "end": end})
            app = f"penstock/{source['channel']}/{source['epoch']}/{source['recording']}/{source['generation']:x}"
            self._notes[app] = max(self._notes.get(app, 0), min(end, (1 << 63) - 1))
            self._changed = True

    def take(self, source: Row, intervals: Iterable[Interval], file: list[Any] | None) -> None:
        """Adds a task's work on a range. file: None if the range has no row for this table."""
        if file is not None:
            self.add(source, Added.from_json(file))
        self.cover(source, intervals)

    def exchange(self, answers: list[Row]) -> None:
        """Files that tasks wrote in place of others."""
        for answer in answers:
            if "error" in answer:
                continue
            for path in answer["old"]:
                self.remove(path)
            if answer["file"] is not None:
                self.add(answer["source"], Added.from_json(answer["file"]))

    def fresh(self) -> set[str]:
        """Files that come with the next commit."""
        return {one.path for one in self._adds}

    def remove(self, path: str) -> None:
        """A file is the table's no more, with the next commit."""
        del self.files[path]
        self._removes.append(path)
        self.old.append([path, time.time()])

    def changed(self) -> None:
        """Notes that the state differs: the next commit has it."""
        self._changed = True

    def is_changed(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._adds or self._removes or self._changed)

    def forget(self, cuts: list[tuple[RecordingInfo, Truncation]]) -> list[tuple[Row, int]]:
        """Forgets what was read behind new cuts of recordings. Files of which nothing is left go; (file, position that its rows must be
        below) of the others."""
        lowest: dict[tuple[Key, int], int] = {}
        for info, cut in cuts:
            if cut.token not in self.cuts:
                which = ((info.channel, info.epoch), info.id)
                lowest[which] = min(lowest.get(which, cut.position), cut.position)
                self.cuts.append(cut.token)
                self._changed = self._changed or self.table is not None
        shorter = []
        for (key, recording), position in lowest.items():

            def concerned(row: Row, key: Key = key, recording: int = recording) -> bool:
                return key_of(row) == key and row["recording"] == recording

            for row in [row for row in self.files.values() if concerned(row) and row["end"] > position]:
                if row["start"] >= position:
                    self.remove(row["path"])
                else:
                    shorter.append((row, position))
            kept = [{**row, "end": min(row["end"], position)} if concerned(row) else row for row in self.done]
            self.done = [row for row in kept if row["start"] < row["end"]]
            self.told = [row for row in self.told if not concerned(row) or row["at"] < position]
        return shorter

    def commit(self, *, schema: pa.Schema | None = None, changes_data: bool = True) -> bool:
        """All that was added and removed since the last one, in one commit. Whether there was anything. schema: new columns or types."""
        if not self.is_changed() and schema is None:
            return False
        self.done = merged(self.done)
        used = {found["source"] for found in map(OURS.fullmatch, self.files) if found}
        self.sources = {name: row for name, row in self.sources.items() if name in used}
        state = {name: getattr(self, name) for name in _STATE if getattr(self, name)}
        if self.table is None:
            wanted = schema or self._schema
            assert wanted is not None
            options: Any = {"state": state, "notes": self._notes, "name": self.name}
            self.table = Table.create(self.place, wanted, self._adds, **options)
        else:
            self.table.commit(
                self._adds, self._removes, schema=schema, state=state, notes=self._notes, changes_data=changes_data
            )
        self._adds, self._removes, self._notes, self._changed = [], [], {}, False
        self.checked = dict(self.keys)
        return True


_STATE = ("sources", "done", "cuts", "told", "waiting", "keys", "codecs", "folders", "old", "about")


def merged(done: list[Row]) -> list[Row]:
    """Neighbouring ranges as one, so that the state stays short."""
    found: list[Row] = []
    names = ("channel", "epoch", "recording")
    for row in sorted(done, key=lambda r: (*(r[name] for name in names), r["start"])):
        last = found[-1] if found else None
        if last and last["end"] == row["start"] and all(last[name] == row[name] for name in names):
            last["end"] = row["end"]
        else:
            found.append(dict(row))
    return found
