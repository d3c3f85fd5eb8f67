"""Commands that run whole jobs: demo, bench."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli import given, output

if TYPE_CHECKING:
    from penstock.export import Outcome

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("export")(export)
    app.command("import")(import_)
    app.command("demo")(demo)
    app.command("bench", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)


def export(
    archive: given.ArchivePath,
    out: Annotated[
        str,
        typer.Argument(
            help="A new folder, or s3://BUCKET/FOLDER; with --mcap a new file.", parser=given.place, metavar="OUT"
        ),
    ],
    parquet: Annotated[bool, typer.Option("--parquet", help="Parquet files. The default.")] = False,
    arrow: Annotated[bool, typer.Option("--arrow", help="Arrow files.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="CSV files.")] = False,
    delta: Annotated[bool, typer.Option("--delta", help="A Delta table for each stream.")] = False,
    mcap: Annotated[bool, typer.Option("--mcap", help="One MCAP file of all messages.")] = False,
    stream: Annotated[
        list[str] | None, typer.Option(help="Only this channel, or a pattern; may be given several times.")
    ] = None,
    since: given.Since = None,
    until: given.Until = None,
    compression: Annotated[
        str | None, typer.Option(help="Of the files: snappy, zstd, lz4, gzip, brotli, none; of MCAP: zstd, lz4, none.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="How many work at once. Default: one for each core.")] = None,
    json: AsJson = False,
) -> None:
    """Writes an archive's decoded messages as files, without a JVM: a copy, made once."""
    from penstock.recording import TIME_MAX, TIME_MIN

    named = {"delta": delta, "parquet": parquet, "arrow": arrow, "csv": csv, "mcap": mcap}
    chosen = [name for name, asked in named.items() if asked]
    if len(chosen) > 1:
        raise penstock.Invalid(f"--{chosen[0]} and --{chosen[1]}: choose one")
    begun = time.monotonic()
    if mcap and processes is not None:
        raise penstock.Invalid("--processes and --mcap: one process writes an MCAP file")
    run = _exporter(chosen[0] if chosen else "parquet", processes)
    with output.steps("planning", quiet=json) as report:
        done = run(
            archive,
            out,
            streams=stream or None,
            since=given.moment(since, "--since", TIME_MIN),
            until=given.moment(until, "--until", TIME_MAX),
            compression=None if compression is None else compression.lower(),
            left_out=lambda text: None,
            progress=report,
        )
    for text in done.left_out:
        output.note(f"warning: {text}")
    if json:
        print(output.as_json(done))
    else:
        output.say(
            f"{output.many(done.rows, 'message')} of {output.many(len(done.streams), 'stream')} in "
            f"{time.monotonic() - begun:.1f} s, in {output.path(out)}"
        )
    if done.left_out:
        many = len(done.left_out)
        what = "1 part of the archive is" if many == 1 else f"{many:,} parts of the archive are"
        raise penstock.Corrupt(f"{what} damaged and left out; all else is in {output.path(out)}")


def _exporter(form: str, processes: int | None) -> Callable[..., Outcome]:
    """The function that writes this form; all of them take the same options."""
    if form == "mcap":
        from penstock.export.mcap import export_mcap

        return export_mcap
    from penstock.export import export as to_files

    return functools.partial(to_files, form=form, processes=processes)


def import_(
    archive: given.ArchivePath,
    file: Annotated[Path, typer.Argument(help="An MCAP file.", metavar="FILE")],
    stream: Annotated[
        list[str] | None, typer.Option(help="Only this channel, or a pattern; may be given several times.")
    ] = None,
    since: given.Since = None,
    until: given.Until = None,
    json: AsJson = False,
) -> None:
    """Appends the messages of an MCAP file to an archive, which is made if it does not exist."""
    from penstock.export.mcap import import_mcap
    from penstock.recording import TIME_MAX, TIME_MIN

    if not file.is_file():
        raise penstock.NotFound(f"there is no file {output.path(file)}")
    begun = time.monotonic()
    with output.steps("importing", quiet=json) as report:
        done = import_mcap(
            archive,
            file,
            streams=stream or None,
            since=given.moment(since, "--since", TIME_MIN),
            until=given.moment(until, "--until", TIME_MAX),
            progress=report,
        )
    if json:
        print(output.as_json(done))
    else:
        output.say(
            f"{output.many(done.rows, 'message')} of {output.many(len(done.streams), 'stream')} in "
            f"{time.monotonic() - begun:.1f} s, into {output.path(archive)}"
        )


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
            help="The kind of channel: log; ring, with a burst that nobody can keep up with; sync, where all write and one is killed; pipe, with workers that are killed; udp, over a link that loses datagrams."
        ),
    ] = "log",
    tables: Annotated[
        list[Path] | None, typer.Option(help="A file that defines tables of your own; see pipeline.", metavar="<file>")
    ] = None,
    json: AsJson = False,
) -> None:
    """The main job end to end: publish, subscribe, record, Spark, report."""
    from penstock.cli.demo import DEMOS, run

    given.positive(seconds, "--seconds")
    if channels not in DEMOS:
        raise penstock.Invalid(f"--channels {channels}: this version has log, ring, sync, pipe and udp")
    run(seconds=seconds, data=data, out=out, as_json=json, kind=channels, own=tables or [])


def bench(context: typer.Context) -> None:
    """Runs a benchmark of the checkout in this folder: penstock bench log_ipc --quick."""
    if not Path("bench/__main__.py").exists():
        raise penstock.NotFound("benchmarks come with the source: run this in a checkout of Penstock")
    status = subprocess.call([sys.executable, "-m", "bench", *context.args])
    raise typer.Exit(status if status >= 0 else 128 - status)
