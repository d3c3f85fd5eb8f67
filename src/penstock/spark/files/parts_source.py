"""A private data source: ranges of recordings as rows of their stream's table, which no table has yet. Spark's tasks decode them.

Knows the parts of a cut; does not know why a query needs them.
"""

from __future__ import annotations

import base64
import gc
import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.runtime.sail import arrow_schema
from penstock.spark.runtime.workers import in_a_line
from penstock.tables.lake.parts import Asked, RangePart

TASK_BYTES = 32 << 20


class PartsSource(DataSource):
    """Option `parts`: `packed`. The reader's schema is the stream's."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock_parts"

    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """A batch reader."""
        asked, parts = pickle.loads(base64.b64decode(self.options["parts"]))
        return PartsReader(arrow_schema(schema), asked, parts)


def packed(asked: Asked, parts: Sequence[RangePart]) -> str:
    """What the reader is asked for, as an option."""
    return base64.b64encode(pickle.dumps((asked, parts))).decode()


class PartsReader(DataSourceReader):
    """Tasks read whole ranges, several small ones each."""

    def __init__(self, schema: pa.Schema, asked: Asked, parts: Sequence[RangePart]) -> None:
        self.schema, self.asked, self.parts = schema, asked, parts

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "parts": ()}  # each task has its own in its partition

    def partitions(self) -> Sequence[InputPartition]:
        """Groups of ranges."""
        groups: list[list[RangePart]] = [[]]
        size = 0
        for part in self.parts:
            if groups[-1] and size + part.range.bytes > TASK_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(part)
            size += part.range.bytes
        return [InputPartition(group) for group in groups]

    @in_a_line
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some ranges."""
        gc.freeze()
        for part in partition.value:
            for batch in part.read(self.asked):
                yield batch.cast(self.schema)
