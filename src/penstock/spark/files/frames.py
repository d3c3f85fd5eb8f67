"""Snapshots of tables as DataFrames. Spark needs no Delta package for them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.columns.contract.types import ddl, quoted
from penstock.tables import stats
from penstock.tables.delta.files import File
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.reading import files_of, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Where = str | os.PathLike[str] | Place


def table(
    spark: SparkSession, out: Where, name: str, *, stream: str | None = None, version: int | None = None
) -> DataFrame:
    """A table's snapshot as a DataFrame; see `penstock.spark.table`."""
    if name == stats.NAME:
        found = stats_frame(spark, open_table(out, "messages"), open_table(out, "losses"), stats.SECOND)
        return found if stream is None else found.where(_is_of_stream(stream))
    opened = open_table(out, name, version=version)
    made = frame(spark, opened, files_of(opened, stream))
    return made if stream is None or "stream" not in opened.schema.names else made.where(_is_of_stream(stream))


def _is_of_stream(stream: str) -> DataFrame:
    from pyspark.sql import functions

    return functions.col("stream") == stream


def stats_frame(spark: SparkSession, messages: Table, losses: Table, width: int) -> DataFrame:
    """The view *stats* over snapshots. width: of a window, in nanoseconds."""
    views = {
        "messages": frame(spark, messages, messages.files(), stats.MESSAGES),
        "losses": frame(spark, losses, losses.files(), stats.LOSSES),
    }
    return spark.sql(stats.of_spark(width), **views)


def frame(spark: SparkSession, opened: Table, files: Sequence[File], columns: Sequence[str] | None = None) -> DataFrame:
    """Some files of a snapshot as a DataFrame, with all of its columns or some."""
    schema = pa.schema([field for field in opened.schema if columns is None or field.name in columns])
    if not files:
        return empty(spark, schema)
    if not opened.place.is_local:
        from penstock.spark.files.parquet_source import ParquetSource

        spark.dataSource.register(ParquetSource)
        listed = json.dumps([[file.path, file.size] for file in files])
        reader = spark.read.format(ParquetSource.name()).schema(ddl_of(schema))
        return reader.options(place=str(opened.place), files=listed).load()
    # Spark takes paths for patterns.
    paths = [re.sub(r"([\\\[\]{}*?])", r"\\\1", opened.place.location(file.path)) for file in files]
    return spark.read.schema(ddl_of(schema)).parquet(*paths)


def empty(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """No rows, with these columns. Not by createDataFrame: that makes this session the active one for good."""
    return spark.range(0).selectExpr(*(f"cast(null as {kind}) as {name}" for name, kind in described(schema)))


def described(schema: pa.Schema) -> list[tuple[str, str]]:
    """(name in backticks, type) of columns, as Spark's SQL writes them."""
    return [(quoted(field.name), ddl(field.type)) for field in schema]


def ddl_of(schema: pa.Schema) -> str:
    """Columns in Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in described(schema))
