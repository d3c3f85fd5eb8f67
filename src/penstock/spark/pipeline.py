"""The pipeline: archive → *raw*, *messages*, a table of decoded columns per stream, and *stats*, as Delta tables.

A second run processes only new messages; a killed one loses and doubles nothing. Tasks read and write with Arrow; the driver commits
their files. Runs as `penstock pipeline`, from Python by `run` or `follow`, or with `spark-submit` on this file.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import Archive
from penstock.errors import Corrupt, Invalid
from penstock.record import ReadPlanner
from penstock.spark import definitions, needs, own_tables, stats
from penstock.spark.books import Books
from penstock.spark.engine import Engine, Progress
from penstock.spark.own_tables import Result
from penstock.spark.passes import Work
from penstock.spark.reading import Reading
from penstock.spark.tables import NAMES, RECORDED, locked, table
from penstock.tables.places import Place
from penstock.util.storage import where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Options", "Outcome", "Pipeline", "main", "run", "table"]

log = logging.getLogger("penstock")

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "brotli", "none")
COMMIT_BYTES = 256 << 20


@dataclass(frozen=True)
class Outcome:
    """The result of a run. rows: of *messages*, new in this run; total_rows: in the table now; files_removed: that no table had any
    more; engine: spark or local; own: the user's tables, with the errors of those that failed."""

    ranges: int
    rows: int
    total_rows: int
    streams: tuple[str, ...]
    seconds: float
    files_removed: int
    engine: str
    own: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Options:
    """How tables are made; see `run`."""

    window: float = 1.0
    compression: str = "snappy"
    tables: tuple[str, ...] | None = None
    range_bytes: int = 32 << 20
    commit_bytes: int = COMMIT_BYTES
    retain: float = 3600.0
    own: Sequence[str | Path] = ()

    def __post_init__(self) -> None:
        window_ns(self.window)
        check_compression(self.compression)
        if self.tables is not None and (not set(self.tables) <= set(NAMES) or "messages" not in self.tables):
            raise Invalid(f"tables are {', '.join(NAMES)}; messages is always among them")


