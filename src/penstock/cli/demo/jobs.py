"""The demo on a pipe: numbered jobs for four workers, of whom one is killed again and again; jobs and what was done are recorded."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import penstock
from penstock.cli.demo.sources import TELEMETRY, telemetry

if TYPE_CHECKING:
    from penstock.shm.pipe import PullSubscription, PushPublication

JOBS, DONE = "pipe:demo.jobs", "log:demo.done"
WORKERS = 4
KILL_EVERY = 0.5


def publishing(channel: str) -> PushPublication:
    """Who pushes on a pipe."""
    return cast("PushPublication", penstock.publish(channel))


def worker() -> None:
    """Takes jobs until there are none, and says what it has done."""
    with cast("PullSubscription", penstock.subscribe(JOBS)) as jobs, cast(Any, penstock.publish(DONE)) as done:
        for job in jobs:
            if not job:
                return
            number, sample = json.loads(job)
            done.send({"job": number, "size": len(sample), "worker": os.getpid(), "again": jobs.redelivered})


def flow(seconds: float, archive: Path) -> dict[str, Any]:
    """All of it. Raises unless every job was done once, or given out again and said so."""
    new = multiprocessing.get_context("spawn").Process
    # The channel and its codec are there before anybody comes; jobs wait in it from the beginning.
    penstock.publish(DONE, codec="json", term_length=4 << 20).close()
    rows: list[dict[str, Any]] = []
    pushed: list[tuple[int, int]] = []  # of each job: when, ns, and how many bytes
    with (
        penstock.Archive(archive).record([DONE, JOBS], start="earliest", process=True),
        cast(Any, penstock.subscribe(DONE, start="earliest")) as done,
        publishing(JOBS) as push,
    ):
        workers: list[Any] = []
        samples = telemetry(TELEMETRY["cores"], seconds)
        sent, killed, due = 0, 0, time.monotonic() + KILL_EVERY
        found: dict[str, dict[str, Any]] = {
            channel: {"messages": 0, "bytes": 0, "latency_ns": [], "lost": 0} for channel in (DONE, JOBS)
        }

        def look() -> None:
            while (row := done.try_recv()) is not None:
                rows.append(row)
                now = time.time_ns()
                for channel, begun, size in (
                    (DONE, done.last.time_ns, len(json.dumps(row))),
                    (JOBS, *pushed[row["job"]]),  # until it is known to be done
                ):
                    found[channel]["messages"] += 1
                    found[channel]["bytes"] += size
                    found[channel]["latency_ns"].append(now - begun)

        def start(count: int) -> None:
            fresh = [new(target=worker, daemon=True) for _ in range(count)]
            for process in fresh:
                process.start()
            workers.extend(fresh)

        try:
            start(WORKERS)
            push.wait_for_readers(WORKERS, timeout=60)
            due = time.monotonic() + KILL_EVERY
            for stream, sample in samples:
                job = json.dumps([sent, [stream, *map(str, sample)]]).encode()
                pushed.append((time.time_ns(), len(job)))
                push.send(job, timeout=60)
                sent += 1
                look()
                if time.monotonic() > due:
                    workers.pop(0).kill()
                    start(1)
                    killed, due = killed + 1, time.monotonic() + KILL_EVERY
            deadline = time.monotonic() + 60
            while push.waiting > 0 or done.lag:
                if time.monotonic() > deadline:
                    raise penstock.TimedOut(f"{push.waiting} jobs were not done")
                look()
            push.wait_for_readers(WORKERS, timeout=60)
            for _ in workers:
                push.send(b"", timeout=60)
            for process in workers:
                process.join(10)
        finally:
            for process in workers:
                process.kill()
        look()
    return account(rows, sent, killed, found, len(workers))


def account(
    rows: list[dict[str, Any]], sent: int, killed: int, found: dict[str, dict[str, Any]], stops: int
) -> dict[str, Any]:
    """What the report wants. Raises if a job is missing, or was done twice and nobody said so."""
    times, again = Counter(row["job"] for row in rows), {row["job"] for row in rows if row["again"]}
    missing = sent - len(times)
    silent = [job for job, count in times.items() if count > 1 and job not in again]
    if missing or silent:
        raise penstock.PenstockError(
            f"{missing} jobs were never done, {len(silent)} twice without a word: {silent[:5]}"
        )
    by_worker = Counter((f"worker {row['worker']}", "given out again" if row["again"] else "done") for row in rows)
    for channel in found.values():
        channel["latency_ns"] = np.array(channel["latency_ns"], np.int64)
    found[JOBS]["messages"] = sent + stops  # what was done twice was sent once
    return {
        "sent": {DONE: len(rows), JOBS: sent + stops},
        "subscribers": [found],
        "by_type": dict(by_worker),
        "readers": "subscriber",
        "said": f"{sent:,} jobs for {WORKERS} workers, {killed} of whom were killed: each was done once, "
        f"{sum(count > 1 for count in times.values())} twice and said so.",
    }
