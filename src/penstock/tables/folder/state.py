"""What the pipeline remembers of one table: which positions it has, and which cuts of recordings it has followed.

It is in the table's own log: a commit names the state that holds from then on. So it changes with the rows or not at all. Rows
themselves are never read: deleting some, or rewriting files, changes nothing here.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import Invalid
from penstock.record import RecordingInfo, Truncation, intervals
from penstock.record.format.intervals import Interval
from penstock.tables.delta.files import Added
from penstock.tables.delta.places import LOG, Place
from penstock.tables.delta.table import Table
from penstock.tables.delta.transactions import OWNER
from penstock.tables.schemas import signed

Key = tuple[str, int]  # a channel, and the epoch that its positions belong to
Row = dict[str, Any]
CACHE = ".known.json"
WAYS = (
    "Say to penstock pipeline what shall become of the rows that are gone: --restored keep leaves them out, --restored refill reads them "
    "from the archive again"
)


class Restored(Invalid):
    """A table was set back to an earlier version: only its user knows whether the rows that are gone shall come back."""


@dataclass
class State:
    """done: what was read, each {channel, epoch, recording, start, end}; cuts: that were followed. codecs: of a stream's recordings, by `recording_key`.
    told: losses that are in the table. seen: the table's version when this was written. erased: how many of the folder's erasures the
    table has followed. rows: how many the table has with the commit of this state; -1 if that is not known. owner: the pipeline that made it."""

    done: list[Row] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    codecs: dict[str, Any] = field(default_factory=dict)
    told: list[Row] = field(default_factory=list)
    seen: int = -1
    erased: int = 0
    rows: int = -1
    owner: str = ""

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

    def cover(self, rows: Iterable[Row] = ()) -> None:
        """Positions that were read, as rows of `done`. It goes through all rows that there are: once for a commit."""
        self.done = _merge_neighbours([*self.done, *rows])

    def forget(self, info: RecordingInfo, cut: Truncation) -> None:
        """What was read of a recording behind a cut was not read."""
        kept = []
        for row in self.done:
            mine = (row["channel"], row["epoch"], row["recording"]) == (info.channel, info.epoch, info.id)
            kept.append({**row, "end": min(row["end"], cut.position)} if mine else row)
        self.done = [row for row in kept if row["start"] < row["end"]]
        self.cuts.append(cut.token)


def _merge_neighbours(done: list[Row]) -> list[Row]:
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
                    found = json.load(file)
                if found["crc32"] == _crc(found["tables"]):
                    self._rows = found["tables"]
            except (OSError, ValueError, TypeError, LookupError):
                pass  # there is none, or it is damaged: tables are opened

    def find(self, folder: str) -> Row | None:
        """What is known of a table that has had no commit since."""
        row = self._rows.get(folder)
        if row is None or stamp(self._place / folder, row["version"]) != row["stamp"]:
            return None
        return None if has_version(self._place / folder, row["version"] + 1) else row

    def version(self, folder: str, table: Table) -> int:
        """The version that this very table had; -1 if it is not known."""
        row = self._rows.get(folder)
        return row["version"] if row is not None and row["id"] == table.id else -1

    def is_another(self, folder: str) -> bool:
        """Whether the commit that was the table's last has been replaced by another one of its number."""
        now = _sum(self._place / folder, self._rows[folder]["version"])
        return now is not None and now != self._rows[folder]["sum"]

    def state(self, folder: str) -> State:
        """The state that the table had then."""
        return State.of(self._rows[folder]["state"])

    def note(self, folder: str, table: Table, state: State) -> None:
        """A table as it is now."""
        if self._place.is_local:
            about = {"id": table.id, "name": table.name, "version": table.version}
            self._rows[folder] = {
                **about,
                "stamp": stamp(self._place / folder, table.version),
                "sum": table.checksum(),
                "state": state.to_json(),
            }

    def forget(self, folder: str) -> None:
        """The next run opens this table."""
        self._rows.pop(folder, None)

    def save(self, folders: Iterable[str]) -> None:
        """Writes the file, with these tables only. Whether that succeeds matters to no row."""
        if not self._place.is_local:
            return
        kept = set(folders)
        rows = {folder: row for folder, row in self._rows.items() if folder in kept}
        try:
            self._place.replace(CACHE, json.dumps({"crc32": _crc(rows), "tables": rows}).encode())
        except OSError:
            return


