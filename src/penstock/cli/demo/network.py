"""The demo on the network log: sensors send over a link that loses datagrams. The receivers get every message, and are recorded."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import penstock
from penstock.cli.demo import link
from penstock.cli.demo.flow import SUBSCRIBERS, Demo
from penstock.cli.demo.processes import PATIENCE_SECONDS, Tally

LOSS, SEED = 0.05, 7
READERS = SUBSCRIBERS + 1  # the subscribing processes, and the recorder


class Networks(Demo):
    """A `udp:` channel per stream, and a relay between its senders and its receivers. Lost datagrams are sent again."""

    kind = "udp"
    options: dict[str, Any] = {"term_length": 1 << 20}  # noqa: RUF012

    def __init__(self, seconds: float, data: Path | None) -> None:
        super().__init__(seconds, data)
        of_stream = {name.partition(":")[2]: options for name, options in self.channels.items()}
        ports = link.free_ports(2 * len(of_stream))
        self.links = dict(zip(ports[: len(of_stream)], ports[len(of_stream) :], strict=True))
        self.sending, self.receiving = dict[str, str](), dict[str, str]()
        for number, (stream, (port, target)) in enumerate(zip(of_stream, self.links.items(), strict=True), 1):
            self.sending[stream] = f"udp://{link.HOST}:{port}/{number}"
            self.receiving[stream] = f"udp://{link.HOST}:{target}/{number}"
        self.of_stream = of_stream
        self.channels = {self.receiving[stream]: options for stream, options in of_stream.items()}
        self.names = {channel: stream for stream, channel in self.receiving.items()}
        self.helpers = [(self.relay,)]
        self.about = (
            f"{self._published('udp channel')} over a link that loses {LOSS:.0%} of the datagrams, "
            f"to {SUBSCRIBERS} subscribers, and recorded it at the receivers"
        )

    def create(self) -> None:
        """Nothing: a channel exists from its first subscription on."""

    def relay(self, end: Any) -> Tally:
        """The process that is the bad link."""
        tally = Tally()
        tally.seen.update(link.relay(self.links, LOSS, SEED, end))
        return tally

    def publish(self, streams: list[str]) -> Tally:
        """A publishing process: it keeps a copy of its messages, for the comparison with the tables."""
        tally = Tally()
        with contextlib.ExitStack() as opened:
            pubs = {
                stream: opened.enter_context(
                    penstock.publish(self.sending[stream], linger=PATIENCE_SECONDS, **self.of_stream[stream])
                )
                for stream in streams
            }
            for pub in pubs.values():
                pub.wait_for_readers(READERS, timeout=PATIENCE_SECONDS)
            for stream, message in self.messages(streams):
                pubs[stream].send(message)
                tally.wrote[self.receiving[stream]] += 1
                if self.data is None:
                    tally.sent.setdefault(self.receiving[stream], []).append(message)
            for stream, pub in pubs.items():
                tally.counted[self.receiving[stream]] = pub.statistics().totals.messages_sent
        return tally

    def sent(self, tallies: list[Tally]) -> dict[str, int]:
        """See `Demo`. The publications' logs, which have the counts, are removed with them."""
        counted = sum((tally.counted for tally in tallies), Counter[str]())
        return {channel: counted[channel] for channel in self.channels}

    def account(self, measured: dict[str, Any]) -> None:
        """See `Demo`. That datagrams were lost is shown by the relay's counts."""
        link_counts: Counter[tuple[str, str]] = sum(measured["helped"], Counter())
        lost = sum(count for (_, what), count in link_counts.items() if what == "lost")
        if not lost:
            raise penstock.PenstockError("the link lost no datagram: the demo has shown nothing")
        total = link_counts.total()
        measured["by_type"] = link_counts
        measured["summary"] = (
            f"The link lost {lost:,} of {total:,} datagrams ({lost / total:.1%}). The receivers requested missing data "
            f"{measured['naks']:,} times, and the senders sent them again."
        )

    def measure(self, measured: dict[str, Any]) -> None:
        """See `Demo`."""
        measured["naks"] = sum(penstock.inspect(channel).details["naks_sent"] for channel in self.channels)
