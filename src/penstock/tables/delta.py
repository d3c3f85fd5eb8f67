"""One Delta table: a snapshot of its log, and commits to it, each made exactly once. The only module that knows `deltalake`.

Log operations only: Parquet files are written and read by others. A table's writer keeps its notes in the table's state, a JSON
document that changes with a commit or not at all; see docs/design/pipeline.md.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from penstock.errors import Busy, Corrupt, NotFound, PenstockError
from penstock.tables.delta_files import Added, File, same_type
from penstock.tables.places import Place
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    from deltalake import DeltaTable

STATE = "_penstock"  # a folder in the table: readers and VACUUM leave folders with such names alone
APP = "penstock"  # the application whose transactions say which state is the table's
# A reader opens a checkpoint and the commits since. Commits may come every second: the log keeps those of a day.
SETTINGS = {"delta.checkpointInterval": "20", "delta.logRetentionDuration": "interval 1 days"}
UNCOMMITTED_S = 3600.0  # by then, a writer has committed its state or is dead


class Table:
    """A snapshot of a Delta table. `commit` moves it on; other writers' commits are seen by the next `open`."""

    def __init__(self, place: Place, found: DeltaTable) -> None:
        self.place, self._found = place, found

    @classmethod
    def open(cls, place: Place, version: int | None = None) -> Table | None:
        """The table as it is now, or as it was at a version; None if there is none. `Corrupt` if its log cannot be read."""
        deltalake = _deltalake()
        try:
            return cls(place, deltalake.DeltaTable(str(place), version=version, storage_options=place.storage_options))
        except deltalake.exceptions.TableNotFoundError:
            return None
        except deltalake.exceptions.DeltaError as error:
            if version is not None:
                raise NotFound(f"{place} has no version {version}: {_line(error)}") from error
            raise Corrupt(f"the log of {place} cannot be read: {_line(error)}") from error

    @classmethod
    def create(
        cls,
        place: Place,
        schema: pa.Schema,
        adds: Sequence[Added] = (),
        *,
        state: Mapping[str, Any] | None = None,
        marks: Mapping[str, int] | None = None,
        notes: Mapping[str, int] | None = None,
        name: str | None = None,
        description: str | None = None,
    ) -> Table:
        """A new table, with its first files. `Busy` if another writer has created it meanwhile."""
        deltalake = _deltalake()
        from deltalake.transaction import create_table_with_add_actions

        place.make()
        try:
            create_table_with_add_actions(
                str(place),
                deltalake.Schema.from_arrow(schema),
                _actions(adds),
                name=name,
                description=description,
                configuration=SETTINGS,
                storage_options=place.storage_options,
                commit_properties=_next(place, 0, state, {**(notes or {}), **(marks or {})})[1],
            )
        except (deltalake.exceptions.DeltaError, OSError) as error:
            if "already exists" in str(error):
                raise Busy(f"another writer has created {place} meanwhile: run it again") from error
            raise PenstockError(f"{place} cannot be created: {_line(error)}") from error
        made = cls.open(place)
        assert made is not None
        return made

    @property
    def version(self) -> int:
        """The snapshot's version: it rises with each commit."""
        return self._found.version()

    @property
    def id(self) -> str:
        """A name that no other table has: one that was removed and made again has another."""
        return str(self._found.metadata().id)

    @property
    def schema(self) -> pa.Schema:
        """Its columns, with the metadata of each."""
        return pa.schema(self._found.schema().to_arrow())

    @property
    def name(self) -> str | None:
        """The name in its metadata. A stream's table has the stream's."""
        name: str | None = self._found.metadata().name
        return name

    @property
    def description(self) -> str | None:
        """The description in its metadata. A user's table has its comment."""
        text: str | None = self._found.metadata().description
        return text

    def describe(self, text: str) -> None:
        """Gives it a description, if it has another."""
        if text != (self.description or ""):
            with self._altering():
                self._found.alter.set_table_description(text)
                self._found.update_incremental()

    @contextlib.contextmanager
    def _altering(self) -> Iterator[None]:
        """Within it, errors of the log are this library's."""
        deltalake = _deltalake()
        try:
            yield
        except (deltalake.exceptions.DeltaError, OSError) as error:
            kind = Busy if isinstance(error, deltalake.exceptions.CommitFailedError) else PenstockError
            raise kind(f"the commit to {self.place} failed: {_line(error)}") from error

    def files(self) -> list[File]:
        """Its Parquet files."""
        rows = pa.table(self._found.get_add_actions(flatten=True)).to_pylist()
        return [
            File(
                row["path"],
                row["size_bytes"],
                row["num_records"] or 0,
                {name[4:]: value for name, value in row.items() if name.startswith("min.") and value is not None},
                {name[4:]: value for name, value in row.items() if name.startswith("max.") and value is not None},
            )
            for row in rows
        ]

    def count(self) -> int:
        """Its rows, by the log."""
        return sum(file.rows for file in self.files())

    def uris(self) -> list[str]:
        """Its Parquet files, as other readers take them."""
        return sorted(self.place.location(file.path) for file in self.files())

    def mark(self, app: str) -> int | None:
        """The version of an application's last transaction."""
        return self._found.transaction_version(app)

    def _has(self, app: str, version: int) -> bool:
        there = self.mark(app)
        return there is not None and there >= version

    def changes(self, since: int) -> tuple[list[File], list[File]]:
        """(files that came, files that went) between a version and this one. Files that only hold the same rows as others did are left
        out. `NotFound` if the log does not go back so far."""
        known: dict[str, File] = {}
        came, went = list[File](), list[str]()
        for action in self._actions_since(since):
            if found := action.get("add"):
                file = known[unquote(found["path"])] = _file_in_log(found)
                came += [file] if found["dataChange"] else []
            elif (found := action.get("remove")) and found.get("dataChange", True):
                went.append(unquote(found["path"]))
        if not known.keys() >= set(went):
            before = Table.open(self.place, since)
            assert before is not None
            known |= {file.path: file for file in before.files()}
        return came, [known[path] for path in went]

    def has_same_rows(self, since: int) -> bool:
        """Whether rows and columns are those of an earlier version, as far as the log says."""
        try:
            actions = self._actions_since(since)
            changes = [
                found for action in actions for kind, found in action.items() if kind in ("add", "remove", "metaData")
            ]
        except NotFound:
            return False
        return not any(found.get("dataChange", True) for found in changes)

    def _actions_since(self, version: int) -> Iterator[dict[str, Any]]:
        """The actions of later commits, in order."""
        if version > self.version:
            raise NotFound(f"{self.place} has no version {version}")
        for number in range(version + 1, self.version + 1):
            try:
                lines = (self.place / "_delta_log").read(f"{number:020d}.json").splitlines()
            except FileNotFoundError as error:
                raise NotFound(f"the log of {self.place} does not go back to version {version}") from error
            yield from map(json.loads, lines)

    def operations(self, since: int) -> Iterator[tuple[int, str]]:
        """(version, operation) of later commits, as far as the log goes back."""
        for version in range(since + 1, self.version + 1):
            try:
                lines = (self.place / "_delta_log").read(f"{version:020d}.json").splitlines()
            except FileNotFoundError:
                continue
            for line in lines:
                if found := json.loads(line).get("commitInfo"):
                    yield version, str(found.get("operation", ""))

    def delete(self, predicate: str, state: Mapping[str, Any]) -> int:
        """Deletes rows by a predicate of SQL, and remembers `state`, in one commit. How many rows. Files without such rows stay."""
        before = self.mark(APP) or 0
        _, properties = _next(self.place, before, state, {})
        with self._altering():
            done = self._found.delete(predicate, commit_properties=properties)
            self._found.update_incremental()
        if not done.get("num_removed_files"):  # then there was no commit
            self.commit(state=state)
        elif before:
            (self.place / STATE).delete(_state_file(before))
        return int(done.get("num_deleted_rows") or 0)

    def compact(self, target_bytes: int) -> None:
        """Joins small files. Rows stay as they are, and so do readers' snapshots."""
        with self._altering():
            self._found.optimize.compact(target_size=target_bytes)
            self._found.update_incremental()

    def vacuum(self, hours: int) -> int:
        """Deletes files that were replaced longer ago. How many."""
        with self._altering():
            gone = self._found.vacuum(retention_hours=hours, enforce_retention_duration=False, dry_run=False)
        return len(gone)

    def state(self) -> dict[str, Any]:
        """The notes of its writer. Empty if it never did. `Corrupt` if the file is not there."""
        number = self.mark(APP)
        if number is None:
            return {}
        try:
            found: dict[str, Any] = json.loads((self.place / STATE).read(_state_file(number)))
        except (OSError, ValueError) as error:
            again = Table.open(self.place)
            if again is not None and again.mark(APP) != number:
                raise Busy(f"another pipeline is writing to {self.place}: run it again") from error
            raise Corrupt(
                f"{self.place}/{STATE}/{_state_file(number)} cannot be read ({_line(error)}): remove {self.place} and run the "
                "pipeline again"
            ) from error
        return found

    def commit(
        self,
        adds: Sequence[Added] = (),
        removes: Iterable[str] = (),
        *,
        schema: pa.Schema | None = None,
        state: Mapping[str, Any] | None = None,
        marks: Mapping[str, int] | None = None,
        notes: Mapping[str, int] | None = None,
        changes_data: bool = True,
        replaces: bool = False,
    ) -> None:
        """One commit: all of it becomes visible, or nothing. Afterwards this is the new snapshot.

        adds, removes: files. schema: the columns from now on; where one of them gets another type, `adds` must be all of the table's
        files. state: what the writer remembers from now on. marks: application → version; a mark that is there already means that this
        commit was made: then nothing is done. notes: transactions that say how far a stream is, and decide nothing. changes_data: False where other files hold the same rows. replaces: `adds` and
        `schema` are all that the table has from now on. `Busy` if another writer's
        commit came between.
        """
        if marks and all(self._has(app, version) for app, version in marks.items()):
            return
        deltalake = _deltalake()
        from deltalake.transaction import PostCommitHookProperties

        before = self.mark(APP) or 0
        with self._altering():
            retyped = replaces or (self._evolve(schema) if schema is not None else False)
            if replaces and schema is not None:
                self._allow(schema)
        gone = () if retyped else [_remove(path, changes_data) for path in removes]
        number, properties = _next(self.place, before, state, {**(notes or {}), **(marks or {})})
        try:
            self._found.create_write_transaction(
                [*_actions(adds, changes_data), *gone],
                "overwrite" if retyped else "append",
                deltalake.Schema.from_arrow(schema) if retyped else self._found.schema(),
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
            )
        except (deltalake.exceptions.DeltaError, OSError) as error:
            again = Table.open(self.place)
            if again is None or not self._is_made(again, number, marks):
                kind = Busy if isinstance(error, deltalake.exceptions.CommitFailedError) else PenstockError
                raise kind(f"the commit to {self.place} failed: {_line(error)}") from error
        # A snapshot that is not brought up to date fails at the next commit of the same application.
        self._found.update_incremental()
        if state is not None and before:
            (self.place / STATE).delete(_state_file(before))

    def _is_made(self, again: Table, number: int | None, marks: Mapping[str, int] | None) -> bool:
        if number is not None:
            return again.mark(APP) == number
        return bool(marks) and all(again.mark(app) == version for app, version in (marks or {}).items())

    def _evolve(self, schema: pa.Schema) -> bool:
        """Adds columns that are new. Whether others have another type now, which takes a commit of all files."""
        self._allow(schema)
        deltalake = _deltalake()
        there = {f.name: f for f in self.schema}
        if any(f.name in there and not same_type(there[f.name].type, f.type) for f in schema):
            return True
        fresh = [f for f in schema if f.name not in there]
        if fresh:
            self._found.alter.add_columns(list(deltalake.Schema.from_arrow(pa.schema(fresh)).fields))
        return False

    def _allow(self, schema: pa.Schema) -> None:
        """Times without a zone take a feature of the table."""
        deltalake = _deltalake()
        there = {f.name: f.type for f in self.schema}
        fresh = [f for f in schema if there.get(f.name) != f.type]
        if any(pa.types.is_timestamp(f.type) and f.type.tz is None for f in fresh):
            features = self._found.protocol().reader_features or []
            if "timestampNtz" not in features:
                self._found.alter.add_feature(
                    deltalake.TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
                )

    def tidy(self) -> None:
        """Deletes states that no commit names: those of writers that were killed. Where there are no locks, a young one may be another
        writer's, who has yet to commit it."""
        current = self.mark(APP)
        for info in (self.place / STATE).list():
            is_old = self.place.is_local or (info.mtime and time.time() - info.mtime.timestamp() > UNCOMMITTED_S)
            if is_old and info.base_name != (None if current is None else _state_file(current)):
                (self.place / STATE).delete(info.base_name)


