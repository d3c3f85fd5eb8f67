"""Answers a query over the tables of a folder, as they are now: with Spark, or with DuckDB where no JVM is to be started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import Invalid, NotFound
from penstock.spark import tables
from penstock.spark.naming import BUILT_IN, Names, quoted
from penstock.spark.statements import TOKEN
from penstock.tables.places import Place
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES = ("spark", "duckdb")


class _Folder:
    """Tables under all names that a query may use."""

    def __init__(self, out: str | Place) -> None:
        self.place = Place.of(out)
        self.streams = tables.streams(self.place)
        there = tables.names(self.place)
        if not there:
            raise NotFound(f"{self.place} holds no tables: run penstock pipeline ARCHIVE --out {self.place}")
        self.names = Names(self.streams, [name for name in there if name not in BUILT_IN and "/" not in name])

    def open(self, name: str) -> Any:
        """A table's snapshot."""
        found = self.names.find(name)
        if found is None:
            raise NotFound(f"{self.place} has no table {name}{self.names.like(name)}")
        if ":" in found and found not in self.streams:
            raise NotFound(f"{found} has no decoded columns")
        return tables.open_table(self.place, self.streams.get(found, found))


def frame(spark: SparkSession, out: str | Place, query: str) -> DataFrame:
    """A query as a DataFrame over snapshots of the tables that it names. It computes nothing yet.

    Streams are named as in files of a user's tables. `NotFound` for a name that there is not, `Invalid` for a query that Spark cannot read.
    """
    from penstock.spark.failures import unlogged
    from penstock.spark.own_tables import isolated
    from penstock.spark.relations import relations

    folder, session = _Folder(out), isolated(spark)
    with unlogged():
        try:
            for name in relations(session, query):
                opened = folder.open(name)
                tables.frame(session, opened, opened.files()).createOrReplaceTempView(quoted(name))
            return session.sql(query)
        except (NotFound, Invalid):
            raise
        except Exception as error:
            raise Invalid(told(error)) from error


def by_spark(spark: SparkSession, out: str | Place, query: str, limit: int | None) -> pa.Table:
    """The rows of a query; at most so many."""
    from penstock.spark.failures import unlogged

    found = frame(spark, out, query)
    with unlogged():
        try:
            return (found if limit is None else found.limit(limit)).toArrow()
        except Exception as error:
            raise Invalid(told(error)) from error


def by_duckdb(out: str | Place, query: str, limit: int | None) -> pa.Table:
    """The same in DuckDB's SQL. Names may be in backticks, as in Spark's."""
    with explain_missing("--engine duckdb"):
        import duckdb
    folder, parts = _Folder(out), list[str]()
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        for match in TOKEN.finditer(query):
            text = match[0]
            name = text[1:-1].replace("``", "`") if match.lastgroup == "name" else text
            if match.lastgroup == "text" and text.startswith('"'):
                name = text[1:-1].replace('""', '"')
            if match.lastgroup in ("name", "word", "text") and _is_named(folder.names, name):
                _define(connection, folder.open(name), name)
            parts.append('"' + name.replace('"', '""') + '"' if match.lastgroup == "name" else text)
        try:
            statements = connection.extract_statements("".join(parts))
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise Invalid("this is not one query: write SELECT …")
            found = connection.sql("".join(parts))
            return (found if limit is None else found.limit(limit)).to_arrow_table()
        except duckdb.Error as error:
            raise Invalid(told(error)) from error


def _is_named(names: Names, name: str) -> bool:
    """Whether a word is a table's name. It may be a column's as well: then a view is made that nothing reads."""
    try:
        return names.find(name) is not None
    except Invalid:
        return False


def _define(connection: Any, opened: Any, name: str) -> None:
    files = opened.files()
    if opened.place.is_local and files:
        listed = ", ".join(_text(opened.place.location(file.path)) for file in files)
        sql = f"select * from read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        connection.execute(f'create or replace view "{name.replace(chr(34), chr(34) * 2)}" as {sql}')
    else:
        connection.register(name, tables.read_files(opened))


def _text(value: str) -> str:
    return "'" + re.sub("'", "''", re.sub(r"([*?\[\]])", r"[\1]", value)) + "'"


def told(error: BaseException) -> str:
    """An error of an engine in one line."""
    from penstock.spark.own_tables import line_of_text

    if type(error).__module__.startswith(("duckdb", "_duckdb")):
        return " ".join(line.strip() for line in str(error).splitlines()[:1])
    place = re.search(r"\bline (\d+),? pos (\d+)", str(error))
    return line_of_text(error) + (f" (line {place[1]}, position {int(place[2]) + 1})" if place else "")
