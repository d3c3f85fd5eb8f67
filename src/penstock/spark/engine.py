"""Does a pipeline's tasks by Spark: a task is one task of a job, so Spark spreads, repeats and scales them. Knows no table."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from penstock.spark.runtime.failures import failure
from penstock.spark.runtime.workers import errors_in_one_line
from penstock.tables.work import tasks as work
from penstock.tables.work.engine import Progress, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """Does tasks by a Spark session; see `penstock.tables.work.engine.Engine`. name: for the outcome, where the session is another program's."""

    def __init__(self, spark: SparkSession, name: str = "spark") -> None:
        self.spark, self.name = spark, name

    def do(self, what: str, tasks: list[Row], size: int, report: Progress) -> list[Row]:
        """The tasks' answers, in any order."""
        if not tasks:
            return []
        with _Watched(self.spark, what, len(tasks), report):
            try:
                return _answers(self.spark, tasks)
            except Exception as error:  # PySpark's, Py4J's, or a socket's
                raise failure(error) from error


def _answers(spark: SparkSession, tasks: list[Row]) -> list[Row]:
    """The answers of Spark's workers. Where there is a context, by an RDD: a data source starts three more Python processes to plan it."""
    try:
        context = spark.sparkContext
    except Exception:  # a Spark Connect session has none
        from penstock.spark.task_source import TaskSource

        spark.dataSource.register(TaskSource)
        frame = spark.read.format("penstock_tasks").option("tasks", json.dumps(tasks)).load()
        return [json.loads(row.answer) for row in frame.collect()]
    found: list[Row] = context.parallelize(tasks, len(tasks)).map(run_in_worker).collect()
    return found


def run_in_worker(task: Row) -> Row:
    """A task, in a process of Spark's."""
    import gc

    gc.freeze()
    with errors_in_one_line():
        return work.run(task)


class _Watched:
    """Reports how many tasks are done while a job runs, where the session lets one look."""

    def __init__(self, spark: SparkSession, what: str, count: int, report: Progress) -> None:
        self.spark, self.what, self.count, self.report = spark, what, count, report
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="penstock-progress", daemon=True)

    def __enter__(self) -> None:
        self.report(self.what, 0, self.count)
        self.thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self.done.set()
        self.thread.join()
        if kind is None:
            self.report(self.what, self.count, self.count)

    def _watch(self) -> None:
        try:
            tracker: Any = self.spark.sparkContext.statusTracker()
        except Exception:  # a Spark Connect session has no context: then there is nothing to report
            return
        while not self.done.wait(0.2):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(info.numCompletedTasks for info in infos if info is not None)
            if finished:
                self.report(self.what, min(finished, self.count), self.count)
