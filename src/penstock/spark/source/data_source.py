"""The data source `penstock`: archives as rows, and rows as messages. Plans partitions from indexes, narrows the plan by its options, and gives
Spark Arrow batches that the compiled core makes straight from segments.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.columns.contract.types import PLAIN
from penstock.errors import Invalid, PenstockError
from penstock.spark.runtime.sail import cast_to, is_server
from penstock.spark.runtime.workers import in_a_line
from penstock.spark.source.options import DEFAULT, TYPES, Request, chosen, path_of
from penstock.spark.source.streaming import RangePartition, Refused, StreamReader, rows_of


class PenstockDataSource(DataSource):
    """`spark.read.format("penstock").load(ARCHIVE)`; `penstock.spark.load` writes the options.

    Options that narrow what is read, exactly: `stream` (names with commas), `since` and `until` (send time: nanoseconds since the
    epoch, or ISO 8601 with a zone; inclusive), `start` and `end` (positions, end exclusive). `rangeBytes` and `batchRows` size the
    tasks. `live` adds what only shared memory of this machine has: each plan is one cut. Any other option is an error. A schema given by the user is a projection: `flags` and `recorded_ns` are read only so.
    It takes no filters from Spark: Spark 4.2 and 4.3 keep a narrowed plan for later queries on the same DataFrame, which then miss
    rows.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock"

    @in_a_line
    def schema(self) -> str | pa.Schema:
        """The columns that are read unless others are asked for. `Invalid` without an archive, so that `CREATE TABLE` says so."""
        path_of(self.options)
        if is_server():  # it takes a timestamp of DDL for one without a time zone
            return pa.schema([pa.field(name, PLAIN[TYPES[name]], nullable=False) for name in DEFAULT])
        return columns_of(DEFAULT)

    @in_a_line
    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """A batch reader."""
        return PenstockReader(schema, dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming reader. One that refuses all, if the options are wrong: Spark loses an error that is raised here."""
        try:
            return StreamReader(Request.of(dict(self.options), streaming=True), check_columns(schema))
        except PenstockError as error:
            return Refused(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of messages, onto a channel or into an archive."""
        from penstock.spark.source.writing import batch_writer

        return batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The same of a streaming query, each of whose batches goes out once."""
        from penstock.spark.source.writing import stream_writer

        return stream_writer(dict(self.options), schema, overwrite)


def columns_of(names: Sequence[str], nullable: Sequence[str] = ()) -> str:
    """A schema of these columns. NOT NULL saves Spark a look per value."""
    return ", ".join(f"{name} {TYPES[name]}{'' if name in nullable else ' NOT NULL'}" for name in names)


def check_columns(schema: StructType | pa.Schema) -> dict[str, bool]:
    """The columns of a user's schema: name → whether it may be null. `Invalid` if recordings have no such column."""
    if isinstance(schema, pa.Schema):  # Sail's
        schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    chosen([field.name for field in schema.fields])
    for field in schema.fields:
        if field.dataType.simpleString() != TYPES[field.name]:
            raise Invalid(f"the column {field.name} is {TYPES[field.name]}, not {field.dataType.simpleString()}")
    return {field.name: bool(field.nullable) for field in schema.fields}


class PenstockReader(DataSourceReader):
    """Plans on the driver, reads in tasks."""

    def __init__(self, schema: StructType | pa.Schema, options: dict[str, str]) -> None:
        self.schema, self.columns = schema, check_columns(schema)
        self.request = Request.of(options)
        if self.request.live and not self.columns.get("recorded_ns", True):
            raise Invalid("recorded_ns is null for messages that only memory has: leave NOT NULL out of the schema")

    @in_a_line
    def partitions(self) -> Sequence[InputPartition]:
        """Ranges that the options leave."""
        request = self.request
        if request.live:
            from penstock.spark.source import live  # it brings pandas: half of what a worker would take to start

            return live.partitions(request) or [InputPartition(None)]
        return [RangePartition(one, request.since, request.until) for one in request.plan()] or [InputPartition(None)]

    @in_a_line
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        gc.freeze()
        found: Iterator[pa.RecordBatch] = iter(())
        if isinstance(partition, RangePartition):
            found = rows_of(partition, self.columns, self.request.batch_rows)
        elif self.request.live:
            from penstock.spark.source import live

            if isinstance(partition, live.LivePartition):
                found = live.rows_of(partition, self.columns, self.request)
        yield from cast_to(self.schema, found)
