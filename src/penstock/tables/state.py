"""What the pipeline remembers of one table: which positions it has, and which cuts of recordings it has followed.

It is in the table's own log: a commit names the state that holds from then on. So it changes with the rows or not at all. Rows
themselves are never asked: whoever deletes some, or writes files anew, changes nothing here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import Invalid
from penstock.record import RecordingInfo, Truncation, intervals
from penstock.record.format.intervals import Interval
from penstock.tables.delta import Table
from penstock.tables.delta_files import Added
from penstock.tables.places import Place
from penstock.tables.schemas import signed

Key = tuple[str, int]  # a channel, and the epoch that its positions belong to
Row = dict[str, Any]
CACHE = ".known.json"
LOG = "_delta_log"


class Restored(Invalid):
    """A table was set back to an earlier version: only its user knows whether the rows that are gone shall come back."""


@dataclass
class State:
    """done: what was read, each {channel, epoch, recording, start, end}; cuts: that were followed. codecs: of a stream's recordings.
    told: losses that are in the table. seen: the table's version when this was written."""

    done: list[Row] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    codecs: dict[str, Any] = field(default_factory=dict)
    told: list[Row] = field(default_factory=list)
    seen: int = -1

    def to_json(self) -> Row:
        """As it is kept."""
        return {name: value for name, value in self.__dict__.items() if value or name == "seen"}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> State:
        """From `to_json`."""
        return cls(**{name: found[name] for name in cls.__dataclass_fields__ if name in found})

    def intervals(self) -> dict[Key, list[Interval]]:
        """The positions that were read, by stream."""
        found: dict[Key, list[Interval]] = {}
        for row in self.done:
            found.setdefault((row["channel"], row["epoch"]), []).append((row["start"], row["end"]))
        return {key: intervals.union(parts) for key, parts in found.items()}

    def cover(self, channel: str, epoch: int, recording: int, parts: Iterable[Interval]) -> None:
        """Positions that were read."""
        where = {"channel": channel, "epoch": epoch, "recording": recording}
        self.done = _joined([*self.done, *({**where, "start": low, "end": high} for low, high in parts)])

    def forget(self, info: RecordingInfo, cut: Truncation) -> None:
        """What was read of a recording behind a cut was not read."""
        kept = []
        for row in self.done:
            mine = (row["channel"], row["epoch"], row["recording"]) == (info.channel, info.epoch, info.id)
            kept.append({**row, "end": min(row["end"], cut.position)} if mine else row)
        self.done = [row for row in kept if row["start"] < row["end"]]
        self.cuts.append(cut.token)


def _joined(done: list[Row]) -> list[Row]:
    """Neighbours as one, so that the state stays short."""
    found: list[Row] = []
    names = ("channel", "epoch", "recording")
    for row in sorted(done, key=lambda one: (*(one[name] for name in names), one["start"])):
        last = found[-1] if found else None
        if last and last["end"] >= row["start"] and all(last[name] == row[name] for name in names):
            last["end"] = max(last["end"], row["end"])
        else:
            found.append(dict(row))
    return found


