"""The command pipeline: an archive's tables, once or as messages arrive, and their compaction."""

from __future__ import annotations

import contextlib
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import penstock
from penstock.cli import arguments, ending
from penstock.cli.terminal import output

if TYPE_CHECKING:
    from penstock.spark.pipeline import Outcome

MASTER = re.compile(
    r"local|local\[(\*|[0-9]{1,4})(, ?[0-9]{1,4})?\]|local-cluster\[[0-9, ]+\]|yarn|(spark|k8s|sc)://[^\s/].*", re.ASCII
)
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command("pipeline")(pipeline)


def pipeline(
    out: Annotated[
        Path,
        typer.Option(
            help="The place for the tables: a folder, or s3://BUCKET/FOLDER.", parser=arguments.place, metavar="<path>"
        ),
    ],
    archive: Annotated[
        Path | None,
        typer.Argument(
            help="The archive to read: a folder, or s3://BUCKET/FOLDER.", parser=arguments.place, metavar="ARCHIVE"
        ),
    ] = None,
    named: Annotated[
        Path | None,
        typer.Option("--archive", help="The same as an option.", parser=arguments.place, metavar="<path>"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Bring the tables up to date, and end. The default.")] = False,
    every: Annotated[
        str | None,
        typer.Option(help="Continue, and check for new messages at this interval, as 5s or 500ms, until Ctrl-C."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue as messages arrive, until Ctrl-C.")] = False,
    optimize: Annotated[
        bool, typer.Option("--optimize", help="Join small files of the tables instead, and delete those of no table.")
    ] = False,
    master: Annotated[
        str | None, typer.Option(help="A Spark master, as local[2] or spark://HOST:PORT. Default: local[*,4].")
    ] = None,
    window: Annotated[float | None, typer.Option(help="Seconds per row of the table stats. Default: 1.")] = None,
    compression: Annotated[
        str, typer.Option(help="Of the Parquet files: snappy, zstd, lz4, gzip, brotli, none.")
    ] = "snappy",
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file that defines tables of your own, .sql or .py. May be given several times.", metavar="<file>"
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Builds Delta tables from an archive with Spark, or brings them up to date: raw, messages, stats, one per stream, and your own."""
    compression = compression.lower()
    if optimize:
        arguments.alone("--optimize", "it reads no archive", window=window, tables=tables)
    window = 1.0 if window is None else window
    from penstock.spark import definitions
    from penstock.spark import pipeline as job

    # These would fail only after work was done, or in a JVM.
    job.window_ns(window, "--window")
    job.check_compression(compression, "--compression")
    if master is not None and not MASTER.fullmatch(master):
        raise penstock.Invalid(f"--master is {master!r}: write local[*], local[2] or spark://HOST:PORT")
    if sum([once, every is not None, follow, optimize]) > 1:
        raise penstock.Invalid("--once, --every, --follow and --optimize are four things to do: name one of them")
    pause = 0.0 if follow else None if every is None else arguments.interval(every, "--every")
    if archive is not None and named is not None:
        raise penstock.Invalid(f"{output.path(archive)} and --archive {output.path(named)}: name one archive")
    archive = archive if named is None else named
    if optimize:
        _optimize(out, master, compression, json)
        return
    if archive is None:
        raise penstock.Invalid("ARCHIVE is missing: name the archive to read")
    own = tables or []
    definitions.load(own)
    penstock.Archive(archive, create=False)
    _bring(archive, out, master, pause, json, {"window": window, "compression": compression, "own": own})


def _bring(
    archive: Path, out: Path, master: str | None, pause: float | None, json: bool, options: dict[str, Any]
) -> None:
    """Once, if pause is None; else until a signal."""
    from penstock.spark import jvm, own_tables, session
    from penstock.spark.query import follow

    def batch(outcome: Outcome) -> None:
        if outcome.ranges and pause is not None:
            _say(outcome, out, json)

    spark = session(jvm.PIPELINE, master=master)  # which has its own handler for Ctrl-C
    try:
        with (
            ending.noted() if pause is not None else contextlib.nullcontext() as wait,
            output.steps("planning", quiet=json or pause is not None) as report,
        ):
            until = None if wait is None else lambda seconds: wait(seconds) != 0
            outcome = follow(spark, archive, out, every=pause, until=until, progress=report, on_step=batch, **options)
            ended = 0 if wait is None else wait(0)
    finally:
        spark.stop()
    if pause is None:
        _say(outcome, out, json)
    if failed := own_tables.failures(outcome.own):
        raise penstock.PenstockError(failed)
    if ended not in (0, signal.SIGINT):  # Ctrl-C is how it ends
        raise ending.Signalled(ended)


def _say(outcome: Outcome, out: Path, json: bool) -> None:
    if json:
        print(output.as_json(outcome), flush=True)
        return
    output.say(
        f"{output.many(outcome.rows, 'new message')} in {output.many(outcome.ranges, 'range')}, {outcome.total_rows:,} in all, of "
        f"{output.many(len(outcome.streams), 'stream')}, in {outcome.seconds:.1f} s. "
        f"Tables in {output.path(out)}: raw, messages, stats, and streams/NAME"
    )
    for one in outcome.own:
        if one.error is None:
            done = f"computed in {one.seconds:.1f} s" if one.is_new else "as it was"
            output.say(f"{one.name}: {output.many(one.rows, 'row')}, {done}")


def _optimize(out: Path, master: str | None, compression: str, json: bool) -> None:
    from penstock.spark import session
    from penstock.spark.compacting import optimize

    with output.steps("planning", quiet=json) as report:
        spark = None if master is None else session("penstock-optimize", master=master)
        try:
            done = optimize(spark, out, compression=compression, progress=report)
        finally:
            if spark is not None:
                spark.stop()
    if json:
        print(output.as_json(done))
    else:
        output.say(
            f"{output.many(done.files_before, 'file')} became {done.files_after:,}, {done.files_removed:,} that no table has were "
            f"deleted, in {done.seconds:.1f} s"
        )
