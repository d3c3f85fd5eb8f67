"""Spark over archives: the data source `penstock`, and the pipeline that builds tables from recordings.

A guest of the front door. Needs `pyspark>=4.2,<5` and a JVM: `pip install penstock[spark]`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["load", "register", "session"]


def session(name: str = "penstock", *, master: str | None = None, **conf: Any) -> SparkSession:
    """A Spark session set up for Penstock: JVM found, data source registered. See `penstock.spark.jvm`."""
    from penstock.spark.jvm import build_session

    return build_session(name, master=master, conf=conf)


def load(
    spark: SparkSession,
    archive: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    stream: str | Sequence[str] | None = None,
    since: int | None = None,
    until: int | None = None,
    start: int | None = None,
    end: int | None = None,
    pushdown: bool = False,
) -> DataFrame:
    """An archive as a DataFrame, read no further than asked for.

    columns: only these are read. stream: one or more channels. since, until: send times in nanoseconds since the epoch,
    both inclusive. start, end: positions, end exclusive. Planning uses the indexes alone: segments that hold nothing of
    this are not opened. pushdown: also takes filters from Spark; see `PenstockDataSource` for why it is not the default.
    """
    from penstock.spark.source import TYPES

    reader = spark.read.format("penstock")
    if columns is not None:
        unknown = [name for name in columns if name not in TYPES]
        if unknown:
            raise Invalid(f"recordings have no column {', '.join(unknown)}; they have {', '.join(TYPES)}")
        null = {"sender", "type"}  # NOT NULL saves Spark a look per value
        reader = reader.schema(", ".join(f"{n} {TYPES[n]}{'' if n in null else ' NOT NULL'}" for n in columns))
    if stream is not None:
        reader = reader.option("stream", stream if isinstance(stream, str) else ",".join(stream))
    for name, value in (("since", since), ("until", until), ("start", start), ("end", end)):
        if value is not None:
            reader = reader.option(name, str(value))
    return reader.option("pushdown", str(pushdown).lower()).load(os.fspath(archive))


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("penstock")` known to a session, with filters pushed down."""
    from penstock.spark.source import PenstockDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PenstockDataSource)
