"""Commands that run whole jobs: export, import, bench."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli import arguments
from penstock.cli.terminal import output
from penstock.util.extras import check_installed

if TYPE_CHECKING:
    from penstock.export.files import Outcome

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Adds these commands to the app."""
    app.command("export")(export)
    app.command("import")(import_)
    app.command("bench", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)


def export(
    archive: arguments.ArchivePath,
    out: Annotated[
        str,
        typer.Argument(
            help="A new folder, or s3://BUCKET/FOLDER; with --mcap a new file.", parser=arguments.place, metavar="OUT"
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
    since: arguments.Since = None,
    until: arguments.Until = None,
    compression: Annotated[
        str | None, typer.Option(help="Of the files: snappy, zstd, lz4, gzip, brotli, none; of MCAP: zstd, lz4, none.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="How many work at once. Default: one for each core.")] = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            help="With --mcap: a schema that other tools know, for a channel of JSON, as log:scan=foxglove.LaserScan.",
            metavar="CHANNEL=NAME",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --mcap: make no file that would not have all of the archive.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Writes an archive's decoded messages as files, without a JVM: a copy, made once."""
    from penstock.record import TIME_MAX, TIME_MIN

    named = {"delta": delta, "parquet": parquet, "arrow": arrow, "csv": csv, "mcap": mcap}
    chosen = [name for name, asked in named.items() if asked]
    if len(chosen) > 1:
        raise penstock.Invalid(f"--{chosen[0]} and --{chosen[1]}: choose one")
    begun = time.monotonic()
    if not mcap and str(out).lower().endswith(".mcap"):
        raise penstock.Invalid(
            f"{output.path(out)} would be a folder: add --mcap for an MCAP file, or name it otherwise"
        )
    if mcap and processes is not None:
        raise penstock.Invalid("--processes and --mcap: one process writes an MCAP file")
    for name, value in (("--schema", schema), ("--strict", strict)):
        if value and not mcap:
            raise penstock.Invalid(
                f"{name} is of --mcap: every other form has all of the archive, with its own columns"
            )
    schemas = arguments.pairs("--schema", schema or [], "CHANNEL=NAME, as log:scan=foxglove.LaserScan")
    run = _exporter(chosen[0] if chosen else "parquet", processes, schemas, strict)
    with output.steps("planning", quiet=json) as report:
        done = run(
            archive,
            out,
            streams=stream or None,
            since=arguments.moment(since, "--since", TIME_MIN),
            until=arguments.moment(until, "--until", TIME_MAX),
            compression=None if compression is None else compression.lower(),
            on_skip=lambda text: None,
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
    if done.damaged:
        many = len(done.damaged)
        what = "1 part of the archive is" if many == 1 else f"{many:,} parts of the archive are"
        refused = any(os.strerror(errno.EACCES) in text for text in done.damaged)
        why = "damaged, or may not be read," if refused else "damaged"
        raise penstock.Corrupt(f"{what} {why} and left out; everything else is in {output.path(out)}")


def _exporter(form: str, processes: int | None, schemas: dict[str, str], strict: bool) -> Callable[..., Outcome]:
    """The function that writes this form; all of them take the same options."""
    if form == "mcap":
        check_installed("pyarrow", "mcap", what="an export to MCAP", extra="mcap")
        from penstock.export.mcap import export_mcap

        return functools.partial(export_mcap, schemas=schemas, strict=strict)
    if form == "delta":
        check_installed("pyarrow", "deltalake", what="an export to Delta", extra="tables")
    from penstock.export.files import export as to_files

    return functools.partial(to_files, form=form, processes=processes)


def import_(
    archive: arguments.ArchivePath,
    file: Annotated[Path, typer.Argument(help="An MCAP file.", parser=arguments.file, metavar="FILE")],
    stream: Annotated[
        list[str] | None, typer.Option(help="Only this topic or channel, or a pattern; may be given several times.")
    ] = None,
    since: arguments.Since = None,
    until: arguments.Until = None,
    recover: Annotated[
        bool, typer.Option("--recover", help="Import the sound parts of a damaged file; the rest is counted.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Import nothing if the archive cannot keep everything in the file.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Appends the messages of an MCAP file to an archive, which is made if it does not exist."""
    check_installed("pyarrow", "mcap", what="an import of MCAP", extra="mcap")
    from penstock.export.mcap import import_mcap
    from penstock.record import TIME_MAX, TIME_MIN

    if file.is_dir():
        there = sorted(file.glob("*.mcap"))
        if not there:
            raise penstock.NotFound(f"{output.path(file)} is a folder without a file of MCAP")
        raise penstock.Invalid(
            f"{output.path(file)} is a folder: import its {output.many(len(there), 'file')} in turn, {output.path(there[0])} first"
            if len(there) > 1
            else f"{output.path(file)} is a folder: import its file {output.path(there[0])}"
        )
    if not file.is_file():
        raise penstock.NotFound(f"there is no file {output.path(file)}")
    begun = time.monotonic()
    with output.steps("importing", quiet=json) as report:
        done = import_mcap(
            archive,
            file,
            streams=stream or None,
            since=arguments.moment(since, "--since", TIME_MIN),
            until=arguments.moment(until, "--until", TIME_MAX),
            strict=strict,
            recover=recover,
            on_skip=lambda text: None,
            progress=report,
        )
    for text in done.damaged:
        output.note(f"skipped: {text}")
    for text in done.left_out:
        output.note(f"left out: {text}")
    for one in done.renamed:
        output.note(f"renamed: {one.topic!r}{f' of {one.form}' if one.form else ''} is {one.channel}")
    for text in done.opaque:
        output.note(f"not decoded: {text}")
    if done.unchecked:
        output.note(f"warning: {done.unchecked}")
    if done.overlaps:
        channels = ", ".join(done.overlaps)
        output.note(
            f"warning: {channels} had messages of these times before: those of a file that is imported twice are there twice"
        )
    if json:
        print(output.as_json(done))
    else:
        output.say(
            f"{output.many(done.rows, 'message')} of {output.many(len(done.streams), 'stream')} in "
            f"{time.monotonic() - begun:.1f} s, into {output.path(archive)}"
        )


def bench(context: typer.Context) -> None:
    """Runs a benchmark of the checkout in this folder: penstock bench log_ipc --quick."""
    if not Path("bench/__main__.py").exists():
        raise penstock.NotFound("benchmarks are part of the source: run this in a checkout of Penstock")
    status = subprocess.call([sys.executable, "-m", "bench", *context.args])
    raise typer.Exit(status if status >= 0 else 128 - status)
