"""Spark over archives: the data source `penstock`, and the pipeline that builds tables from recordings.

A guest of the front door. Needs `pyspark>=4.2,<5` and a JVM: `pip install 'penstock[spark]'`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.channels.checks import flag
from penstock.errors import Invalid
from penstock.record import Moment, nanoseconds
from penstock.record.archive import Archive
from penstock.util.extras import check_installed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.tables.lake import Lake

check_installed("pyarrow", what="penstock.spark", extra="spark")

__all__ = ["load", "register", "session", "sql", "table"]


def session(name: str = "penstock", *, master: str | None = None, **conf: Any) -> SparkSession:
    """A Spark session set up for Penstock: JVM found, data source registered. See `penstock.spark.runtime.jvm`."""
    from penstock.spark.runtime.jvm import build_session

    spark = build_session(name, master=master, conf=conf)
    register(spark)
    return spark


def load(
    spark: SparkSession,
    archive: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    stream: str | Sequence[str] | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    start: int | None = None,
    end: int | None = None,
    live: bool = False,
) -> DataFrame:
    """An archive as a DataFrame, read no further than asked for.

    columns: only these are read; by default stream, session, position, time, timestamp_ns, lost and payload. stream: one or more
    channels. since, until: send times, both inclusive: datetimes with a time zone, texts as "2026-01-31T12:00Z" or "10m ago", or
    nanoseconds since the epoch. start, end: positions, end exclusive. Planning uses the indexes alone: segments that hold nothing of this are not opened.
    live: with the messages that only shared memory of this machine has, each once, also of streams that the archive does not have. Each
    query of the DataFrame is as new as its own plan. Registers the data source, if that was not done. Raises `Invalid` or `NotFound` for an argument, archive or stream that is wrong.
    """
    from penstock.spark.source import options
    from penstock.spark.source.data_source import columns_of

    asked = {"path": os.fspath(archive)}
    if stream is not None:
        asked["stream"] = options.join_streams(stream)
    for name, moment in (("since", since), ("until", until)):
        if moment is not None:
            asked[name] = str(nanoseconds(moment, name))
    asked |= {name: str(value) for name, value in (("start", start), ("end", end)) if value is not None}
    if flag(live, "live"):
        asked["live"] = "true"
    names = options.chosen(options.DEFAULT if columns is None else columns)
    options.Request.of(asked).check()  # here, not in a worker of Spark's: so that the error is one line
    register(spark)
    path = asked.pop("path")
    return (
        spark.read.format("penstock")
        .schema(columns_of(names, ("recorded_ns",) if live else ()))
        .options(**asked)
        .load(path)
    )


def table(
    spark: SparkSession,
    out: str | os.PathLike[str],
    name: str,
    *,
    stream: str | None = None,
    version: int | None = None,
    live: bool = False,
    archive: str | os.PathLike[str] | Archive | None = None,
    strict: bool = False,
) -> DataFrame:
    """A table of the pipeline as a DataFrame, as it is now or was at a version. It takes no Delta package for Spark.

    name: `messages`, `losses`, `stats` (a view, with a row per second), a table of your own, or a stream's channel, for its columns. stream: only this stream's
    rows. The DataFrame does not change when the pipeline continues. Raises `NotFound` if there is no such table.

    live: of a stream, also what the archive has beyond the table, and what only shared memory of this machine has beyond both: one cut, each
    row once, with the columns of the stream's table, also before there is one. It does not change either. archive: without it, the
    table and memory. strict: `Busy` if messages are missing; without it, they are logged.
    """
    if flag(live, "live"):
        if stream is not None or version is not None:
            raise Invalid(
                "live=True is for a stream as it is now: name its channel alone, without stream= and version="
            )
        from penstock.spark import lake
        from penstock.tables.lake import Lake

        return lake.table(spark, Lake(out, archive, strict=strict), name)
    if archive is not None or strict:
        raise Invalid("archive= and strict= go with live=True: a table's snapshot is of the table alone")
    from penstock.spark.files import frames

    return frames.table(spark, out, name, stream=stream, version=version)


def sql(spark: SparkSession, lake: Lake, query: str) -> DataFrame:
    """A query over streams as they are now (`penstock.lake`), as a DataFrame. It computes nothing yet, and its streams are one cut.

    query: in DuckDB's SQL, as for `Lake.sql`; sqlglot translates it. `Invalid` for what is not one query or what Spark cannot read, `NotFound`
    for a stream that there is not. Messages that are missing are logged; `Busy` with a lake that is strict.
    """
    from penstock.spark import lake as lakes

    return lakes.query(spark, lake.told(lakes.cut_of(lake, query)), query)


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("penstock")` known to a session. `NotFound` if Spark's workers would not find Penstock.

    Where Penstock is installed, Spark finds the source by itself; in a session that began before that, it does not.
    """
    from penstock.spark.runtime.jvm import check_interpreter
    from penstock.spark.source.data_source import PenstockDataSource

    check_interpreter(spark)
    spark.dataSource.register(PenstockDataSource)
