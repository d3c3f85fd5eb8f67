"""The processes of a demo, which end with it, and the tally that each of them keeps. Opens no channel."""

from __future__ import annotations

import math
import multiprocessing
import time
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock

PATIENCE_SECONDS = 60.0


class Tally:
    """Counts of the messages that one process wrote and read.

    wrote: messages by channel. counted: the same by the channel's own counters, where only its writers see them. sent: copies of them,
    where a demo compares them with the tables. read: by channel, the number of messages read, and the latencies. seen: a helper's counts.
    """

    def __init__(self, *channels: str) -> None:
        self.wrote: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.sent: dict[str, list[Any]] = {}
        self.seen: Counter[tuple[Any, ...]] = Counter()
        self.read: dict[str, dict[str, Any]] = {
            channel: {"messages": 0, "bytes": 0, "latency_ns": array("q")} for channel in channels
        }

    def add(self, channel: str, batch: pa.RecordBatch) -> None:
        """The messages of a batch, read now."""
        read, sent_ns = self.read[channel], batch.column("time").cast("int64").to_numpy()
        read["messages"] += batch.num_rows
        read["bytes"] += pc.sum(pc.binary_length(batch.column("payload"))).as_py() or 0
        read["latency_ns"].frombytes(np.subtract(time.time_ns(), sent_ns, dtype=np.int64).tobytes())


def _work(results: Any, work: Callable[..., Tally | None], *arguments: Any) -> None:
    if (tally := work(*arguments)) is not None:
        results.put(tally)


class ProcessGroup:
    """Processes that a demo starts and watches. All of them have ended when it ends."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._process: Any = context.Process
        self._results = context.SimpleQueue()
        self._processes: list[Any] = []
        self.written = context.Event()  # set when all is written
        self.tallies: list[Tally] = []

    def start(self, work: Callable[..., Tally | None], *arguments: Any) -> Any:
        """A new process that does this, and hands over its tally, if it returns one."""
        name = f"{work.__name__} {arguments}"
        process = self._process(target=_work, args=(self._results, work, *arguments), name=name, daemon=True)
        process.start()
        self._processes.append(process)
        return process

    def wait(self, until: Callable[[], bool], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until that holds. Raises if a process failed in the meantime, or if it takes longer."""
        deadline = time.monotonic() + seconds
        self.collect()
        while not until():
            if time.monotonic() > deadline:
                raise penstock.TimedOut(f"{what}: not within {seconds:g} seconds")
            time.sleep(0.002)
            self.collect()

    def wait_for_all(self) -> None:
        """Waits until every process has ended."""
        self.wait(lambda: not any(p.is_alive() for p in self._processes), "reading", seconds=math.inf)
        self.collect()

    def collect(self) -> None:
        """Takes the available tallies. Raises if a process failed."""
        while not self._results.empty():  # a process ends only when its tally was taken
            self.tallies.append(self._results.get())
        failed = [p.name for p in self._processes if p.exitcode not in (None, 0)]
        if failed:
            raise penstock.SystemFailure(1, f"{', '.join(failed)} failed; see above")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()
