"""Streams of a lake on Spark: the cut's files by Spark's own reader, ranges of recordings by its tasks, memory's rows from this process.

Knows cuts; runs the same on Spark, on Spark Connect and on Sail.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import Invalid, PenstockError
from penstock.spark import queries
from penstock.spark.files import frames
from penstock.spark.parsing import translation
from penstock.spark.runtime.failures import failure, unlogged
from penstock.tables.lake import Cut, Lake, Missing, StreamCut
from penstock.tables.lake.parts import Asked, MemoryPart, RangePart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: SparkSession, cut: StreamCut) -> DataFrame:
    """The rows of a stream as a DataFrame, with the columns of its table. It stays as it is, as the cut does."""
    found, columns = [], frames.described(cut.schema)
    if cut.table is not None and cut.table.files:
        stored = frames.frame(spark, cut.table.table, cut.table.files)
        for one in cut.gone:
            stored = stored.where(f"not ({one.sql()})")
        there = set(cut.table.table.schema.names)
        found.append(
            stored.selectExpr(
                *(
                    quoted if name in there else f"cast(null as {kind}) as {quoted}"
                    for name, (quoted, kind) in zip(cut.schema.names, columns, strict=True)
                )
            )
        )
    asked = Asked(cut.schema, cut.contract, cut.erased, True)
    if ranges := [part for part in cut.rest if isinstance(part, RangePart)]:
        from penstock.spark.files.parts_source import PartsSource, packed

        spark.dataSource.register(PartsSource)
        reader = spark.read.format(PartsSource.name()).schema(frames.ddl_of(cut.schema))
        found.append(reader.option("parts", packed(asked, ranges)).load())
    batches = [batch for part in cut.rest if isinstance(part, MemoryPart) for batch in part.read(asked)]
    if any(batch.num_rows for batch in batches):
        from pyspark.sql.pandas.types import from_arrow_schema

        held = pa.Table.from_batches(batches, schema=cut.schema)
        found.append(spark.createDataFrame(held, from_arrow_schema(cut.schema, prefer_timestamp_ntz=True)))
    return functools.reduce(lambda one, other: one.union(other), found) if found else frames.empty(spark, cut.schema)


def cut_of(lake: Lake, query: str) -> Cut:
    """The streams that a query names, as they are now. `Invalid` for what is not one query, `NotFound` for a stream that there is not."""
    return lake.cut_named(translation.tables_of(translation.parse(query)))


def query(spark: SparkSession, cut: Cut, query: str) -> DataFrame:
    """A query over a cut as a DataFrame. `Invalid` for what the engine cannot read."""
    tree = translation.parse(query)
    fields = {name: f"penstock_{number}" for number, name in enumerate(translation.tables_of(tree))}
    views = {field: frame(spark, cut[cut.find(name)]) for name, field in fields.items()}
    text = translation.write(tree, fields)
    with unlogged():
        try:
            return spark.sql(text, **views) if views else spark.sql(text.format())
        except Exception as error:
            raise _failed(error) from error


def answer(spark: SparkSession, lake: Lake, text: str, limit: int | None = None) -> tuple[pa.Table, list[Missing]]:
    """The rows of a query over streams as they are now, at most `limit`; and what is missing."""
    cut = cut_of(lake, text)
    return rows(query(spark, cut, text), limit), cut.missing


def rows(found: DataFrame, limit: int | None = None) -> pa.Table:
    """The rows of a query, at most `limit`. `NotFound` if a recording was purged since the cut: the query can be asked again."""
    with unlogged():
        try:
            return (found if limit is None else found.limit(limit)).toArrow()
        except Exception as error:
            raise _failed(error) from error


def _failed(error: Exception) -> PenstockError:
    """An error of a task as it was, another one as what is wrong with the query."""
    made = failure(error)
    return Invalid(queries.describe_error(error)) if type(made) is PenstockError else made


def table(spark: SparkSession, lake: Lake, name: str) -> DataFrame:
    """A stream of a lake as it is now; see `penstock.spark.table`."""
    if name in ("messages", "losses", "stats"):
        raise Invalid(f"live=True is for a stream, and {name} is a table of all: name a channel")
    cut = lake.told(lake.cut(name))
    (found,) = cut.values()
    return frame(spark, found)
