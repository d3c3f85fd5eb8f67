"""Commands that run whole jobs: demo, pipeline, bench."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

import penstock
from penstock.cli import output
from penstock.cli.output import console

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Puts this room's commands on the app."""
    app.command("pipeline")(pipeline)
    app.command("demo")(demo)
    app.command("bench", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)


def pipeline(
    archive: Annotated[Path, typer.Option(help="The archive to read.")],
    out: Annotated[Path, typer.Option(help="Where the tables go.")],
    master: Annotated[
        str | None,
        typer.Option(
            help="A Spark master such as local[*]. Default: here, without a JVM, below 64 MiB of news; else local[*]."
        ),
    ] = None,
    window: Annotated[float, typer.Option(help="Seconds per row of the table stats.")] = 1.0,
    compression: Annotated[str, typer.Option(help="Of the Parquet files: snappy, zstd, lz4, none.")] = "snappy",
    json: AsJson = False,
) -> None:
    """Builds the tables raw, messages and stats from an archive, or brings them up to date."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    penstock.Archive(archive, create=False)  # fail before a JVM starts
    from penstock.spark import pipeline as job
    from penstock.spark import session

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.errors, disable=json) as bar:
        task = bar.add_task("planning", total=None)
        spark = None if master is None else session("penstock-pipeline", master=master)

        def report(what: str, done: int, count: int) -> None:
            bar.update(task, description=what, completed=done, total=count)

        outcome = job.run(spark, archive, out, window=window, compression=compression, progress=report)
        bar.update(task, description="done", completed=1, total=1)
    if json:
        print(output.as_json(outcome))
    else:
        console.print(
            f"{outcome.rows:,} new messages in {outcome.ranges} ranges, {outcome.total_rows:,} in all, of "
            f"{len(outcome.streams)} streams, in {outcome.seconds:.1f} s ({outcome.engine}). Tables in {out}: raw, messages, stats"
        )
    if spark is not None:
        spark.stop()


def demo(
    seconds: Annotated[float, typer.Option(help="How long to publish this host's telemetry.")] = 5.0,
    data: Annotated[
        Path | None, typer.Option(help="Publish this folder of .npz streams instead, in their own time order.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where archive, tables and report go; made anew each time.")] = Path(
        "out/demo"
    ),
    channels: Annotated[
        str,
        typer.Option(
            help="The kind of channel: log; ring, with a burst that nobody can keep up with; sync, where all write and one is killed; pipe, with workers that are killed."
        ),
    ] = "log",
    json: AsJson = False,
) -> None:
    """The main job end to end: publish, subscribe, record, Spark, report."""
    from penstock.cli.demo import run

    if channels not in ("log", "ring", "sync", "pipe"):
        raise penstock.Invalid(f"--channels {channels}: this version has log, ring, sync and pipe")
    run(seconds=seconds, data=data, out=out, as_json=json, kind=channels)


def bench(context: typer.Context) -> None:
    """Runs a benchmark of the checkout in this folder: penstock bench log_ipc --quick."""
    if not Path("bench/__main__.py").exists():
        raise penstock.NotFound("benchmarks come with the source: run this in a checkout of Penstock")
    raise typer.Exit(subprocess.call([sys.executable, "-m", "bench", *context.args]))
