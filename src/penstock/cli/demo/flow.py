"""The flow of every demo: channels, a recorder, processes that read and write, kills, counts. A kind's `Demo` says what differs."""

from __future__ import annotations

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock
from penstock.cli.demo.crew import Crew, Tally

Part = tuple[Any, ...]  # the work of one process: a method, and its arguments


class Demo:
    """One kind's demo: its channels and processes, whether messages may be lost, and what tells messages apart."""

    kind = ""  # of the channels
    lossy = False  # whether readers may lose messages, as long as they count them
    takes_data = False  # whether a folder of recorded streams can flow
    readers = "subscribers"  # as the summary calls them
    subscribers = 0  # processes that do nothing but read the channels in `subscribed`
    kill_every = math.inf  # seconds from one kill to the next, while the writers write
    replaced = False  # whether a new process takes a killed one's place
    by: tuple[str, tuple[str, ...]] | None = None  # a channel, and its table's columns that every tally's `seen` counts

    def __init__(self, seconds: float, data: Path | None) -> None:
        self.seconds, self.data = seconds, data
        self.about = ""  # the first line of the demo: what it does
        self.channels: dict[str, dict[str, Any]] = {}  # with the options of the first publication
        self.subscribed: list[str] = []
        self.writers: list[Part] = []  # these end by themselves
        self.doomed: list[Part] = []  # these never end: they are killed one after the other
        self.helpers: list[Part] = []  # these get an event as well, and end when it is set: when all is written
        self.names: dict[str, str] = {}  # of channels, as the report shows them; others by their URI without the kind

    def name(self, channel: str) -> str:
        """A channel's name for people."""
        return self.names.get(channel, channel.partition(":")[2])

    def create(self) -> None:
        """Makes the channels."""
        for channel, options in self.channels.items():
            penstock.publish(channel, **options).close()

    def sent(self, _tallies: list[Tally]) -> dict[str, int]:
        """How many messages each channel has counted. _tallies: of the writers."""
        return {channel: penstock.inspect(channel).totals.messages_sent for channel in self.channels}

    def measure(self, measured: dict[str, Any]) -> None:
        """Adds what can be read only as long as the channels are open: when all is written and read."""

    def look(self, tally: Tally, batch: pa.RecordBatch) -> None:
        """Counts what is in messages that a subscribing process read."""

    def account(self, measured: dict[str, Any]) -> None:
        """Checks of this kind alone. Adds `by_type`, counts by (who, what), and may add `said`, a sentence, for the summary."""
        measured["by_type"] = measured["seen"][0]

    def read(self, written: Any) -> Tally:
        """A subscribing process, there before the writers: reads everything, counts, and measures how long messages took."""
        tally = Tally(*self.channels)
        handles = [penstock.subscribe(channel) for channel in self.subscribed]
        while True:
            last_look = written.is_set()
            with_data = penstock.wait(handles, 0.05)
            for handle in with_data:
                batch = handle.poll_arrow(10_000)
                tally.add(handle.channel, batch)
                self.look(tally, batch)
            if last_look and not with_data:
                break
        for handle in handles:
            tally.read[handle.channel]["lost"] = handle.lost_messages or 0
            handle.close()
        return tally


def flow(demo: Demo, archive: Path) -> dict[str, Any]:
    """Lets it flow and records it. sent, wrote: messages per channel, by the channel's count and by the writers'. subscribers:
    what each reader measured, per channel. seen: each reader's. copies: of the messages per channel, where writers kept them. helped:
    what each helper has seen. killed: how many processes, while others wrote.
    """
    channels = list(demo.channels)
    demo.create()
    measured: dict[str, Any] = {}
    with penstock.Archive(archive).record(channels, start="earliest", process=True), Crew() as crew:
        for _ in range(demo.subscribers):
            crew.start(demo.read, crew.written)
        crew.wait(
            lambda: all(penstock.inspect(channel).readers > demo.subscribers for channel in demo.subscribed),
            "the subscribers did not come",
        )
        for part in demo.helpers:
            crew.start(*part, crew.written)
        writers, doomed = ([crew.start(*part) for part in parts] for parts in (demo.writers, demo.doomed))

        def ended() -> bool:
            return not any(process.is_alive() for process in writers)

        def flows() -> bool:
            return any(penstock.inspect(channel).totals.messages_sent for channel in channels)

        crew.wait(lambda: flows() or ended(), "nothing was sent")
        kills = math.ceil(demo.seconds / demo.kill_every) - 1 if doomed else 0
        for _ in range(kills):
            due = time.monotonic() + demo.kill_every
            crew.wait(lambda due=due: time.monotonic() > due, "a kill", seconds=math.inf)  # type: ignore[misc]
            crew.kill(doomed.pop(0))
            if demo.replaced:
                doomed.append(crew.start(*demo.doomed[0]))
        crew.wait(ended, "publishing", seconds=math.inf)
        for process in doomed:
            crew.kill(process)
        crew.look()
        measured["sent"] = demo.sent(crew.tallies)
        demo.measure(measured)
        crew.written.set()
        crew.wait_for_all()
    readers = [tally for tally in crew.tallies if tally.read]
    measured.update(
        wrote=sum((tally.wrote for tally in crew.tallies), Counter()),
        copies={channel: messages for tally in crew.tallies for channel, messages in tally.sent.items()},
        subscribers=[tally.read for tally in readers],
        seen=[tally.seen for tally in readers],
        helped=[tally.seen for tally in crew.tallies if not (tally.read or tally.wrote)],
        killed=kills,
    )
    demo.account(measured)
    return measured
