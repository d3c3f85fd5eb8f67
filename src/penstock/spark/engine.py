"""Does the tasks of a pipeline: by Spark, or in this process without a session. Knows no table."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spark import tasks as work
from penstock.spark.failures import failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]


class Engine:
    """Does tasks: by Spark, or one by one in this process if there is no session."""

    def __init__(self, spark: SparkSession | None, progress: Progress) -> None:
        self.spark, self.progress = spark, progress
        self.name = "local" if spark is None else "spark"

    def do(self, what: str, tasks: list[dict[str, Any]], before: int = 0, count: int = 0) -> list[dict[str, Any]]:
        """The tasks' answers, in any order. before, count: for the progress, where they are a part of more."""
        if not tasks:
            return []
        if self.spark is not None:
            return self._by_spark(self.spark, what, tasks, before, count or len(tasks))
        answers = []
        count = count or len(tasks)
        for number, task in enumerate(tasks):
            self.progress(what, before + number, count)
            answers.append(work.run(task))
        self.progress(what, min(before + len(tasks), count), count)
        return answers

    def _by_spark(
        self, spark: SparkSession, what: str, tasks: list[dict[str, Any]], before: int, count: int
    ) -> list[dict[str, Any]]:
        with _Watched(spark, what, before, min(before + len(tasks), count), count, self.progress):
            try:
                return _answers(spark, tasks)
            except Exception as error:  # PySpark's, Py4J's, or a socket's
                raise failure(error) from error


def _answers(spark: SparkSession, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of Spark's workers. Where there is a context, by an RDD: a data source starts three more Python processes to plan it."""
    try:
        context = spark.sparkContext
    except Exception:  # a Spark Connect session has none
        from penstock.spark.task_source import TaskSource

        spark.dataSource.register(TaskSource)
        frame = spark.read.format("penstock_tasks").option("tasks", json.dumps(tasks)).load()
        return [json.loads(row.answer) for row in frame.collect()]
    found: list[dict[str, Any]] = context.parallelize(tasks, len(tasks)).map(work.run_in_worker).collect()
    return found


class _Watched:
    """Reports how many tasks are done while a job runs, where the session lets one look."""

    def __init__(self, spark: SparkSession, what: str, before: int, after: int, count: int, progress: Progress) -> None:
        self.spark, self.what, self.progress = spark, what, progress
        self.before, self.after, self.count = before, after, count
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="penstock-progress", daemon=True)

    def __enter__(self) -> None:
        self.progress(self.what, self.before, self.count)
        self.thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self.done.set()
        self.thread.join()
        if kind is None:
            self.progress(self.what, self.after, self.count)

    def _watch(self) -> None:
        try:
            tracker = self.spark.sparkContext.statusTracker()
        except Exception:  # a Spark Connect session has no context: then there is nothing to report
            return
        while not self.done.wait(0.2):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(info.numCompletedTasks for info in infos if info is not None)
            if finished:
                self.progress(self.what, min(self.before + finished, self.after), self.count)
