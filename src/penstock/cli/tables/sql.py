"""The command `penstock sql`: a query over streams as they are now, or over the tables of a folder; printed as a table, JSON or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli import arguments
from penstock.cli.tables import answers, charts, engines, live
from penstock.cli.terminal import output
from penstock.util.units import seconds

SHOWN = 100  # rows for people, unless they ask for more
WINDOW = 1.0  # seconds of a row of stats, unless it is given
ENGINES = ("duckdb", "spark", "sail")  # of streams
SPARK_LIMIT = (1 << 31) - 1  # a limit of Spark is an int of Java; more rows are all rows


def add_commands(app: typer.Typer) -> None:
    """Adds this command to the app."""
    app.command("sql")(sql)


def sql(
    words: Annotated[
        list[str],
        typer.Argument(
            help="One query, as \"select * from 'log:imu' limit 10\". With a folder of tables in front of it, it asks these alone.",
            metavar="[TABLES] QUERY",
        ),
    ],
    places: Annotated[
        list[str] | None,  # as lists of paths, they would lose a slash of a URI
        typer.Option(
            "--from",
            help="An archive or a folder of tables, also s3://BUCKET/FOLDER, or an archive at grpc+tls://HOST:PORT; one of each.",
            parser=arguments.place,
        ),
    ] = None,
    watch: Annotated[
        str | None, typer.Option(help="Ask again so often, as 1s, and redraw the answer in place.", metavar="<time>")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if messages are missing that memory has let go of.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            help="duckdb, spark, or sail, which needs no JVM: the same query, in DuckDB's SQL. Of TABLES alone spark, their default, or "
            "duckdb, each in its own SQL."
        ),
    ] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master such as local[*].")] = None,
    window: Annotated[
        float | None, typer.Option(help=f"Of TABLES: seconds of a row of stats. Default: {WINDOW:g}.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help=f"Rows at most, 0 for all. Default: {SHOWN} in a table, else all.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object per row.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV with a line of names.")] = False,
    arrow: Annotated[Path | None, typer.Option(help="Write an Arrow file.", metavar="FILE")] = None,
    chart: Annotated[
        bool, typer.Option("--chart", help="Draw the numbers over the first column, a time, in the terminal.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw them into a .png or .svg file.", metavar="FILE")] = None,
) -> None:
    """Asks shared memory, an archive and tables as they are now, as one; or the tables of a folder alone."""
    if len(words) > 2:
        raise penstock.Invalid(f"there are {len(words)} arguments: write the query in quotes, as one")
    if not arguments.is_utf8(words[-1]):
        raise penstock.Invalid(f"the query is not UTF-8: {output.path(words[-1])}")
    if json + csv + (arrow is not None) + chart + (plot is not None) > 1:
        raise penstock.Invalid("--json, --csv, --arrow, --chart and --plot: one of them can be given")
    if plot is not None:
        charts.check_file(plot)
    for file in (arrow, plot):
        if file is not None:
            answers.check_file(file)
    shape = _Shape(json, csv, arrow, chart, plot)
    shape.most = arguments.limit(SHOWN if limit is None and shape.is_table else limit) or None
    if len(words) == 2:
        for name, given in (("--from", bool(places)), ("--watch", watch is not None), ("--strict", strict)):
            if given:
                raise penstock.Invalid(f"{name} is for a query without TABLES: name them by --from")
        engine = "spark" if engine is None else engine
        window = WINDOW if window is None else window
        _ask_tables(arguments.place(words[0]), words[1], engine, master, window, shape)
        return
    if window is not None:
        raise penstock.Invalid("--window is for a query of TABLES, which have stats: name them in front of it")
    _ask_streams(words[0], places or [], watch, strict, "duckdb" if engine is None else engine, master, shape)


class _Shape:
    """How an answer is printed."""

    most: int | None = None  # rows

    def __init__(self, json: bool, csv: bool, arrow: Path | None, chart: bool, plot: Path | None) -> None:
        self.json, self.csv, self.arrow, self.chart, self.plot = json, csv, arrow, chart, plot
        self.is_table = not (json or csv or arrow or chart or plot)

    def asked(self) -> int | None:
        """Rows to ask Spark for: one more than people see, which says that there are more."""
        if self.most is None or self.most >= SPARK_LIMIT:
            return None
        return self.most + self.is_table

    def cut(self, found: Any) -> Any:
        """An answer with names that differ, and without the rows that are not asked for."""
        return answers.rename_alike(found).slice(0, self.asked())

    def show(self, found: Any) -> None:
        """Prints an answer, or writes it."""
        if self.is_table:
            answers.print_table(found, self.most)
            return
        found = found if self.most is None else found.slice(0, self.most)
        if self.csv:
            answers.print_csv(found)
        elif self.json:
            answers.print_json(found)
        elif self.arrow is not None:
            answers.write_arrow(found, self.arrow)
        elif self.plot is not None:
            charts.write(found, self.plot)
        else:
            charts.show(found)


def _ask_streams(
    query: str, places: Sequence[Any], watch: str | None, strict: bool, engine: str, master: str | None, shape: _Shape
) -> None:
    engines.check(engine, ENGINES, master, "sql", *(["deltalake"] if places else []))
    every = None if watch is None else seconds(watch, "--watch")
    if every is not None:
        live.check_interval(every)
    lake = live.opened(places, strict=strict)
    if every is not None:
        with live.engine(engine, master, lake, query, shape.asked(), shape.cut) as ask:
            if shape.is_table:
                live.watch(ask, every, partial(live.print_table, shape.most), partial(live.draw_table, shape.most))
            else:
                live.watch(ask, every, shape.show, charts.draw if shape.chart else None)
        return
    with (
        output.working(f"asking {engines.SHOWN[engine]}"),
        live.engine(engine, master, lake, query, shape.asked(), shape.cut) as ask,
    ):
        found, missing = ask()
    shape.show(found)
    live.tell(missing)


def _ask_tables(out: Path, query: str, engine: str, master: str | None, window: float, shape: _Shape) -> None:
    if engine == "sail":
        raise penstock.Invalid("--engine sail is for a query without TABLES: name them by --from")
    engines.check(engine, ("spark", "duckdb"), master, "sql", "deltalake")
    from penstock.tables import stats

    stats.width_ns(window, "--window")
    with output.working(f"asking {engines.SHOWN[engine]}"):
        found = shape.cut(_answer(out, query, engine, master, shape.asked(), window))
    shape.show(found)


def _answer(out: Path, query: str, engine: str, master: str | None, limit: int | None, window: float) -> Any:
    from penstock.spark import queries
    from penstock.tables import reading

    if engine == "duckdb":
        return queries.by_duckdb(str(out), query, limit, window)
    if not reading.names(str(out)):  # reported before a JVM is started
        raise penstock.NotFound(
            f"{output.path(out)} holds no tables: run penstock pipeline ARCHIVE --out {output.path(out)}"
        )
    with engines.session(engine, "penstock-sql", master) as spark:
        return queries.by_spark(spark, str(out), query, limit, window)
