"""Offsets of a streaming query: which positions of an archive it has read. Canonical JSON: the same offset is the same text.

Knows numbers and text only: no Spark, and no archive but its id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import Invalid
from penstock.record import intervals

Stream = tuple[str, int]  # a channel, and the epoch that its positions belong to
Positions = dict[Stream, list[intervals.Interval]]
EARLIEST, LATEST = -2, -1  # as in Kafka's JSON
POSITION_MAX = (1 << 64) - 1
NEWEST = 0  # stands for the epoch of a channel's newest recording


@dataclass(frozen=True)
class Offset:
    """done: the positions that were read. begin: those that the query left out when it began. query: a number of its own; consumer: its name.

    Spark does not keep where a query begins, and asks for it again. So every offset has it: see `since`.
    """

    archive: str
    query: str
    consumer: str
    begin: Positions = field(default_factory=dict)
    done: Positions = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        begin = {"begin": positions_to_json(self.begin)} if self.begin else {}
        return {
            "archive": self.archive,
            **begin,
            "consumer": self.consumer,
            "query": self.query,
            "streams": positions_to_json(self.done),
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Offset:
        """The offset that was kept."""
        begin = positions_of(given.get("begin", {}))
        return cls(given["archive"], given["query"], given["consumer"], begin, positions_of(given["streams"]))

    def since(self, start: Offset) -> Offset:
        """The offset at which a batch begins that ends here. `start`, unless it is an answer about the beginning that was given later."""
        return start if start.query == self.query else replace(self, done=self.begin)


def positions_to_json(done: Positions) -> dict[str, Any]:
    """Channel → epoch → what was read: a position, if it is everything below it, or text such as `0-4096 8192-9000`."""
    found: dict[str, dict[str, int | str]] = {}
    for (channel, epoch), parts in sorted(done.items()):
        if len(parts) == 1 and parts[0][0] == 0:
            text: int | str = parts[0][1]
        else:
            text = " ".join(f"{low}-{high}" for low, high in parts) or 0
        found.setdefault(channel, {})[str(epoch)] = text
    return found


def positions_of(given: Mapping[str, Any]) -> Positions:
    """The positions of such JSON. `Invalid` if it is none."""
    found: Positions = {}
    try:
        for channel, epochs in given.items():
            for epoch, text in epochs.items():
                if isinstance(text, int):
                    found[channel, int(epoch)] = [(0, text)] if text > 0 else []
                else:
                    ends = (part.split("-") for part in text.split())
                    found[channel, int(epoch)] = intervals.union((int(low), int(high)) for low, high in ends)
    except (AttributeError, TypeError, ValueError):
        raise Invalid(f"{json.dumps(given)[:200]} are no positions of an archive") from None
    return found


def start_of(given: str, name: str) -> str | dict[Stream, list[intervals.Interval] | int]:
    """`earliest`, `latest`, or for each stream the positions that were read, or -2 (earliest), -1 (latest).

    given: the option's text. JSON may be an offset as in a query's progress, or channel → position, or channel → epoch → position. A
    channel without epochs means its newest one: NEWEST.
    """
    text = given.strip()
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    example = (
        'earliest, latest, or JSON such as {"log:imu": 4096} or {"log:imu": {"EPOCH": 4096}}; -2 is earliest, -1 latest'
    )
    try:
        parsed = json.loads(text)
        if "streams" in parsed:
            parsed = parsed["streams"]
        found: dict[Stream, list[intervals.Interval] | int] = {}
        for channel, epochs in parsed.items():
            for epoch, value in (epochs if isinstance(epochs, dict) else {NEWEST: epochs}).items():
                if isinstance(value, bool) or not isinstance(value, int | str):
                    raise ValueError
                if isinstance(value, int) and value < 0:
                    if value not in (EARLIEST, LATEST):
                        raise ValueError
                    found[channel, int(epoch)] = value
                else:
                    found[channel, int(epoch)] = positions_of({channel: {int(epoch): value}})[channel, int(epoch)]
    except (Invalid, ValueError, TypeError, AttributeError):
        raise Invalid(f"{name} is {given!r}: it must be {example}") from None
    return found


def resolve(
    asked: str | dict[Stream, list[intervals.Interval] | int], held: Positions, newest: dict[str, int]
) -> Positions:
    """The positions that an option leaves out, of those that there are. Streams that it does not name begin at their beginning.

    newest: channel → epoch of its newest recording. Older epochs of a channel that is named without one are left out.
    """
    everything: Positions = {stream: [(0, intervals.end_of(there))] for stream, there in held.items()}
    if isinstance(asked, str):
        return everything if asked == "latest" else {}
    found: Positions = {}
    for (channel, epoch), value in asked.items():
        if channel not in newest:
            raise Invalid(f"the archive has no stream {channel}; it has {', '.join(sorted(newest)) or 'none'}")
        stream = channel, epoch
        if epoch == NEWEST:
            stream = channel, newest[channel]
            older = [one for one in everything if one[0] == channel and one != stream]
            found |= {one: everything[one] for one in older if value != EARLIEST}
        if value == LATEST:
            found[stream] = everything.get(stream, [])
        elif value != EARLIEST:
            assert isinstance(value, list)
            found[stream] = value
    return found
