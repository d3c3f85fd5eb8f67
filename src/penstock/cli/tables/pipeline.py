"""The command pipeline: an archive's tables, once or as messages arrive, and their compaction."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli import arguments, ending
from penstock.cli.tables import engines
from penstock.cli.terminal import output
from penstock.util.errors_in_text import first_of
from penstock.util.files import user_files
from penstock.util.units import seconds

if TYPE_CHECKING:
    from penstock.tables import pipeline as job
    from penstock.tables.options import Options, Outcome

ENGINES = ("spark", "local", "sail")
SIGNAL_SECONDS = 0.5  # an error may come this much before the signal that caused it
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def add_commands(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command("pipeline")(pipeline)
    app.command("erase")(erase)


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
        bool, typer.Option("--optimize", help="Join small files of the tables instead; needs no ARCHIVE.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            help="spark (default), local: this machine's cores, or sail, which speaks Spark's protocol; these two without a JVM."
        ),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="A Spark master, as local[2] or spark://HOST:PORT. Default: local[*,4].")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting of Spark, as spark.driver.memory=4g. May be given several times.", metavar="KEY=VALUE"
        ),
    ] = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns of a stream in Spark's DDL, as log:imu='px double, ts timestamp', or @FILE with a line for each stream.",
            metavar="STREAM=DDL",
        ),
    ] = None,
    new_keys: Annotated[
        str | None,
        typer.Option(
            help="A key that has no column: add (default) makes one, rescue puts its values into _rescued, fail leaves the stream out."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Drop older rows, as 30d or log:imu=7d. May be given several times.", metavar="AGE"),
    ] = None,
    rebuild: Annotated[
        list[str] | None,
        typer.Option(
            help="Make this stream's table anew, from messages. May be given several times.", metavar="STREAM"
        ),
    ] = None,
    restored: Annotated[
        str | None,
        typer.Option(help="Tables that were set back: keep leaves their lost rows out, refill reads them again."),
    ] = None,
    compression: Annotated[
        str | None, typer.Option(help="Of the Parquet files: snappy (default), zstd, lz4, gzip, brotli, none.")
    ] = None,
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            help="A file that defines tables of your own, .sql or .py. May be given several times.", metavar="<file>"
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Builds Delta tables from an archive with Spark, or brings them up to date: messages, losses, one per stream, and your own."""
    if sum([once, every is not None, follow, optimize]) > 1:
        raise penstock.Invalid("--once, --every, --follow and --optimize are four things to do: name one of them")
    if optimize:
        if archive is not None:
            raise penstock.Invalid("ARCHIVE has no effect with --optimize: it reads no archive")
        given: dict[str, object] = {
            "schema": schema,
            "keep": keep,
            "rebuild": rebuild,
            "restored": restored,
            "tables": tables,
        }
        given |= {"archive": named, "engine": engine, "new_keys": new_keys, "compression": compression}
        arguments.refuse_others("--optimize", "it reads no archive", **given, master=master, conf=conf)
        _optimize(out, json)
        return
    engine = "spark" if engine is None else engine
    if engine in ("local", "sail"):
        for name, value in (("--master", master), ("--conf", conf), ("--tables", tables)):
            if value:
                raise penstock.Invalid(f"{name} is Spark's: leave it out, or leave out --engine {engine}")
    engines.check(engine, ENGINES, master, "pipeline", "deltalake")
    from penstock.tables.options import Options

    # These would fail only after work was done, or in a JVM.
    settings = arguments.pairs("--conf", conf or [], "KEY=VALUE, as spark.driver.memory=4g")
    options = Options(
        compression="snappy" if compression is None else compression.lower(),
        schema=_schemas(schema or []),
        new_keys="add" if new_keys is None else new_keys,
        keep=_ages(keep or []),
        rebuild=tuple(rebuild or ()),
        restored=restored,
    )
    pause = 0.0 if follow else None if every is None else arguments.interval(every, "--every")
    if pause == 0 and not follow:
        raise penstock.Invalid(f"--every is {every!r}: it must be more than 0; --follow continues as messages arrive")
    if archive is not None and named is not None:
        raise penstock.Invalid(f"{output.path(archive)} and --archive {output.path(named)}: name one archive")
    archive = archive if named is None else named
    if archive is None:
        raise penstock.Invalid("ARCHIVE is missing: name the archive to read")
    penstock.Archive(archive, create=False)
    if engine == "local":
        from penstock.tables.pipeline import Pipeline

        _follow(lambda report: Pipeline(archive, out, options, progress=report), out, pause, json)
    else:
        _by_spark(engine, archive, out, options, tables or [], (master, settings), pause, json)


def _schemas(given: list[str]) -> dict[str, str]:
    """The columns of each stream that --schema names; `@FILE` is a file with such a line for each stream."""
    lines: list[str] = []
    for text in given:
        if not text.startswith("@"):  # UTF-8 whatever the locale is
            lines.append(os.fsencode(text).decode(errors="surrogateescape"))
            continue
        try:
            found = user_files.read_text(text[1:]).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise penstock.Invalid(f"--schema {text}: {getattr(error, 'strerror', None) or error}") from error
        lines += [line for line in found if line.strip() and not line.lstrip().startswith("#")]
    named = arguments.pairs("--schema", lines, "STREAM=DDL, as log:imu='px double, ts timestamp'")
    return {stream.strip(): text for stream, text in named.items()}


