"""Bounds the jobs of a Spark session: one that takes too long is cancelled, its row is missing, and the others are measured.

Knows Spark's sessions; knows no library that is measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from bench.report import Report
from evidence.bounded import Failed

PATIENCE = 6  # times a report's limit: a job of Spark's is many rows
AGAIN = 0.5  # seconds after which jobs are cancelled once more: a query may begin another one


def seconds_of(spark: Any, limit: float, job: Callable[[], object]) -> float:
    """Seconds that a job takes. `Failed` if it raises, or is cancelled after `limit` seconds."""
    ended, late = threading.Event(), threading.Event()

    def watch() -> None:
        if ended.wait(limit):
            return
        late.set()
        while not ended.wait(AGAIN):
            spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch, name="bench-limit", daemon=True)
    watcher.start()
    begun = time.perf_counter()
    try:
        job()
        took = time.perf_counter() - begun
    except Exception as error:
        if late.is_set():
            raise Failed(f"did not finish within {limit:g} s") from None
        raise Failed(str(error).splitlines()[0][:200] if str(error) else type(error).__name__) from error
    finally:
        ended.set()
        watcher.join()
    return took


def in_turn(
    report: Report, spark: Any, rounds: int, jobs: dict[tuple[str, str], Callable[[], object]]
) -> dict[tuple[str, str], list[float]]:
    """Seconds of each job, by (case, who), in turn; one round to warm up if there are several. One that fails is told and left out."""
    limit = report.limit * PATIENCE
    found: dict[tuple[str, str], list[float]] = {name: [] for name in jobs}
    for number in range(rounds + (rounds > 1)):
        for (case, who), job in jobs.items():
            if not report.tries(who, case):
                continue
            try:
                took = seconds_of(spark, limit, job)
            except Failed as error:
                report.failed(who, case, error)
                continue
            if number or rounds == 1:
                found[case, who].append(took)
    return {name: seconds for name, seconds in found.items() if seconds}
