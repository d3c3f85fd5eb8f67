"""Answers a query over the tables of a folder, as they are now: with Spark, or with DuckDB where no JVM is to be started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.columns.parts import apart
from penstock.errors import Invalid, NotFound
from penstock.spark.files import frames
from penstock.spark.parsing.naming import Names, quoted
from penstock.spark.parsing.statements import tokens
from penstock.tables import reading as tables
from penstock.tables import stats
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _Folder:
    """Tables under all names that a query may use."""

    def __init__(self, out: str | Place) -> None:
        self.place = Place.of(out)
        self.streams = tables.streams(self.place)
        there = tables.names(self.place)
        if not there:
            raise NotFound(f"{self.place} holds no tables: run penstock pipeline ARCHIVE --out {self.place}")
        self.names = Names(self.streams, [name for name in there if name not in tables.BUILT_IN and "/" not in name])

    def find(self, name: str) -> str:
        """The table or channel of a name."""
        found = self.names.find(name)
        if found is None:
            raise NotFound(f"{self.place} has no table {name}{self.names.like(name)}")
        return found

    def open(self, name: str) -> Table:
        """A table's snapshot."""
        return tables.open_table(self.place, self.streams.get(name, name))


def frame(spark: SparkSession, out: str | Place, query: str, window: float = 1.0) -> DataFrame:
    """A query as a DataFrame over snapshots of the tables that it names. It computes nothing yet.

    Streams are named as in files of a user's tables. window: seconds of a row of `stats`. `NotFound` for a name that there is not, `Invalid` for a query that Spark cannot read.
    """
    from penstock.spark.own_tables import isolated
    from penstock.spark.parsing.relations import relations
    from penstock.spark.runtime.failures import unlogged

    folder, session, width = _Folder(out), isolated(spark), stats.width_ns(window)
    with unlogged():
        try:
            for name, table in apart({name: folder.find(name) for name in relations(session, query)}).items():
                if table == stats.NAME:
                    made = frames.stats_frame(session, folder.open("messages"), folder.open("losses"), width)
                else:
                    opened = folder.open(table)
                    made = frames.frame(session, opened, opened.files())
                made.createOrReplaceTempView(quoted(name))
            return session.sql(query)
        except (NotFound, Invalid):
            raise
        except Exception as error:
            raise Invalid(describe_error(error)) from error


def by_spark(spark: SparkSession, out: str | Place, query: str, limit: int | None, window: float = 1.0) -> pa.Table:
    """The rows of a query, at most `limit`."""
    from penstock.spark.runtime.failures import unlogged

    found = frame(spark, out, query, window)
    with unlogged():
        try:
            return (found if limit is None else found.limit(limit)).toArrow()
        except Exception as error:
            raise Invalid(describe_error(error)) from error


def by_duckdb(out: str | Place, query: str, limit: int | None, window: float = 1.0) -> pa.Table:
    """The same in DuckDB's SQL. Names may be in backticks, as in Spark's."""
    with explain_missing("--engine duckdb"):
        import duckdb
    folder, width = _Folder(out), stats.width_ns(window)
    parts, at, named = list[str](), 0, dict[str, str]()
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        for token in tokens(query, "query", "duckdb"):
            if token.token_type.name == "IDENTIFIER":
                parts += [query[at : token.start], _name(token.text)]
                at = token.end + 1
            if token.token_type.name != "STRING" and (table := _table(folder.names, token.text)):
                named[token.text] = table
        for name, table in apart(named).items():
            _define(connection, folder, table, name, width)
        text = "".join([*parts, query[at:]])
        try:
            statements = connection.extract_statements(text)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise Invalid("this is not one query: write SELECT …")
            found = connection.sql(text)
            return (found if limit is None else found.limit(limit)).to_arrow_table()
        except duckdb.Error as error:
            raise Invalid(describe_error(error)) from error


def _table(names: Names, word: str) -> str | None:
    """The table whose name a word is. It may be a column's as well: then a view is made that nothing reads."""
    try:
        return names.find(word)
    except Invalid:
        return None


def _define(connection: Any, folder: _Folder, table: str, name: str, width: int) -> None:
    if table == stats.NAME:
        for one in tables.BUILT_IN:
            _define(connection, folder, one, f"penstock {one}", width)
        of = [_name(f"penstock {one}") for one in tables.BUILT_IN]
        connection.execute(f"create or replace view {_name(name)} as {stats.of_duckdb(width, *of)}")
        return
    opened = folder.open(table)
    files = opened.files()
    tables.check_files(opened, files)
    if opened.place.is_local and files:
        listed = ", ".join(_text(opened.place.location(file.path)) for file in files)
        columns = ", ".join(_name(field.name) for field in opened.schema)
        sql = f"select {columns} from read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        connection.execute(f"create or replace view {_name(name)} as {sql}")
    else:
        connection.register(name, tables.read_files(opened))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + re.sub("'", "''", re.sub(r"([*?\[\]])", r"[\1]", value)) + "'"


def describe_error(error: BaseException) -> str:
    """An error of an engine in one line."""
    from penstock.spark.own_tables import line_of_text

    if type(error).__module__.startswith(("duckdb", "_duckdb")):
        return " ".join(line.strip() for line in str(error).splitlines()[:1])
    place = re.search(r"\bline (\d+),? pos (\d+)", str(error))
    return line_of_text(error) + (f" (line {place[1]}, position {int(place[2]) + 1})" if place else "")