def _file_in_log(found: dict[str, Any]) -> File:
    about = json.loads(found.get("stats") or "{}")
    low, high = about.get("minValues", {}), about.get("maxValues", {})
    return File(unquote(found["path"]), found["size"], about.get("numRecords", 0), low, high)


def _actions(adds: Sequence[Added], changes_data: bool = True) -> list[Any]:
    _deltalake()
    from deltalake.transaction import AddAction

    now = math.floor(time.time() * 1000)
    return [AddAction(one.path, one.size, {}, now, changes_data, json.dumps(one.stats)) for one in adds]


def _remove(path: str, changes_data: bool) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(path, changes_data, math.floor(time.time() * 1000))


def _state_file(number: int) -> str:
    return f"state-{number}.json"


def _next(
    place: Place, before: int, state: Mapping[str, Any] | None, marks: Mapping[str, int] | None
) -> tuple[int | None, Any]:
    """(number of the new state, properties of the commit that makes it the table's). The state is written first."""
    from deltalake import CommitProperties, Transaction

    number = None
    transactions = [Transaction(app, version) for app, version in (marks or {}).items()]
    if state is not None:
        number = max(time.time_ns(), before + 1)  # no killed writer has used it
        (place / STATE).write(_state_file(number), json.dumps(state).encode())
        transactions.append(Transaction(APP, number))
    return number, CommitProperties(app_transactions=transactions, max_commit_retries=3)


def _line(error: BaseException) -> str:
    """An error in one line. Those of the log are trees of causes, in colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip(" ↳") for line in plain.splitlines() if line.strip(" ↳")]
    return ": ".join(lines)[:300] or type(error).__name__


def _deltalake() -> Any:
    with explain_missing("a Delta table"):
        import deltalake
        import deltalake.exceptions
    return deltalake
