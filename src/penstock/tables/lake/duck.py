"""Queries in DuckDB's SQL over the streams of a cut: each stream is a view of its table's files and of what is in no table yet."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.columns.parts import table_name
from penstock.errors import Invalid, PenstockError
from penstock.tables.lake.cut import StreamCut
from penstock.util import errors_in_text
from penstock.util.extras import explain_missing

if TYPE_CHECKING:
    import duckdb


def connect() -> duckdb.DuckDBPyConnection:
    """A connection to a database of its own, with times in UTC."""
    with explain_missing("a query over streams"):
        import duckdb
    connection = duckdb.connect()
    connection.execute("set global TimeZone = 'UTC'")
    return connection


class Engine:
    """An empty database in memory, made for the first query of a process: to make one takes longer than a small query. Any thread."""

    def __init__(self) -> None:
        self._made: tuple[int, duckdb.DuckDBPyConnection] | None = None

    def session(self) -> duckdb.DuckDBPyConnection:
        """A connection whose views no other one has, to be closed by the caller."""
        made = self._made
        if made is None or made[0] != os.getpid():  # a forked child has none of the database's threads
            made = self._made = os.getpid(), connect()
        return made[1].cursor()


def define(connection: duckdb.DuckDBPyConnection, cut: StreamCut, names: Iterable[str]) -> None:
    """Makes the stream a view with these names."""
    columns = ", ".join(map(quoted, cut.schema.names))
    files = [part for part in cut.files() if part.table.place.is_local]
    if cut.rest or not files:
        rest = f"penstock {table_name(cut.stream)}"
        connection.register(rest, cut.dataset(files=not files))
        rows = f"select * from {quoted(rest)}"
    else:  # DuckDB asks no dataset, which takes as long as a small query
        types = zip(cut.schema.names, connection.from_arrow(cut.schema.empty_table()).types, strict=True)
        rows = "select " + ", ".join(f"null::{kind} as {quoted(name)}" for name, kind in types) + " where false"
    if files:
        listed = ", ".join(_location(part.table.place.location(part.file.path)) for part in files)
        kept = "".join(f" and not ({one.sql()})" for one in cut.gone)
        read = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        rows = f"select * from {read} where true{kept} union all by name {rows}"
    for name in names:
        connection.execute(f"create temp view {quoted(name)} as select {columns} from ({rows})")


def align_sql(base: str, others: Mapping[str, tuple[str, Sequence[str]]], tolerance_ns: int | None) -> str:
    """A query for the rows of a stream with the last row of others before each. base: its view. others: column's name → (view, columns)."""
    joins, columns = "", "a.*"
    for number, (name, (view, fields)) in enumerate(others.items()):
        row = ", ".join(f"{quoted(field)} := {quoted(field)}" for field in fields)
        found = f"b{number}"
        joins += (
            f" asof left join (select timestamp_ns as at, struct_pack({row}) as found from {quoted(view)}) {found}"
            f" on a.timestamp_ns >= {found}.at"
        )
        near = "true" if tolerance_ns is None else f"a.timestamp_ns::hugeint - {found}.at <= {tolerance_ns}"
        columns += f", case when {near} then {found}.found end as {quoted(name)}"
    return f"select {columns} from {quoted(base)} a{joins} order by a.epoch, a.position"


def check_types(found: duckdb.DuckDBPyRelation) -> None:
    """`Invalid` for a column of a type that Arrow has not: two values of it would come back as one."""
    for name, kind in zip(found.columns, found.types, strict=True):
        if _is_lost(kind):
            raise Invalid(
                f"the column {name} is {kind}, which Arrow has not: write it as a text, {quoted(name)}::varchar"
            )


def _is_lost(kind: Any) -> bool:
    """Whether a type of DuckDB, or a part of it, is none of Arrow's."""
    if kind.id in ("list", "array", "struct", "map", "union"):
        return any(_is_lost(part) for _, part in kind.children if hasattr(part, "id"))
    return kind.id in ("time with time zone", "bit")


def failed(error: Exception) -> Exception:
    """An error of DuckDB, or one of this library within it, as this library's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, PenstockError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return errors_in_text.find(str(error)) or Invalid(str(error).strip().splitlines()[0])


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _location(path: str) -> str:
    escaped = re.sub(r"([*?\[\]])", r"[\1]", path).replace("'", "''")
    return f"'{escaped}'"
