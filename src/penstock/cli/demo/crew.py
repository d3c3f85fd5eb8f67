"""The processes of a demo, all gone at its end, and the tally that each of them keeps. Opens no channel."""

from __future__ import annotations

import math
import multiprocessing
import signal
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
    where a demo compares them with the tables. read: by channel, how much was read, how much lost, and the latencies. seen: messages by the
    values that tell them apart, where a demo has such.
    """

    def __init__(self, *channels: str) -> None:
        self.wrote: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        self.sent: dict[str, list[Any]] = {}
        self.seen: Counter[tuple[Any, ...]] = Counter()
        self.read: dict[str, dict[str, Any]] = {
            channel: {"messages": 0, "bytes": 0, "lost": 0, "latency_ns": array("q")} for channel in channels
        }

    def add(self, channel: str, batch: pa.RecordBatch) -> None:
        """The messages of a batch, read now."""
        size = pc.sum(pc.binary_length(batch.column("payload"))).as_py() or 0
        self.count(channel, batch.num_rows, size, batch.column("time").cast("int64").to_numpy())

    def count(self, channel: str, messages: int, size: int, sent_ns: Any) -> None:
        """So many messages of `size` bytes together, read now, and when they were sent."""
        read = self.read[channel]
        read["messages"] += messages
        read["bytes"] += size
        read["latency_ns"].frombytes(np.subtract(time.time_ns(), sent_ns, dtype=np.int64).tobytes())


def wait(until: Callable[[], bool], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Until that holds. `TimedOut` if it takes longer."""
    deadline = time.monotonic() + seconds
    while not until():
        if time.monotonic() > deadline:
            raise penstock.TimedOut(f"{what}: not within {seconds:g} seconds")
        time.sleep(0.002)


def _work(results: Any, work: Callable[..., Tally | None], *arguments: Any) -> None:
    if (tally := work(*arguments)) is not None:
        results.put(tally)


class Crew:
    """Processes that a demo starts, watches and may kill. None of them is left when it ends."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._process: Any = context.Process
        self._results = context.SimpleQueue()
        self._processes: list[Any] = []
        # Set when all is written. A killed process might hold its lock: only for processes that are never killed.
        self.written = context.Event()
        self.tallies: list[Tally] = []

    def start(self, work: Callable[..., Tally | None], *arguments: Any) -> Any:
        """A new process that does this, and hands over its tally, if it returns one."""
        name = f"{work.__name__} {arguments}"
        process = self._process(target=_work, args=(self._results, work, *arguments), name=name, daemon=True)
        process.start()
        self._processes.append(process)
        return process

    def kill(self, process: Any) -> None:
        """Ends a process at whatever it does now. One that had failed before is still reported."""
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            self._processes.remove(process)

    def wait(self, until: Callable[[], bool], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Until that holds. Raises if a process failed meanwhile, or if it takes longer."""

        def looked() -> bool:
            self.look()
            return until()

        wait(looked, what, seconds=seconds)

    def wait_for_all(self) -> None:
        """Until every process has ended by itself."""
        self.wait(lambda: not any(p.is_alive() for p in self._processes), "reading", seconds=math.inf)
        self.look()

    def look(self) -> None:
        """Takes the tallies that are there. Raises if a process failed."""
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