def _ages(given: list[str]) -> dict[str | None, str]:
    """How long rows are kept, by stream; None: of all others."""
    found: dict[str | None, str] = {}
    for text in given:
        stream, _, age = text.rpartition("=")
        if (stream or None) in found:
            raise penstock.Invalid(f"--keep is given twice for {stream or 'all streams'}")
        seconds(age, "--keep")
        found[stream or None] = age
    return found


def _by_spark(
    engine: str,
    archive: Path,
    out: Path,
    options: Options,
    own: list[Path],
    settings: tuple[str | None, dict[str, str]],
    pause: float | None,
    json: bool,
) -> None:
    from penstock.spark import pipeline as job
    from penstock.spark.parsing import definitions
    from penstock.spark.runtime import jvm
    from penstock.spark.runtime.failures import failure, unlogged

    definitions.load(own)
    try:
        # Spark has its own handler for Ctrl-C until the session is there.
        with engines.session(engine, jvm.PIPELINE, settings[0], settings[1]) as spark, unlogged():
            _follow(
                lambda report: job.Pipeline(spark, archive, out, options, own=own, progress=report, engine=engine),
                out,
                pause,
                json,
            )
    except (penstock.PenstockError, ending.Signalled):
        raise
    except Exception as error:  # Py4J's, or a socket's, at any call: the JVM has gone
        raise failure(error) from error


def _follow(
    made: Callable[[Callable[[str, int, int], None]], job.Pipeline], out: Path, pause: float | None, json: bool
) -> None:
    """Once, if pause is None; else until a signal."""
    from penstock.tables import following

    def batch(outcome: Outcome) -> None:
        if outcome.ranges and pause is not None:
            _print_outcome(outcome, out, json)

    with (
        ending.defer_end() if pause is not None else contextlib.nullcontext() as wait,
        output.steps("planning", quiet=json or pause is not None) as report,
    ):
        until = None if wait is None else lambda seconds: wait(seconds) != 0
        try:
            with made(report) as pipeline:
                outcome = following.follow(pipeline, every=pause, until=until, on_step=batch)
            pipeline.check()
        except penstock.PenstockError:
            # A signal to all processes of a service ends Spark's JVM as well: that is no error.
            if wait is None or not (ended := wait(SIGNAL_SECONDS)):
                raise
            _end(ended)
            return
        ended = 0 if wait is None else wait(0)
    if pause is None:
        _print_outcome(outcome, out, json)
    if failed := [one.error for one in outcome.own if one.error]:
        raise penstock.PenstockError(f"{first_of(failed)}; all other tables are up to date")
    _end(ended)


def _end(signalled: int) -> None:
    if signalled not in (0, signal.SIGINT):  # Ctrl-C is how it ends
        raise ending.Signalled(signalled)


def _print_outcome(outcome: Outcome, out: Path, json: bool) -> None:
    if json:
        print(output.as_json(outcome), flush=True)
        return
    output.say(
        f"{output.many(outcome.rows, 'new message')} in {output.many(outcome.ranges, 'range')}, {outcome.total_rows:,} in all, of "
        f"{output.many(len(outcome.streams), 'stream')}, in {outcome.seconds:.1f} s. "
        f"Tables in {output.path(out)}: messages, losses, and streams/NAME"
    )
    if outcome.erased:
        output.say(f"{output.many(outcome.erased, 'message')} left out: the send time was erased")
    for one in outcome.own:
        if one.error is None:
            done = f"computed in {one.seconds:.1f} s" if one.is_new else "as it was"
            output.say(f"{one.name}: {output.many(one.rows, 'row')}, {done}")


def _optimize(out: Path, json: bool) -> None:
    from penstock.tables import keep

    with output.working("joining small files"):
        done = keep.optimize(out)
    if json:
        print(output.as_json(done))
    else:
        output.say(
            f"{output.many(done.files_before, 'file')} became {done.files_after:,}; {done.files_removed:,} that were replaced "
            f"more than seven days ago were deleted, in {done.seconds:.1f} s"
        )


def erase(
    out: Annotated[
        Path,
        typer.Argument(help="The folder of tables, or s3://BUCKET/FOLDER.", parser=arguments.place, metavar="TABLES"),
    ],
    stream: Annotated[str | None, typer.Argument(help="Only this stream.", metavar="STREAM")] = None,
    since: arguments.Since = None,
    until: arguments.Until = None,
    json: AsJson = False,
) -> None:
    """Deletes rows of a stream, or of a span of time, from all tables and from the disk, for good. The archive keeps its recordings."""
    from penstock.record import TIME_MAX, TIME_MIN
    from penstock.tables import keep

    span = arguments.moment(since, "--since", TIME_MIN), arguments.moment(until, "--until", TIME_MAX)
    with output.working("erasing"):
        count = keep.erase(out, stream, since=span[0], until=span[1])
    if json:
        print(output.as_json({"messages": count}))
    else:
        output.say(
            f"{output.many(count, 'message')} erased from the tables in {output.path(out)}; no run brings them back"
        )
