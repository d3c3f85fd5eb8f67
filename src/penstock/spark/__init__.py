"""Spark over archives: the data source `penstock`, and the pipeline that builds tables from recordings.

A guest of the front door. Needs `pyspark>=4.2,<5` and a JVM: `pip install 'penstock[spark]'`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.record import Moment, nanoseconds
from penstock.util.extras import check_installed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

check_installed("pyarrow", what="penstock.spark", extra="spark")

__all__ = ["load", "register", "session", "table"]


def session(name: str = "penstock", *, master: str | None = None, **conf: Any) -> SparkSession:
    """A Spark session set up for Penstock: JVM found, data source registered. See `penstock.spark.jvm`."""
    from penstock.spark.jvm import build_session

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
) -> DataFrame:
    """An archive as a DataFrame, read no further than asked for.

    columns: only these are read; by default stream, session, position, time, timestamp_ns, lost and payload. stream: one or more
    channels. since, until: send times, both inclusive: datetimes with a time zone, texts as "2026-01-31T12:00Z" or "10m ago", or
    nanoseconds since the epoch. start, end: positions, end exclusive. Planning uses the indexes alone: segments that hold nothing of this are not opened.
    Registers the data source, if that was not done. Raises `Invalid` or `NotFound` for an argument, archive or stream that is wrong.
    """
    from penstock.spark import options
    from penstock.spark.source import columns_of

    asked = {"path": os.fspath(archive)}
    if stream is not None:
        asked["stream"] = options.joined(stream)
    for name, moment in (("since", since), ("until", until)):
        if moment is not None:
            asked[name] = str(nanoseconds(moment, name))
    asked |= {name: str(value) for name, value in (("start", start), ("end", end)) if value is not None}
    names = options.chosen(options.DEFAULT if columns is None else columns)
    options.Request.of(asked).check()  # here, not in a worker of Spark's: so that the error is one line
    register(spark)
    path = asked.pop("path")
    return spark.read.format("penstock").schema(columns_of(names)).options(**asked).load(path)


def table(
    spark: SparkSession,
    out: str | os.PathLike[str],
    name: str,
    *,
    stream: str | None = None,
    version: int | None = None,
) -> DataFrame:
    """A table of the pipeline as a DataFrame, as it is now or was at a version. It takes no Delta package for Spark.

    name: `raw`, `messages`, `stats`, a table of your own, or a stream's channel, for its decoded columns. stream: only this stream's
    rows. The DataFrame stays as it is when the pipeline goes on. Raises `NotFound` if there is no such table.
    """
    from penstock.spark import tables

    return tables.table(spark, out, name, stream=stream, version=version)


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("penstock")` known to a session. `NotFound` if Spark's workers would not find Penstock.

    Where Penstock is installed, Spark finds the source by itself; in a session that began before that, it does not.
    """
    from penstock.spark.jvm import check_interpreter
    from penstock.spark.source import PenstockDataSource

    check_interpreter(spark)
    spark.dataSource.register(PenstockDataSource)