def _crc(rows: Any) -> int:
    return zlib.crc32(json.dumps(rows).encode())


def _log_file(place: Place, version: int) -> str:
    return place.file(f"{LOG}/{version:020d}.json")


def has_version(place: Place, version: int) -> bool:
    """Whether the log of a table in a folder has a version."""
    return os.path.exists(_log_file(place, version))


def stamp(place: Place, version: int) -> list[int] | None:
    """The same as long as a version of a table in a folder is that very one; None if the log has it no more."""
    try:
        found = os.stat(_log_file(place, version))
    except OSError:
        return None
    return [found.st_ino, found.st_mtime_ns, found.st_size]


def _sum(place: Place, version: int) -> int | None:
    try:
        with open(_log_file(place, version), "rb") as file:
            return zlib.crc32(file.read())
    except OSError:  # the log was cleaned up
        return None


class Stored:
    """One table with its state. Opened when it is needed.

    folder: in the folder of tables. owner: its pipeline. schema: of a table that is made now; name: of a stream's table its channel.
    """

    def __init__(
        self,
        root: Place,
        folder: str,
        known: Known,
        owner: str,
        schema: pa.Schema | None = None,
        name: str | None = None,
    ) -> None:
        self.place, self.folder, self.name = root / folder, folder, name
        self._known, self._owner, self._schema = known, owner, schema
        self._table: Table | None = None
        self._is_open = False
        self._looked = -1  # the newest version up to which others' commits have been looked at
        self._mark: tuple[int, list[int] | None] = -1, None  # the version of which this object knows, and its stamp
        self.is_changed = False
        self._counted = -1  # the version that has the rows of the state
        self.restored = ""  # how it was set back, if it was and nobody has said what shall become of that
        self.state = State()
        self.is_foreign = False  # another program's table, or another pipeline's: it is not touched
        row = known.find(folder)
        self._is_known = row is not None and row["state"].get(OWNER) == owner
        if row is not None and self._is_known:
            self.state, self.name, self._looked = State.of(row["state"]), row["name"], row["version"]
            self._mark = row["version"], row["stamp"]
        else:
            self.open()

    @property
    def is_absent(self) -> bool:
        """Whether there is no table yet. A known one need not be opened for that."""
        return not self._is_known and self.open() is None

    @property
    def table(self) -> Table | None:
        """The table as it is in this run; None if there is none yet."""
        return self.open()

    def open(self) -> Table | None:
        """Opens the table, unless that was done."""
        if not self._is_open:
            self._is_open = True
            self._table = Table.open(self.place)
            self.is_foreign = self._table is not None and not self._table.is_by(self._owner)
            if self._table is not None and self.is_foreign:
                self.name = self._table.name
            elif self._table is not None and not self._is_known:
                self.state = State.of(self._table.state())
                self.name, self._looked = self._table.name, self.state.seen
                self.restored = self._lost_commit(self._table)
                self._look(self._table)
                self._table.tidy()
        return self._table

    def is_as_noted(self) -> bool:
        """Whether the table is as this object knows it: nobody else has written to it or removed it. On an object storage it is not asked."""
        version, then = self._mark
        if not self.place.is_local or version < 0:
            return True
        return stamp(self.place, version) == then and not has_version(self.place, version + 1)

    def _lost_commit(self, table: Table) -> str:
        """How a table shows that it has its last commit no more; empty if it has it, or if that commit is not known."""
        before = self._known.version(self.folder, table)
        if before > table.version:
            return f"it had version {before}, and has {table.version}"
        if before >= 0 and self._known.is_another(self.folder):
            return f"its version {before} is not the one that it had"
        return ""

    def _look(self, table: Table) -> None:
        """Looks at the commits since the last look. A RESTORE among them is not passed: each later look finds it again."""
        self.restored = self.restored or set_back(table, self.state, self._looked)
        if not self.restored:
            self._looked = table.version
        if self.place.is_local:
            self._mark = table.version, stamp(self.place, table.version)

    def recalled(self) -> State:
        """The state that a table had before it was set back."""
        is_older = self._table is not None and self._lost_commit(self._table)
        return self._known.state(self.folder) if is_older else self.state

    def accept(self, gone: Sequence[str]) -> None:
        """Goes on with a table that was set back, in one commit: a run that dies before it has changed nothing. gone: SQL of rows that go."""
        self.restored = ""
        if self._table is not None:
            self._looked = self._table.version
        if gone:
            self.delete(" OR ".join(f"({one})" for one in gone))
        else:
            self.commit()

    def check(self) -> None:
        """`Restored` if it was set back."""
        if self.restored:
            raise Restored(f"{self.place} was set back: {self.restored}. {WAYS}")

    def commit(
        self,
        adds: Sequence[Added] = (),
        *,
        schema: pa.Schema | None = None,
        replaces: bool = False,
        removes: Sequence[str] = (),
    ) -> None:
        """Files and the state, in one commit. schema: with columns that are new."""
        table = self._begin()
        gone = set(removes)
        if table is None or replaces:
            self.state.rows = 0
        elif self._counted != table.version or self.state.rows < 0:
            self.state.rows = table.count()
        self.state.rows += sum(one.rows for one in adds)
        if table is not None and gone:
            self.state.rows -= sum(file.rows for file in table.files() if file.path in gone)
        if table is None:
            wanted = schema or self._schema
            assert wanted is not None
            self._table = Table.create(self.place, wanted, adds, state=self.state.to_json(), name=self.name)
        else:
            table.commit(adds, removes, schema=schema, state=self.state.to_json(), replaces=replaces)
        self.is_changed = True
        self._end()
        self._counted = self._table.version if self._table is not None else -1

    def _begin(self) -> Table | None:
        """Before a commit. The state that it writes says up to which version others' commits were looked at. `Restored` as for `check`."""
        table = self.open()
        if table is not None:
            self._look(table)
            self.check()
        self.state.seen, self.state.owner = self._looked, self._owner
        return table

    def _end(self) -> None:
        """After a commit, which others' may have come before."""
        assert self._table is not None
        self._look(self._table)
        if self.restored:
            self._known.forget(self.folder)
        else:
            self._known.note(self.folder, self._table, self.state)

    def delete(self, predicate: str) -> int:
        """Deletes rows, and keeps the state, in one commit. How many."""
        table = self._begin()
        assert table is not None
        self.state.rows = -1  # the commit counts them
        count = table.delete(predicate, self.state.to_json())
        self._end()
        return count


def set_back(table: Table, state: State, since: int) -> str:
    """How the commits behind a version have set back a table, whose state knows of more rows then; empty if they have not. Commits that the
    log has no more may have, if rows are gone."""
    gap = False
    for version, operation in table.operations(since):
        if operation == "RESTORE":
            return f"its version {version} is a RESTORE"
        gap = gap or operation is None
    if gap and (count := table.count()) < state.rows:
        return f"it had {state.rows} rows and has {count}, and its log was cleaned up: it does not say whether that was a RESTORE"
    return ""


def cut_predicate(info: RecordingInfo, cut: Truncation) -> str:
    """SQL of the rows behind a cut of a recording."""
    return f"epoch = {signed(info.epoch)} AND recording = {info.id} AND position >= {cut.position}"


def sql_text(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
