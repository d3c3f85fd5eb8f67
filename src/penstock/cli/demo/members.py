"""The demo on one sync queue: processes that all write and all read, of which one is killed at its work."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.demo.crew import PATIENCE_SECONDS, Tally, wait
from penstock.cli.demo.flow import Demo
from penstock.cli.demo.sources import TELEMETRY, telemetry

CHANNEL = "sync:demo"
DOOMED, WATCHER, END = "doomed", "watcher", "end"
NAMES = (*TELEMETRY, WATCHER, DOOMED)


class Members(Demo):
    """A queue and its members. Each tally counts what a member read and what it wrote itself: all must be equal."""

    kind, readers = "sync", "members, each reading what all others wrote,"
    by = CHANNEL, ("sender", "type")

    def __init__(self, seconds: float, data: Path | None) -> None:
        super().__init__(seconds, data)
        self.channels = {CHANNEL: {"capacity": 4 << 20}}
        self.writers = [(self.member, name) for name in NAMES if name != DOOMED]
        self.doomed = [(self.member, DOOMED)]
        self.kill_every = seconds / 2
        self.about = f"{len(NAMES)} processes wrote and read {seconds:g} s of samples on one queue; one was killed"

    def member(self, name: str) -> Tally:
        """One process: writes, reads what the others write, and waits until they have said that they are done, or were killed."""
        tally = Tally(CHANNEL)
        with penstock.join(CHANNEL, name=name) as queue:
            queue.wait_for(NAMES, timeout=PATIENCE_SECONDS)

            def read() -> None:
                if messages := queue.poll(1 << 20):
                    size, sent_ns = sum(len(message.body) for message in messages), [m.time_ns for m in messages]
                    tally.count(CHANNEL, len(messages), size, sent_ns)
                    tally.seen.update((message.sender, message.type) for message in messages)

            def heard_all() -> bool:
                read()
                ends = all((other, END) in tally.seen for other in set(NAMES) - {DOOMED})
                return ends and DOOMED not in queue.senders

            for kind, body in self.samples(name, tally):
                queue.send(json.dumps(body), type=kind)
                tally.seen[name, kind] += 1
                tally.read[CHANNEL]["messages"] += 1  # its own it need not read
                read()
            wait(heard_all, f"{name} did not hear from everybody")
            read()
        return tally

    def samples(self, name: str, tally: Tally) -> Iterator[tuple[str, Any]]:
        """(type, body) of what a member writes."""
        if name in TELEMETRY:
            for stream, sample in telemetry(TELEMETRY[name], self.seconds):
                yield stream.removeprefix("demo."), sample if isinstance(sample, dict) else list(sample)
        elif name == WATCHER:  # says how many it has seen by now
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                yield "seen", tally.seen.total()
                time.sleep(0.01)
        else:
            for number in range(10**9):  # until it is killed
                yield "number", number
                if number % 20 == 19:
                    time.sleep(0.001)
        yield END, name
