"""The command `penstock sql`: a query over the tables of a folder, printed as a table, as JSON or as CSV."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli import arguments
from penstock.cli.terminal import output
from penstock.cli.terminal.plain import text
from penstock.util.extras import check_installed

SHOWN = 100  # rows for people, unless they ask for more
SPARK_LIMIT = (1 << 31) - 1  # a limit of Spark is an int of Java; more rows are all rows
BATCH_ROWS = 10_000


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("sql")(sql)


def sql(
    out: Annotated[
        Path,
        typer.Argument(help="The folder of tables, or s3://BUCKET/FOLDER.", parser=arguments.place, metavar="TABLES"),
    ],
    query: Annotated[str, typer.Argument(help="One query, as select * from messages limit 10.")],
    engine: Annotated[
        str, typer.Option(help="spark, or duckdb, which needs no JVM and answers at once, in its own SQL.")
    ] = "spark",
    master: Annotated[str | None, typer.Option(help="A Spark master such as local[*].")] = None,
    limit: Annotated[
        int | None, typer.Option(help=f"Rows at most, 0 for all. Default: {SHOWN} in a table, all in JSON and CSV.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object per row.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV with a line of names.")] = False,
) -> None:
    """Queries the tables of a folder, as they are now: raw, messages, stats, one per stream, and your own."""
    needed, extra = (["deltalake"], "tables") if engine == "duckdb" else (["deltalake", "pyspark"], "spark")
    check_installed("pyarrow", *needed, what="sql", extra=extra)
    from penstock.cli.tables.pipeline import MASTER
    from penstock.spark import queries

    if engine not in queries.ENGINES:
        raise penstock.Invalid(f"--engine is {engine!r}: there are {', '.join(queries.ENGINES)}")
    if json and csv:
        raise penstock.Invalid("--json and --csv cannot both be given")
    if master is not None and (engine != "spark" or not MASTER.fullmatch(master)):
        raise penstock.Invalid(
            f"--master is {master!r}: write local[*], local[2] or spark://HOST:PORT, for --engine spark"
        )
    most = arguments.limit(SHOWN if limit is None and not (json or csv) else limit) or None
    most = None if most is not None and most >= SPARK_LIMIT else most
    with output.working(f"asking {'DuckDB' if engine == 'duckdb' else 'Spark'}"):
        found = _answer(out, query, engine, master, most if json or csv or most is None else most + 1)
    if csv:
        _print_csv(found)
    elif json:
        for batch in found.to_batches(BATCH_ROWS):
            for row in batch.to_pylist():
                print(output.as_json({name: _number(value) for name, value in row.items()}))
    else:
        _print_table(found, most)


def _answer(out: Path, query: str, engine: str, master: str | None, limit: int | None) -> Any:
    from penstock.spark import queries, session, tables

    if engine == "duckdb":
        return queries.by_duckdb(str(out), query, limit)
    if not tables.names(str(out)):  # reported before a JVM is started
        raise penstock.NotFound(
            f"{output.path(out)} holds no tables: run penstock pipeline ARCHIVE --out {output.path(out)}"
        )
    spark = session("penstock-sql", master=master)
    try:
        return queries.by_spark(spark, str(out), query, limit)
    finally:
        spark.stop()


def _number(value: Any) -> Any:
    """A decimal without a fraction as a whole number, such as DuckDB's sums."""
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value


def _print_csv(found: Any) -> None:
    import pyarrow as pa
    import pyarrow.csv

    from penstock.columns.parts import plain

    names = pa.BufferOutputStream()
    pyarrow.csv.write_csv(plain_schema(found).empty_table(), names)
    sys.stdout.write(names.getvalue().to_pybytes().decode())
    for batch in found.to_batches(BATCH_ROWS):
        made = pa.BufferOutputStream()
        options = pyarrow.csv.WriteOptions(include_header=False)
        pyarrow.csv.write_csv(pa.Table.from_batches([plain(batch)]), made, options)
        sys.stdout.write(made.getvalue().to_pybytes().decode())


def plain_schema(found: Any) -> Any:
    """A table's columns as CSV has them."""
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in found.column_names])


def _print_table(found: Any, most: int | None) -> None:
    import pyarrow as pa

    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    right = tuple(field.name for field in found.schema if any(is_kind(field.type) for is_kind in numbers))
    shown = output.table(*found.column_names, right=right)
    rows = found if most is None else found.slice(0, most)
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        shown.add_row(*map(_cell, row))
    output.show(shown)
    more = found.num_rows > rows.num_rows
    output.note(
        f"{'the first ' if more else ''}{output.many(rows.num_rows, 'row')}{'; --limit 0 prints all' if more else ''}",
    )


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, bytes):
        return text(value)
    return (
        value if isinstance(value, str) else str(value) if not isinstance(value, list | dict) else output.as_json(value)
    )
