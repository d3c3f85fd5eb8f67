"""The demo on a pipe: numbered jobs for four workers, one of which is killed again and again. Jobs and results are recorded."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock
from penstock.cli.demo.crew import PATIENCE_SECONDS, Tally, wait
from penstock.cli.demo.flow import Demo
from penstock.cli.demo.sources import TELEMETRY, telemetry

JOBS, DONE = "pipe:demo.jobs", "log:demo.done"
WORKERS = 4


class Jobs(Demo):
    """A pipe of jobs and a log of what was done: each job at least once, and marked where it was done again."""

    kind, readers, subscribers = "pipe", "subscriber", 1
    kill_every, replaced = 0.5, True
    by = DONE, ("job", "worker", "again")

    def __init__(self, seconds: float, data: Path | None) -> None:
        super().__init__(seconds, data)
        self.about = f"{seconds:g} s of jobs for {WORKERS} workers, one of them killed every {self.kill_every} s"
        self.channels = {DONE: {"codec": "json", "term_length": 4 << 20}, JOBS: {}}
        self.subscribed, self.known = [DONE], set[int]()
        self.writers, self.doomed = [(self.push,)], [(self.work,)] * WORKERS

    def push(self) -> Tally:
        """The process that has jobs to give, until all of them are done."""
        tally = Tally()
        with penstock.typed.publish_pipe(JOBS) as jobs:
            jobs.wait_for_readers(WORKERS, timeout=PATIENCE_SECONDS)
            for stream, sample in telemetry(TELEMETRY["cores"], self.seconds):
                job = json.dumps([tally.wrote[JOBS], [stream, *map(str, sample)]])
                jobs.send(job.encode(), timeout=PATIENCE_SECONDS)
                tally.wrote[JOBS] += 1
            wait(lambda: jobs.unread_messages == 0, "some jobs were not done")
        return tally

    def work(self) -> None:
        """A worker: takes jobs and reports each of them, until it is killed."""
        with penstock.typed.subscribe_pipe(JOBS) as jobs, penstock.publish(DONE) as done:
            for job in jobs:
                of_job = {"job": json.loads(job)[0], "size": len(job), "pushed_ns": jobs.last.time_ns}
                done.send({**of_job, "worker": os.getpid(), "again": jobs.redelivered})

    def look(self, tally: Tally, batch: pa.RecordBatch) -> None:
        """See `Demo`. A job counts as read when it is first known to be done."""
        for row in map(json.loads, batch["payload"].to_pylist()):
            if row["job"] not in self.known:
                self.known.add(row["job"])
                tally.count(JOBS, 1, row["size"], [row["pushed_ns"]])
            tally.seen[row["job"], row["worker"], row["again"]] += 1

    def account(self, measured: dict[str, Any]) -> None:
        """See `Demo`."""
        rows, sent = measured["seen"][0], measured["wrote"][JOBS]
        times: Counter[int] = Counter()
        by_worker: Counter[tuple[str, str]] = Counter()
        for (job, worker, again), count in rows.items():
            times[job] += count
            by_worker[f"worker {worker}", "redelivered" if again else "done"] += count
        marked = {job for job, _, again in rows if again}
        silent = [job for job, count in times.items() if count > 1 and job not in marked]
        if times.keys() != set(range(sent)) or silent:
            raise penstock.PenstockError(
                f"{len(set(range(sent)) - times.keys())} of {sent} jobs were never done, {len(silent)} twice without being marked: {silent[:5]}"
            )
        measured["by_type"] = by_worker
        measured["said"] = (
            f"{sent:,} jobs for {WORKERS} workers, {measured['killed']} of which were killed: each was done at least once, "
            f"{sum(count > 1 for count in times.values())} twice and marked as redelivered."
        )
