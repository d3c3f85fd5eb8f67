"""Brings tables that a user defines up to date, after the built-in ones. Each is computed from one snapshot of what it reads and
committed once for it; one whose inputs and definition are as they were is left alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.columns.parts import apart, table_name
from penstock.errors import Invalid, PenstockError
from penstock.spark.files import frames
from penstock.spark.parsing import definitions as written_down
from penstock.spark.parsing.definitions import Definition
from penstock.spark.parsing.naming import Names, quoted
from penstock.spark.runtime.failures import failure, unlogged
from penstock.tables import reading as tables
from penstock.tables import stats
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder import begin_batch, end_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPLACED_MAX = 64  # with more files that were replaced, old ones are deleted
RETAINED_HOURS = 1  # files that were replaced stay so long, for readers that still have them
SETTINGS = {"spark.sql.session.timeZone": "UTC"}
_CLONES: weakref.WeakKeyDictionary[Any, dict[frozenset[tuple[str, str]], SparkSession]] = weakref.WeakKeyDictionary()
Plan = Sequence[tuple[Definition, list[str]]]


@dataclass(frozen=True)
class Result:
    """One table after a run. rows: it has; is_new: whether it was computed in this run; error: one line, if that failed."""

    name: str
    rows: int
    is_new: bool
    seconds: float
    error: str | None = None


def plan(spark: SparkSession, found: Sequence[Definition], channels: Iterable[str]) -> Plan:
    """The definitions in an order in which they can run, with the tables and channels that each reads. Runs nothing.

    channels: all streams that may be read. `Invalid`, with file and line, for a query that Spark cannot parse, a name that there is
    not, or definitions in a circle.
    """
    from penstock.spark.parsing.relations import relations

    def reads(one: Definition) -> list[str]:
        if one.function is not None:
            return [table for _, table in one.arguments if table != "spark"]
        try:
            with unlogged():
                return relations(spark, one.query)
        except PenstockError:
            raise
        except Exception as error:
            raise Invalid(_describe_error(error, one)) from error

    return written_down.ordered(found, Names(channels, [one.name for one in found]), reads)


def bring(
    spark: SparkSession,
    out: str | Path | Place,
    ordered: Plan,
    *,
    compression: str = "snappy",
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Result]:
    """Brings tables up to date with the snapshot that is there now. Only one run may do this at a time; see `tables.locked`.

    The other tables continue if one fails. Those that read it keep the rows that they had.
    """
    work = _Work(spark, Place.of(out), ordered, compression)
    results = []
    for number, (one, reads) in enumerate(ordered):
        if progress is not None:
            progress(one.name, number, len(ordered))
        begun = time.monotonic()
        try:
            with unlogged():
                if one.stored:
                    rows, is_new = work.bring(one, reads)
                    results.append(Result(one.name, rows, is_new, time.monotonic() - begun))
                else:
                    work.define(one, reads)
        except Exception as error:  # of Spark's, of a user's function, or ours
            work.failed.add(one.name)
            results.append(Result(one.name, 0, False, time.monotonic() - begun, _describe_error(error, one)))
    return results


class _Work:
    """One run over one snapshot of the built-in tables."""

    def __init__(self, spark: SparkSession, place: Place, ordered: Plan, compression: str) -> None:
        self.spark, self.place, self.compression = isolated(spark), place, compression
        self.own = {one.name: (one, reads) for one, reads in ordered}
        self.names = Names([], self.own)
        self.failed: set[str] = set()
        self.views: dict[str, DataFrame] = {}
        self._streams = tables.streams(place)
        self._opened: dict[str, Table] = {}

    def open(self, name: str) -> Table:
        """A table's snapshot: the same for all tables of this run."""
        if name not in self._opened:
            if ":" in name and name not in self._streams:
                raise Invalid(f"{name} has no table yet; messages of plain bytes are in the table messages")
            self._opened[name] = tables.open_table(self.place, self._streams.get(name, name))
        return self._opened[name]

    def inputs(self, reads: Iterable[str], before: Mapping[str, Any]) -> dict[str, Any]:
        """The present state of tables: versions, and definitions of views. before: the state when they were read last; it stays where
        a table has the same rows and columns as then."""
        found: dict[str, Any] = {}
        for name in sorted(reads):
            if name in self.failed:
                raise Invalid(f"it reads {name}, which failed")
            if name in self.own and not self.own[name][0].stored:
                one, others = self.own[name]
                found |= {name: one.digest, **self.inputs(others, before)}
            elif name == stats.NAME:
                found |= self.inputs(tables.BUILT_IN, before)
            else:
                opened, known = self.open(name), before.get(name)
                now = [opened.id, opened.version]
                same = isinstance(known, list) and known[0] == opened.id and opened.has_same_rows(known[1])
                found[name] = known if same else now
        return found

    def bring(self, one: Definition, reads: list[str]) -> tuple[int, bool]:
        """(rows, whether it was computed) of a table."""
        from penstock.spark.files.sink import save

        place = self.place / one.name
        there = Table.open(place)
        state = there.state() if there is not None else {}
        wanted = {"inputs": self.inputs(reads, state.get("inputs", {})), "definition": one.digest}
        if there is not None and {name: state.get(name) for name in wanted} == wanted:
            return sum(file.rows for file in there.files()), False
        if there is not None and there.mark(_app(one)) is None:
            raise Invalid(f"{place} is a table that no file defines: choose another name")
        token = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
        begin_batch(self.place, token, [one.name])
        adds, schema = save(self.frame(one, reads), place, f"part-{token}", self.compression)
        if there is None:
            there = Table.create(
                place, schema, adds, state=wanted, marks={_app(one): 1}, name=one.name, description=one.comment
            )
        else:
            there.describe(one.comment)
            mark = (there.mark(_app(one)) or 0) + 1
            there.commit(adds, schema=schema, state=wanted, marks={_app(one): mark}, replaces=True)
            if len(place.list()) > REPLACED_MAX + 2 * len(adds):
                there.vacuum(RETAINED_HOURS)
        end_batch(self.place, token)
        self._opened[one.name] = there
        return sum(added.rows for added in adds), True

    def define(self, one: Definition, reads: list[str]) -> None:
        """A view: its rows are computed where it is read."""
        self.inputs(reads, {})
        self.views[one.name] = self.frame(one, reads)

    def frame(self, one: Definition, reads: list[str]) -> DataFrame:
        """The rows of a definition, not computed yet."""
        from pyspark.sql import DataFrame

        if one.function is None:
            for table in apart({table: table for table in reads}):
                self._view(table)
            return self.spark.sql(one.query)
        of = dict(zip(dict.fromkeys(name for _, name in one.arguments if name != "spark"), reads, strict=False))
        given = {name: self.spark if table == "spark" else self.read(of[table]) for name, table in one.arguments}
        made = one.function(**given)
        if not isinstance(made, DataFrame):
            raise Invalid(f"{one.name} returned {type(made).__name__}, not a DataFrame")
        return made

    def _view(self, table: str) -> None:
        frame = self.read(table)
        for name in {table, table_name(table)} if ":" in table else {table}:
            if name == table or self.names.find(name) is None:
                frame.createOrReplaceTempView(quoted(name))

    def read(self, table: str) -> DataFrame:
        """A table's rows in this run's snapshot."""
        if table in self.views:
            return self.views[table]
        if table == stats.NAME:
            return frames.stats_frame(self.spark, self.open("messages"), self.open("losses"), stats.SECOND)
        opened = self.open(table)
        return frames.frame(self.spark, opened, opened.files())


