"""A private data source whose rows are the answers of tasks: how the pipeline gives Spark work to spread.

Partitions are tasks, so Spark plans, retries and scales them; no JVM row but the short answers passes through.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.runtime.workers import in_a_line
from penstock.tables.work.tasks import run


class TaskSource(DataSource):
    """Option `tasks`: a JSON list. One row per task: its answer as JSON."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock_tasks"

    def schema(self) -> str:
        """One text column."""
        return "answer STRING NOT NULL"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        return TaskReader(json.loads(self.options["tasks"]))


class TaskReader(DataSourceReader):
    """Runs one task per partition."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self.tasks = tasks

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        return [InputPartition(task) for task in self.tasks]

    @in_a_line
    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """The task's answer."""
        gc.freeze()
        yield (json.dumps(run(partition.value)),)
