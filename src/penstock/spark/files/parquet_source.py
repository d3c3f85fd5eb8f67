"""A private data source: a table's Parquet files on an object storage, as rows. Spark reads files of this machine itself; for others it
needs packages that PySpark does not bring. Knows files; knows no table's log.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.runtime.sail import arrow_schema
from penstock.spark.runtime.workers import in_a_line
from penstock.tables.delta.places import Place
from penstock.util.files.storage import reaching

TASK_BYTES = 32 << 20
BATCH_ROWS = 32768


class ParquetSource(DataSource):
    """Options: `place`, and `files`: a JSON list of [path in it, bytes]. The reader's schema is the table's."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock_parquet"

    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """A batch reader."""
        return ParquetReader(schema, self.options["place"], json.loads(self.options["files"]))


class ParquetReader(DataSourceReader):
    """Tasks read whole files, several small ones each."""

    def __init__(self, schema: StructType | pa.Schema, place: str, files: list[Any]) -> None:
        self.schema, self.place, self.files = arrow_schema(schema), place, files

    def partitions(self) -> Sequence[InputPartition]:
        """Groups of files."""
        groups: list[list[str]] = [[]]
        size = 0
        for path, length in self.files:
            if groups[-1] and size + length > TASK_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(path)
            size += length
        return [InputPartition(group) for group in groups]

    @in_a_line
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some files. Columns that came later than a file are null in it."""
        gc.freeze()
        place = Place.of(self.place)
        for path in partition.value:
            with (
                reaching(),
                place.fs.open_input_file(place.file(path)) as source,
                pq.ParquetFile(source, pre_buffer=True) as file,
            ):
                there = set(file.schema_arrow.names)
                wanted = [name for name in self.schema.names if name in there]
                for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
                    yield self._arrange(batch, there)

    def _arrange(self, batch: pa.RecordBatch, there: set[str]) -> pa.RecordBatch:
        arrays = [
            batch.column(field.name).cast(field.type) if field.name in there else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
