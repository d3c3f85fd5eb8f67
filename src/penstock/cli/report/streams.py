"""One stream as a report shows it. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.cli.terminal.output import count, size

FEWEST = 10  # messages that have a rate: two that arrive together would show thousands per second


@dataclass(frozen=True, eq=False)
class Stream:
    """One stream: send times in order, in nanoseconds since the epoch; latencies in nanoseconds, in no order.

    lost: messages or bytes. shown: its name for people, if that is not its URI without the kind.
    """

    channel: str
    times: Any
    latencies: Any
    bytes: int
    messages: int
    lost: int = 0
    lost_unit: str = "messages"
    shown: str | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return (self.shown or self.channel.partition(":")[2]).removeprefix("demo.").removeprefix("drive.")

    @property
    def rate(self) -> float | None:
        """Messages per second, between the first and the last one. None with fewer than ten messages."""
        seconds = (int(self.times[-1]) - int(self.times[0])) / 1e9 if len(self.times) >= FEWEST else 0.0
        return (len(self.times) - 1) / seconds if seconds > 0 else None

    @property
    def missing(self) -> str:
        """Its losses for people."""
        return size(self.lost) if self.lost_unit == "bytes" else count(self.lost)