class Pipeline:
    """An archive and its tables: `step` brings these up to date. A context manager that holds the lock of the folder."""

    def __init__(
        self,
        spark: SparkSession | None,
        archive: str | Path,
        out: str | Path,
        options: Options,
        progress: Progress | None = None,
    ) -> None:
        self.spark, self.options = spark, options
        self.progress = progress or (lambda what, done, count: None)
        self.folder = Place.of(out)
        self.archive = Archive(where(archive, "the archive").uri, create=False)
        self.tables = options.tables or (NAMES if spark is not None else RECORDED)
        if spark is None and ("stats" in self.tables or options.own):
            raise Invalid("stats, and tables of your own, are SQL: give a Spark session")
        self.damaged: list[str] = []
        self._gaps: list[str] = []  # damaged blocks that any step left out: no later step reads their ranges again
        self._held = contextlib.ExitStack()
        self._books: Books | None = None
        self.consumer: Reading | None = None
        self._ordered: own_tables.Plan = ()
        if options.own:
            defined = definitions.load(options.own)
            self._ordered = own_tables.plan(self.session(), defined, {info.channel for info in self.archive.list()})

    def __enter__(self) -> Pipeline:
        self._held.enter_context(locked(self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def session(self) -> SparkSession:
        """The session, for SQL."""
        if self.spark is None:
            raise Invalid("stats, and tables of your own, are SQL: give a Spark session")
        return self.spark

    def step(self) -> Outcome:
        """One pass. `left_out` lists what is not in the tables."""
        begun, options = time.monotonic(), self.options
        self.damaged = []
        survey = ReadPlanner(self.archive, on_skip=self.damaged.append)
        removed = 0
        books, self._books = self._books, None  # after an error they say what is not there
        if books is None or books.left_out():
            books = Books(self.folder, self.tables, self.damaged)
            removed = books.sweep(options.retain)
        books.damaged = self.damaged
        planned = needs.plan(survey, books.have(), options.range_bytes)
        engine = Engine(self.spark, self.progress)
        work = Work(books, survey, engine, options.compression, self._gaps)
        if work.cut():
            planned = needs.plan(survey, books.have(), options.range_bytes)
        rows = work.bring(planned, options.commit_bytes)
        if self.spark is not None and "stats" in self.tables:
            kept = dict[str, Any](compression=options.compression, retain=options.retain)
            stats.bring(self.session, self.folder, window_ns(options.window), **kept)
        removed += books.sweep_replaced(options.retain)
        own = self._bring_own()
        self._books = books
        if self.consumer is not None:
            self.consumer.note(survey.of_consumer(needs.held_by_all(survey, books.have())))
        files = list(books["messages"].files.values())
        total, streams = sum(row["rows"] for row in files), tuple(sorted({row["channel"] for row in files}))
        return Outcome(len(planned), rows, total, streams, time.monotonic() - begun, removed, engine.name, own)

    def _bring_own(self) -> tuple[Result, ...]:
        """The user's tables, after the built-in ones."""
        if not self._ordered or self.spark is None:
            return ()
        kept: Any = {"compression": self.options.compression, "retain": self.options.retain}
        return tuple(own_tables.bring(self.session(), self.folder, self._ordered, progress=self.progress, **kept))

    def left_out(self) -> list[str]:
        """The parts that the last step had to leave out: recordings, streams, tables of streams. And the damaged blocks that any step left out."""
        return self.damaged + self._gaps

    def check(self) -> None:
        """`Corrupt` if anything was left out."""
        if found := self.left_out():
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise Corrupt(f"{found[0]}{more}; all else is in the tables")


def run(
    spark: SparkSession | None,
    archive: str | Path,
    out: str | Path,
    *,
    progress: Progress | None = None,
    window: float = 1.0,
    compression: str = "snappy",
    tables: Sequence[str] | None = None,
    range_bytes: int = 32 << 20,
    commit_bytes: int = COMMIT_BYTES,
    retain: float = 3600.0,
    own: Sequence[str | Path] = (),
) -> Outcome:
    """Brings the tables in `out` up to date with an archive, once.

    spark: the session that does the work. None: tasks run in this process, one by one, and there is no SQL: so no *stats* and no tables
    of the user's own. out: a folder of its own; nothing is deleted in it that the pipeline did not write. progress is called with
    (what, done, all).

    Options: window: seconds per row of *stats*. compression: as pyarrow names it, "none" for the fastest scans. tables: those to bring
    up to date (raw, messages, streams, stats; all by default); one that is asked for later is built from the archive. range_bytes: about how much of the
    archive a task reads; commit_bytes: and how much is read between commits. retain: seconds for which files that were replaced stay,
    for readers that still have them. own: files that define the user's tables; see docs/tables/spark.md.

    Raises `Busy` if another pipeline writes to `out`, and `Corrupt` if a recording or a stream of the archive is damaged; all else is in
    the tables then.
    """
    options = Options(
        window=window,
        compression=compression,
        tables=None if tables is None else tuple(tables),
        range_bytes=range_bytes,
        commit_bytes=commit_bytes,
        retain=retain,
        own=own,
    )
    with Pipeline(spark, archive, out, options, progress) as pipeline:
        outcome = pipeline.step()
    pipeline.check()
    return outcome


def window_ns(window: float, name: str = "window") -> int:
    """The width of a row of *stats* in nanoseconds. `Invalid` unless it makes sense."""
    if not 1e-9 <= window < 4e9:
        raise Invalid(f"{name} is {window}: it must be a number of seconds, at least 1e-9 and less than 4e9")
    return int(window * 1e9)


def check_compression(compression: str, name: str = "compression") -> None:
    """`Invalid` for a compression that Parquet files do not have."""
    if compression not in COMPRESSIONS:
        raise Invalid(f"{name} is {compression!r}: there are {', '.join(COMPRESSIONS)}")


def main(arguments: list[str] | None = None) -> None:
    """For spark-submit: `pipeline.py --archive DIR --out DIR`. The session comes from spark-submit's settings."""
    import argparse

    from penstock.spark import session

    parser = argparse.ArgumentParser(description="Builds tables from an archive.")
    parser.add_argument("--archive", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--window", type=float, default=1.0)
    given = parser.parse_args(arguments)
    spark = session("penstock-pipeline")
    outcome = run(spark, given.archive, given.out, window=given.window)
    print(
        f"{outcome.rows} new messages, {outcome.total_rows} in all, of {len(outcome.streams)} streams, in {outcome.seconds:.1f} s"
    )
    spark.stop()


if __name__ == "__main__":
    main()
