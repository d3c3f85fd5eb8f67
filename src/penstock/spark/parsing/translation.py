"""A query over streams, written in DuckDB's SQL as for every engine, in Spark's SQL. sqlglot translates.

So 'log:imu' in quotes is a table there too, and gyro[1] is the first value and not the second. Knows SQL; knows no stream and no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.errors import Invalid
from penstock.spark.runtime.failures import unlogged
from penstock.util.extras import explain_missing

OPEN, CLOSE = "\ue000", "\ue001"  # for private use: no query has these signs


def parse(query: str) -> Any:
    """sqlglot's tree of a query, in which backticks quote a name as well. `Invalid` for what is not one query."""
    with explain_missing("a query on Spark", extra="spark"):
        from sqlglot import exp
        from sqlglot.dialects.duckdb import DuckDB
        from sqlglot.errors import SqlglotError

    class Dialect(DuckDB):
        INDEX_OFFSET = 0  # indexes stay as they are written: `write` knows what they mean

        class Tokenizer(DuckDB.Tokenizer):
            IDENTIFIERS: ClassVar[Any] = ['"', "`"]

    try:
        with unlogged():
            found = [one for one in Dialect().parse(query) if one is not None]
    except SqlglotError as error:
        raise Invalid(f"this is not a query: {_describe(error)}") from error
    if len(found) != 1:
        raise Invalid("this is not one query: write SELECT …")
    if not isinstance(found[0], exp.Query | exp.Values):
        raise Invalid("this is not a query: only SELECT statements can be asked")
    return found[0]


def _describe(error: Any) -> str:
    for one in getattr(error, "errors", ()):
        return f"{one['description'].rstrip('.')} (line {one['line']}, position {one['col']})"
    return str(error).splitlines()[0]


def tables_of(tree: Any) -> list[str]:
    """The tables that a query names. Names with a schema are not among them."""
    return list(dict.fromkeys(table.name for table in _tables(tree)))


def _tables(tree: Any) -> list[Any]:
    from sqlglot import exp

    inside = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    return [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not table.db and table.name.lower() not in inside
    ]


def write(tree: Any, fields: Mapping[str, str]) -> str:
    """The query in Spark's SQL, as `SparkSession.sql` formats it. fields: name of a table → the field in braces that takes its place.

    `Invalid` for what Spark's SQL cannot say.
    """
    from sqlglot import exp
    from sqlglot.errors import ErrorLevel, SqlglotError

    tree = tree.copy()
    for table in _tables(tree):
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("this", exp.to_identifier(f"{OPEN}{fields[table.name]}{CLOSE}", quoted=False))
    for bracket in reversed(list(tree.find_all(exp.Bracket))):  # the inner ones first
        if len(bracket.expressions) == 1:
            _count_from_one(bracket)
    try:
        text: str = tree.sql("spark", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise Invalid(f"Spark's SQL has no words for this: {_describe(error)}") from error
    return text.replace("{", "{{").replace("}", "}}").replace(OPEN, "{").replace(CLOSE, "}")


def _count_from_one(bracket: Any) -> None:
    """Values of lists and maps as DuckDB has them: they are counted from 1, from the end below 0, and null where there is none."""
    from sqlglot import exp

    (index,) = bracket.expressions
    if not isinstance(index, exp.Slice) and not (isinstance(index, exp.Literal) and index.is_string):
        bracket.replace(exp.Anonymous(this="try_element_at", expressions=[bracket.this, index]))
