"""The demo on logs, and the flow of every demo: channels, a recorder, processes that write and read, counts. A subclass has the differences."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.demo.processes import ProcessGroup, Tally
from penstock.cli.demo.sources import CODECS, TELEMETRY, drive, drive_records, drive_streams, telemetry

Part = tuple[Any, ...]  # the work of one process: a method, and its arguments
SUBSCRIBERS = 2


class Demo:
    """A log per stream, processes that publish, and processes that read all of them."""

    kind = "log"
    options: dict[str, Any] = {"term_length": 4 << 20}  # noqa: RUF012

    def __init__(self, seconds: float, data: Path | None) -> None:
        self.seconds, self.data = seconds, data
        self.helpers: list[Part] = []  # these get an event as well, and end when it is set: when all is written
        self.names: dict[str, str] = {}  # of channels, as the report shows them; others by their URI without the kind
        groups = list(TELEMETRY.values()) if data is None else [drive_streams(data)]
        self.channels: dict[str, dict[str, Any]] = {}  # with the options of the first publication
        for stream in [stream for group in groups for stream in group]:
            codec = CODECS[stream] if data is None else drive_records(data, stream)[0].dtype
            self.channels[f"{self.kind}:{stream}"] = {"codec": codec, **self.options}
        self.writers: list[Part] = [(self.publish, group) for group in groups]
        self.about = f"{self._published(self.kind)} to {SUBSCRIBERS} subscribers, and recorded it"

    def _published(self, what: str) -> str:
        data = f"{self.seconds:g} s of this host's telemetry" if self.data is None else "this drive's minute"
        return f"published {data} on {len(self.channels)} {what}s"

    def name(self, channel: str) -> str:
        """A channel's name for people."""
        return self.names.get(channel, channel.partition(":")[2])

    def create(self) -> None:
        """Makes the channels."""
        for channel, options in self.channels.items():
            penstock.publish(channel, **options).close()

    def messages(self, streams: list[str]) -> Any:
        """(stream, message) of each message that a publishing process sends."""
        return telemetry(streams, self.seconds) if self.data is None else drive(self.data, streams)

    def publish(self, streams: list[str]) -> Tally:
        """A publishing process."""
        tally = Tally()
        with contextlib.ExitStack() as opened:
            channels = {stream: f"{self.kind}:{stream}" for stream in streams}
            pubs = {stream: opened.enter_context(penstock.publish(channel)) for stream, channel in channels.items()}
            for stream, message in self.messages(streams):
                pubs[stream].send(message)
                tally.wrote[channels[stream]] += 1
        return tally

    def read(self, written: Any) -> Tally:
        """A subscribing process, there before the writers: reads everything, counts, and measures how long messages took."""
        tally = Tally(*self.channels)
        handles = [penstock.subscribe(channel) for channel in self.channels]
        while True:
            last_look = written.is_set()
            with_data = penstock.wait(handles, 0.05)
            for handle in with_data:
                tally.add(handle.channel, handle.poll_arrow(10_000))
            if last_look and not with_data:
                break
        for handle in handles:
            handle.close()
        return tally

    def sent(self, _tallies: list[Tally]) -> dict[str, int]:
        """How many messages each channel has counted. _tallies: of the writers."""
        return {channel: penstock.inspect(channel).totals.messages_sent for channel in self.channels}

    def measure(self, measured: dict[str, Any]) -> None:
        """Adds measurements that need open channels, after all is written and read."""

    def account(self, measured: dict[str, Any]) -> None:
        """Checks of this kind alone. May add `by_type`, counts by (who, what), and `summary`, a sentence for the end."""


def flow(demo: Demo, archive: Path) -> dict[str, Any]:
    """Lets it flow and records it. sent, wrote: messages per channel, by the channel's count and by the writers'. subscribers:
    each reader's measurements, per channel. copies: of the messages per channel, if writers kept them. helped: what each helper
    has counted.
    """
    channels = list(demo.channels)
    demo.create()
    measured: dict[str, Any] = {}
    with penstock.Archive(archive).record(channels, process=True), ProcessGroup() as group:
        for _ in range(SUBSCRIBERS):
            group.start(demo.read, group.written)
        group.wait(
            lambda: all(penstock.inspect(channel).readers > SUBSCRIBERS for channel in channels),
            "the subscribers did not start",
        )
        for part in demo.helpers:
            group.start(*part, group.written)
        writers = [group.start(*part) for part in demo.writers]
        group.wait(lambda: not any(process.is_alive() for process in writers), "publishing", seconds=math.inf)
        group.collect()
        measured["sent"] = demo.sent(group.tallies)
        demo.measure(measured)
        group.written.set()
        group.wait_for_all()
    measured.update(
        wrote=sum((tally.wrote for tally in group.tallies), Counter()),
        copies={channel: messages for tally in group.tallies for channel, messages in tally.sent.items()},
        subscribers=[tally.read for tally in group.tallies if tally.read],
        helped=[tally.seen for tally in group.tallies if tally.seen],
    )
    demo.account(measured)
    return measured