def isolated(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with the same context whose views and settings are its own. settings: more of them; each set has a session."""
    from pyspark.sql import SparkSession

    from penstock.spark import register
    from penstock.spark.files.sink import FileSink

    made = _CLONES.setdefault(spark, {})
    kind = frozenset((settings or {}).items())
    if kind in made:
        return made[kind]
    register(spark)
    spark.dataSource.register(FileSink)  # a clone knows the sources of its original; newSession() would not
    if not hasattr(spark, "_jsparkSession"):  # Spark Connect
        return spark.cloneSession()
    fresh = made[kind] = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in {**SETTINGS, **(settings or {})}.items():
        fresh.conf.set(name, value)
    return fresh


def _app(one: Definition) -> str:
    return f"penstock/tables/{one.name}"


def _describe_error(error: BaseException, one: Definition) -> str:
    """An error of a table in one line, with the line of the file if it is known."""
    text = str(error)
    file = one.place.partition(":")[0]
    if text.startswith(f"{file}:"):
        return text.partition("\n")[0]
    place = one.place
    if one.function is not None:
        line = written_down.line_of(error, one.function.__code__.co_filename, 0)
        place = f"{file}:{line}" if line else place
    elif found := re.search(r"\bline (\d+),? pos", text):
        place = f"{file}:{found[1]}"
    return f"{place}: {one.name}: {line_of_text(error)}"


def line_of_text(error: BaseException) -> str:
    """The event in one line, without Spark's codes."""
    if isinstance(error, PenstockError):
        return " ".join(str(error).split())
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    found = re.search(r"^\[(?!FAILED_EXECUTE_UDF)[A-Z_.0-9]+\] (.*?)(?: SQLSTATE: .*)?$", str(error), re.MULTILINE)
    if found:
        return found[1]
    told = str(failure(error))
    by_connect = type(error).__module__.endswith(".connect")  # it may be Sail
    return told.removeprefix("Spark failed: ") if by_connect else told
