"""Who does the tasks of a pipeline: this process, a pool of processes, or Spark (`penstock.spark.engine`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from penstock.util.pool import Pool

Progress = Callable[[str, int, int], None]
Row = dict[str, Any]
POOL_BYTES = 64 << 20  # less than that is done before a pool has begun


class Engine(Protocol):
    """Does tasks. name: for the outcome of a run."""

    name: str

    def do(self, what: str, tasks: list[Row], size: int, report: Progress) -> list[Row]:
        """The tasks' answers, in any order. size: about how many bytes they read. report: called with (what, tasks done, tasks in all)."""
        ...


class LocalEngine:
    """Does tasks without a JVM: here, or in as many processes as there are cores where there is much to do."""

    name = "local"

    def do(self, what: str, tasks: list[Row], size: int, report: Progress) -> list[Row]:
        """See `Engine`."""
        count = 1 if size < POOL_BYTES else min(len(os.sched_getaffinity(0)), len(tasks))
        with Pool("penstock.tables.work.tasks:run", count) as pool:
            return pool.map(tasks, lambda done, all_of_them: report(what, done, all_of_them))
