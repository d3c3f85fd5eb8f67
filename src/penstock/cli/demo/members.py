"""The demo on one sync queue: processes that all write and all read, of which one is killed at its work."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.cli.demo.sources import TELEMETRY, telemetry

CHANNEL = "sync:demo"
SIZE = 4 << 20
DOOMED = "doomed"
WATCHER = "watcher"
NAMES = (*TELEMETRY, WATCHER, DOOMED)
END = "end"


def _plain(value: Any) -> Any:
    """A sample as JSON: tuples of numbers are lists."""
    return value if isinstance(value, dict) else list(value)


class _Reader:
    """Counts what a member reads, and how long it took."""

    def __init__(self, queue: Any) -> None:
        self.queue, self.bytes = queue, 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.latency: list[int] = []

    def read(self) -> None:
        for message in self.queue.drain():
            self.counts[message.sender, message.type] += 1
            self.latency.append(time.time_ns() - message.time_ns)
            self.bytes += len(message.body)


def member(name: str, seconds: float, results: Any) -> None:
    """One process: it writes its samples, reads what the others write, and waits until all of them have said that they are done."""
    with penstock.join(CHANNEL, sender=name, size=SIZE) as queue:
        reader = _Reader(queue)
        queue.wait_for(NAMES, timeout=60)
        written: Counter[str] = Counter()

        def say(kind: str, body: Any) -> None:
            queue.append(json.dumps(body), kind)
            written[kind] += 1
            reader.read()

        if name in TELEMETRY:
            for stream, sample in telemetry(TELEMETRY[name], seconds):
                say(stream.removeprefix("demo."), _plain(sample))
        elif name == WATCHER:  # answers: how many it has seen by now
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                say("seen", sum(reader.counts.values()))
                time.sleep(0.01)
        else:
            for number in range(10**9):  # until it is killed
                say("number", number)
                if number % 20 == 19:
                    time.sleep(0.001)
        say(END, name)
        deadline = time.monotonic() + 60
        others = set(NAMES) - {name, DOOMED}
        while any((other, END) not in reader.counts for other in others):
            if time.monotonic() > deadline:
                raise penstock.TimedOut(f"{name} did not hear from everybody")
            time.sleep(0.001)
            reader.read()
        results.put((name, dict(written), dict(reader.counts), np.array(reader.latency, np.int64), reader.bytes))


def flow(seconds: float, archive: Path) -> dict[str, Any]:
    """All of it, recorded; one member is killed half-way. What everybody counted."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = {name: context.Process(target=member, args=(name, seconds, results)) for name in NAMES}
    with penstock.join(CHANNEL, sender="keeper", size=SIZE, own=True) as keeper:
        keeper.screen(senders=NAMES)  # it reads nothing, but has to let the others write
        with penstock.Archive(archive).record([CHANNEL], start="earliest", process=True):
            try:
                for process in processes.values():
                    process.start()
                _wait(keeper, lambda: keeper.senders >= set(NAMES), processes)
                begun = time.monotonic()
                _wait(keeper, lambda: time.monotonic() > begun + seconds / 2, processes)
                os.kill(processes[DOOMED].pid or 0, signal.SIGKILL)
                _wait(keeper, lambda: not results.empty(), processes)
                found = [results.get() for _ in range(len(NAMES) - 1)]
                for process in processes.values():
                    process.join()
            finally:
                for process in processes.values():
                    if process.is_alive():
                        process.terminate()
        sent = penstock.inspect(CHANNEL).totals.messages_sent
    return account(found, sent)


def _wait(keeper: Any, until: Callable[[], bool], processes: dict[str, Any]) -> None:
    while not until():
        failed = [name for name, process in processes.items() if process.exitcode not in (None, 0, -signal.SIGKILL)]
        if failed:
            raise penstock.SystemFailure(1, f"{', '.join(failed)} failed; see above")
        keeper.pop_many()
        time.sleep(0.01)


def account(found: list[Any], sent: int) -> dict[str, Any]:
    """Raises unless every member read exactly what every other one wrote, and all the same of the one that was killed."""
    written = {name: counts for name, counts, _, _, _ in found}
    of_doomed = {name: sum(n for (sender, _), n in seen.items() if sender == DOOMED) for name, _, seen, _, _ in found}
    if len(set(of_doomed.values())) != 1:
        raise penstock.PenstockError(f"the members disagree about what the killed one wrote: {of_doomed}")
    for name, _, seen, _, _ in found:
        for other, counts in written.items():
            got = {kind: n for (sender, kind), n in seen.items() if sender == other}
            if other != name and got != counts:
                raise penstock.PenstockError(f"{other} wrote {counts}, {name} read {got}")
    subscribers = [
        {
            CHANNEL: {
                "messages": sum(seen.values()) + sum(own.values()),
                "bytes": size,
                "latency_ns": latency,
                "lost": 0,
            }
        }
        for _, own, seen, latency, size in found
    ]
    by_type: Counter[tuple[str, str]] = Counter()
    for _, _, seen, _, _ in found:
        by_type |= Counter(seen)
    return {
        "sent": {CHANNEL: sent},
        "subscribers": subscribers,
        "by_type": dict(by_type),
        "readers": "members, each reading what all others wrote,",
    }


def in_table(tables: Path) -> dict[tuple[str, str], int]:
    """Rows of the table *messages* by sender and type."""
    import pyarrow.parquet as pq

    from penstock.spark.tables import paths

    found: Counter[tuple[str, str]] = Counter()
    for file in paths(tables, "messages", stream=CHANNEL):
        batch = pq.read_table(file, columns=["sender", "type"])
        found.update(zip(batch["sender"].to_pylist(), batch["type"].to_pylist(), strict=True))
    return dict(found)