class Known:
    """Tables as they were when a run ended, by folder: a table without a commit since then need not be opened. In a file beside the
    tables; on an object storage there is none, and every table is opened."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._rows: dict[str, Row] = {}
        if place.is_local:
            try:
                with open(place.file(CACHE), encoding="utf-8") as file:
                    self._rows = json.load(file)
            except (OSError, ValueError):  # there is none, or it is damaged: tables are opened
                self._rows = {}

    def find(self, folder: str) -> Row | None:
        """What is known of a table that has had no commit since."""
        row = self._rows.get(folder)
        if row is None or _stamp(self._place / folder, row["version"]) != row["stamp"]:
            return None
        return None if os.path.exists(_log_file(self._place / folder, row["version"] + 1)) else row

    def version(self, folder: str, table: Table) -> int:
        """The version that this very table had; -1 if it is not known."""
        row = self._rows.get(folder)
        return row["version"] if row is not None and row["id"] == table.id else -1

    def state(self, folder: str) -> State:
        """The state that the table had then."""
        return State.of(self._rows[folder]["state"])

    def note(self, folder: str, table: Table, state: State) -> None:
        """A table as it is now."""
        if self._place.is_local:
            stamp = _stamp(self._place / folder, table.version)
            about = {"id": table.id, "name": table.name, "version": table.version}
            self._rows[folder] = {**about, "stamp": stamp, "state": state.to_json()}

    def save(self, folders: Iterable[str]) -> None:
        """Writes the file, with these tables only. Whether that succeeds matters to no row."""
        if not self._place.is_local:
            return
        kept = set(folders)
        rows = {folder: row for folder, row in self._rows.items() if folder in kept}
        path = self._place.file(CACHE)
        try:
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                json.dump(rows, file)
            os.replace(f"{path}.new", path)
        except OSError:
            return


def _log_file(place: Place, version: int) -> str:
    return place.file(f"{LOG}/{version:020d}.json")


def _stamp(place: Place, version: int) -> list[int] | None:
    try:
        found = os.stat(_log_file(place, version))
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns, found.st_size]


class Stored:
    """One table with its state. Opened when it is needed.

    folder: in the folder of tables. schema: of a table that is made now; name: of a stream's table its channel.
    """

    def __init__(
        self, root: Place, folder: str, known: Known, schema: pa.Schema | None = None, name: str | None = None
    ) -> None:
        self.place, self.folder, self.name = root / folder, folder, name
        self._known, self._schema = known, schema
        self._table: Table | None = None
        self._is_open = False
        self.restored = ""  # how it was set back, if it was and nobody has said what shall become of that
        self.state = State()
        self._is_known = (row := known.find(folder)) is not None
        if row is not None:
            self.state, self.name = State.of(row["state"]), row["name"]
        else:
            self.open()

    @property
    def table(self) -> Table | None:
        """The table as it is in this run; None if there is none yet."""
        return self.open()

    def open(self) -> Table | None:
        """Opens the table, unless that was done."""
        if not self._is_open:
            self._is_open = True
            self._table = Table.open(self.place)
            if self._table is not None and not self._is_known:
                self.state = State.of(self._table.state())
                self.name = self._table.name
                self.restored = self._set_back(self._table)
                self._table.tidy()
        return self._table

    def _set_back(self, table: Table) -> str:
        before = self._known.version(self.folder, table)
        if before > table.version:
            return f"it had version {before}, and has {table.version}"
        if self.state.seen < 0:
            return ""
        for version, operation in table.operations(self.state.seen):
            if operation == "RESTORE":
                return f"its version {version} is a RESTORE"
        return ""

    def accept(self, *, refilled: bool) -> None:
        """Goes on with a table that was set back. refilled: its state follows from its rows now; else it is what it was before."""
        if self._table is None:
            return
        if not refilled and self._known.version(self.folder, self._table) > self._table.version:
            self.state = self._known.state(self.folder)
        self.restored = ""
        self.commit()

    def check(self) -> None:
        """`Restored` if it was set back."""
        if self.restored:
            raise Restored(
                f"{self.place} was set back: {self.restored}. Say what shall become of the rows that are gone: --restored keep leaves them out, "
                "--restored refill reads them from the archive again"
            )

    def commit(
        self,
        adds: Sequence[Added] = (),
        *,
        schema: pa.Schema | None = None,
        replaces: bool = False,
        removes: Sequence[str] = (),
    ) -> None:
        """Files and the state, in one commit. schema: with columns that are new."""
        table = self.open()
        self.state.seen = -1 if table is None else table.version
        if table is None:
            wanted = schema or self._schema
            assert wanted is not None
            self._table = Table.create(self.place, wanted, adds, state=self.state.to_json(), name=self.name)
        else:
            table.commit(adds, removes, schema=schema, state=self.state.to_json(), replaces=replaces)
        assert self._table is not None
        self._known.note(self.folder, self._table, self.state)

    def delete(self, predicate: str) -> int:
        """Deletes rows, and keeps the state, in one commit. How many."""
        table = self.open()
        assert table is not None
        self.state.seen = table.version
        count = table.delete(predicate, self.state.to_json())
        self._known.note(self.folder, table, self.state)
        return count


def cut_predicate(info: RecordingInfo, cut: Truncation) -> str:
    """SQL of the rows behind a cut of a recording."""
    return f"epoch = {signed(info.epoch)} AND recording = {info.id} AND position >= {cut.position}"


def sql_text(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
