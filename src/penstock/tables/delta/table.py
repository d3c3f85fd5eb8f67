"""One Delta table: a snapshot of its log, and commits to it, each made exactly once. This module and `transactions` are the only ones that know `deltalake`.

Log operations only: Parquet files are written and read by others. A table's writer keeps its notes in the table's state, a JSON
document that changes with a commit or not at all; see docs/design/tables.md.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from penstock.errors import Busy, Corrupt, Invalid, NotFound, PenstockError
from penstock.tables.delta.files import Added, File, holds_local_times, holds_local_times_in_maps, same_type
from penstock.tables.delta.places import LOG, Place, clear, has_log
from penstock.tables.delta.rules import check_rules
from penstock.tables.delta.snapshot import ATTEMPTS, Snapshot, opened, was_cleaned
from penstock.tables.delta.transactions import (
    APP,
    OWNER,
    STATE,
    file_actions,
    load_deltalake,
    next_state,
    state_file,
)
from penstock.util.errors_in_text import in_one_line

if TYPE_CHECKING:
    from deltalake import DeltaTable

SETTINGS = {"delta.checkpointInterval": "20"}  # a reader opens a checkpoint and the commits since
CLEAN_COMMITS = 100  # the log is looked through so seldom for commits that it keeps no longer: that asks for the age of every file of it
UNCOMMITTED_S = 3600.0  # by then, a writer has committed its state or is dead


class Table(Snapshot):
    """A snapshot of a Delta table. `commit` moves it on; other writers' commits are seen by the next `open`."""

    def __init__(self, place: Place, found: DeltaTable) -> None:
        super().__init__(place, found)
        self._read = -1, 0  # the last commit that was read, and its checksum

    @classmethod
    def open(cls, place: Place, version: int | None = None) -> Table | None:
        """The table as it is now, or as it was at a version; None if there is none. `Corrupt` if its log cannot be read."""
        deltalake = load_deltalake()
        try:
            return cls(place, opened(place, version))
        except deltalake.exceptions.DeltaError as error:
            if version is not None and (newest := cls.open(place)) is not None:
                why = "the log does not go back so far, and " if version < newest.version else ""
                raise NotFound(f"{place} has no version {version}: {why}the newest is {newest.version}") from error
            if isinstance(error, deltalake.exceptions.TableNotFoundError):
                return None
            raise Corrupt(f"the log of {place} cannot be read: {in_one_line(error)}") from error

    @classmethod
    def create(
        cls,
        place: Place,
        schema: pa.Schema,
        adds: Sequence[Added] = (),
        *,
        state: Mapping[str, Any] | None = None,
        marks: Mapping[str, int] | None = None,
        name: str | None = None,
        description: str | None = None,
    ) -> Table:
        """A new table, with its first files. `Busy` if another writer has created it meanwhile."""
        deltalake = load_deltalake()
        from deltalake.transaction import create_table_with_add_actions

        late = [one for one in schema if holds_local_times_in_maps(one.type)]
        if late:  # delta-rs gives such a column the feature that it takes only where there is a table
            rest = pa.schema([one for one in schema if one not in late])
            begun = None if state is None else {key: state[key] for key in state if key == OWNER}
            made = cls.create(place, rest, state=begun, name=name, description=description)
            made.commit(adds, schema=schema, state=state, marks=marks)
            return made
        place.make()
        try:
            create_table_with_add_actions(
                str(place),
                deltalake.Schema.from_arrow(schema),
                file_actions(adds),
                name=name,
                description=description,
                configuration=SETTINGS,
                storage_options=place.storage_options,
                commit_properties=next_state(place, 0, state, marks)[1],
            )
        except (deltalake.exceptions.DeltaError, OSError) as error:
            if "already exists" in str(error):
                raise Busy(f"another writer has created {place} meanwhile: run it again") from error
            if not has_log(place):  # nothing is left of it
                clear(place / STATE, place / LOG)
            raise PenstockError(f"{place} cannot be created: {in_one_line(error)}") from error
        found = cls.open(place)
        assert found is not None
        return found

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
        return cast("str | None", self._found.metadata().name)

    @property
    def description(self) -> str | None:
        """The description in its metadata. A user's table has its comment."""
        return cast("str | None", self._found.metadata().description)

    def describe(self, text: str) -> None:
        """Gives it a description, if it has another."""
        if text != (self.description or ""):
            with self._altering():
                self._found.alter.set_table_description(text)
                self._found.update_incremental()

    def files(self) -> list[File]:
        """Its Parquet files."""
        rows = pa.table(self._ask(lambda found: found.get_add_actions(flatten=True))).to_pylist()
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

    def has_same_rows(self, since: int) -> bool:
        """Whether rows and columns are those of an earlier version, as far as the log says."""
        if since > self.version:
            return False
        unknown: list[dict[str, Any]] = [{"add": {}}]  # a commit that the log has no more may have changed anything
        actions = chain.from_iterable(self._actions(one) or unknown for one in range(since + 1, self.version + 1))
        changed = (found for one in actions for kind, found in one.items() if kind in ("add", "remove", "metaData"))
        return not any(found.get("dataChange", True) for found in changed)

    def operations(self, since: int) -> Iterator[tuple[int, str | None]]:
        """(version, operation) of later commits; None for one that the log has no more."""
        for version in range(since + 1, self.version + 1):
            actions = self._actions(version)
            if actions is None:
                yield version, None
            for action in actions or ():
                if found := action.get("commitInfo"):
                    yield version, str(found.get("operation", ""))

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """What a commit did; None if the log does not go back so far."""
        try:
            content = (self.place / LOG).read(f"{version:020d}.json")
        except FileNotFoundError:
            return None
        self._read = version, zlib.crc32(content)
        return [json.loads(line) for line in content.splitlines()]

    def checksum(self) -> int | None:
        """Of the newest commit's file; None if the log has it no more. After `operations` it is known."""
        if self._read[0] != self.version:
            self._actions(self.version)
        return self._read[1] if self._read[0] == self.version else None

    def delete(self, predicate: str, state: Mapping[str, Any]) -> int:
        """Deletes rows by a predicate of SQL, and remembers `state`, in one commit. How many rows. Files without such rows stay."""
        self.check_removing()
        before = self.mark(APP) or 0
        number, properties = next_state(self.place, before, state, None, 0)
        done: dict[str, Any] = {}
        refresh = self._found.update_incremental  # a conflict leaves files that nobody has
        self._commit(
            refresh, lambda: done.update(self._found.delete(predicate, commit_properties=properties)), {APP: number}
        )
        if not done.get("num_removed_files"):  # then there was no commit
            self.commit(state=state)
        elif before:
            (self.place / STATE).delete(state_file(before))
        return int(done.get("num_deleted_rows") or 0)

    def compact(self, target_bytes: int) -> None:
        """Joins small files. Rows stay as they are, and so do readers' snapshots."""
        with self._altering():
            self._found.optimize.compact(target_size=target_bytes)
            self._found.update_incremental()

    def vacuum(self, hours: int) -> int:
        """Deletes files that were replaced longer ago, and those that are older and that no commit has. How many."""
        with self._altering():
            gone = self._found.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=hours > 0)
        return len(gone)

    def forget(self) -> None:
        """Deletes all that earlier versions had: files, and the log up to this version, which has the least and the greatest values of
        files that are gone."""
        self.vacuum(0)
        with self._altering():
            self._found.update_incremental()
            self._found.create_checkpoint()
        log = self.place / LOG
        for info in log.list():
            number = re.match(r"\d{20}", str(info.base_name))
            if number and int(number[0]) < self.version:
                log.delete(info.base_name)
        again = Table.open(self.place)  # the snapshot's log is gone
        assert again is not None
        self._found = again._found

    def state(self) -> dict[str, Any]:
        """The notes of its writer. Empty if it never did. `Corrupt` if the file is not there."""
        number = self.mark(APP)
        if number is None:
            return {}
        try:
            return dict(json.loads((self.place / STATE).read(state_file(number))))
        except (OSError, ValueError) as error:
            again = Table.open(self.place)
            if again is not None and again.mark(APP) != number:
                raise Busy(f"another pipeline is writing to {self.place}: run it again") from error
            raise Corrupt(
                f"{self.place}/{STATE}/{state_file(number)} cannot be read ({in_one_line(error)}): remove {self.place} and run the "
                "pipeline again"
            ) from error

    def commit(
        self,
        adds: Sequence[Added] = (),
        removes: Iterable[str] = (),
        *,
        schema: pa.Schema | None = None,
        state: Mapping[str, Any] | None = None,
        marks: Mapping[str, int] | None = None,
        replaces: bool = False,
    ) -> None:
        """One commit: all of it becomes visible, or nothing. Afterwards this is the new snapshot.

        adds, removes: files. schema: with columns that are new. state: what the writer remembers from now on. marks: application →
        version; a mark that is there already means that this commit was made: then nothing is done. replaces: `adds` and `schema` are all
        that the table has from now on. `Busy` if another writer's commit came between; `Invalid` for a column that has another type.
        """
        if marks and all((there := self.mark(app)) is not None and there >= one for app, one in marks.items()):
            return
        deltalake = load_deltalake()
        from deltalake.transaction import PostCommitHookProperties

        gone = [] if replaces else list(removes)
        self._check_rules(adds, replaces or bool(gone))  # before the state is written
        before = self.mark(APP) or 0
        number, properties = next_state(self.place, before, state, marks, 0 if replaces else 3)

        def prepare() -> None:
            self._check_rules(adds, replaces or bool(gone))
            if schema is not None:
                self._allow(schema)
                if not replaces:
                    self._add_columns(schema)

        def write() -> None:
            there = {file.path for file in self.files()} if gone else set()
            self._found.create_write_transaction(
                file_actions(adds, [path for path in gone if path in there]),
                "overwrite" if replaces else "append",
                deltalake.Schema.from_arrow(schema) if schema is not None and replaces else self._found.schema(),
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=True, cleanup_expired_logs=self.version % CLEAN_COMMITS == CLEAN_COMMITS - 1
                ),
            )

        self._commit(prepare, write, dict(marks or {}) if number is None else {**(marks or {}), APP: number})
        if state is not None and before:
            (self.place / STATE).delete(state_file(before))

    def _commit(
        self, prepare: Callable[[], None], write: Callable[[], object], marks: Mapping[str, int | None]
    ) -> None:
        """Makes a commit with these marks, and once more on the newest snapshot if another program's came between. `Busy` if that was
        another pipeline's: it has changed a mark."""
        deltalake = load_deltalake()
        before = {app: self.mark(app) for app in {APP, *marks}}
        for left in reversed(range(ATTEMPTS)):
            try:
                prepare()
                if any(self.mark(app) != mark for app, mark in before.items()):
                    raise Busy(
                        f"the commit to {self.place} failed: another pipeline has written to it meanwhile; run it again"
                    )
                write()
                break
            except PenstockError:
                raise
            except (deltalake.exceptions.DeltaError, OSError) as error:
                again = Table.open(self.place)
                if again is not None and marks and all(again.mark(app) == mark for app, mark in marks.items()):
                    break  # it was made
                is_conflict = isinstance(error, deltalake.exceptions.CommitFailedError) or was_cleaned(error)
                if again is None or not is_conflict or not left:
                    kind = Busy if is_conflict else PenstockError
                    raise kind(f"the commit to {self.place} failed: {in_one_line(error)}") from error
                self._found = again._found
        self._refresh()  # an old snapshot fails at the next commit of the same application

    def check_removing(self) -> None:
        """`Invalid` if a rule of the table forbids that rows go."""
        self._check_rules((), True)

    def check_replacing(self) -> None:
        """`Invalid` if a rule forbids that rows go and come again."""
        self._check_rules([Added("", 0, 0, {"nullCount": dict.fromkeys(self.schema.names, 0)})], True)

    def _check_rules(self, adds: Sequence[Added], removes: bool) -> None:
        properties, fields = self._found.metadata().configuration, json.loads(self._found.schema().to_json())["fields"]
        check_rules(self.place, properties, fields, self._found.protocol().writer_features or (), adds, removes=removes)

    def _add_columns(self, schema: pa.Schema) -> None:
        deltalake = load_deltalake()
        there = {f.name: f.type for f in self.schema}
        for one in schema:
            if one.name in there and not same_type(there[one.name], one.type):
                raise Invalid(f"the column {one.name} of {self.place} is {there[one.name]}, not {one.type}")
        fresh = [one for one in schema if one.name not in there]
        if fresh:
            self._found.alter.add_columns(list(deltalake.Schema.from_arrow(pa.schema(fresh)).fields))

    def _allow(self, schema: pa.Schema) -> None:
        """Times without a zone take a feature of the table."""
        deltalake = load_deltalake()
        there = {f.name: f.type for f in self.schema}
        fresh = [f for f in schema if there.get(f.name) != f.type]
        if any(holds_local_times(f.type) for f in fresh):
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
            if is_old and info.base_name != (None if current is None else state_file(current)):
                (self.place / STATE).delete(info.base_name)
