"""One stream of a training set: an archive's messages of a channel in the order of their times, its losses, and its columns.

Knows planned ranges and contracts; knows no row of a training set and no file. Beside a batch one message is in memory, or a window of some
where the clock steps back.
"""

from __future__ import annotations

import bisect
import heapq
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.codecs import bare
from penstock.codecs.frames import FrameFormat, unencoded
from penstock.columns.contract import Contract
from penstock.columns.contract.declared import begun, is_open
from penstock.columns.contract.decoding import decode
from penstock.errors import Invalid
from penstock.record import TIME_MAX, TIME_MIN, Lost, Merged, Range, merged
from penstock.record.read.scan import LeftOut

PIECE = 4096  # messages that are decoded together
WINDOW, WINDOW_BYTES = 1024, 16 << 20  # in which messages are put into the order of their times


@dataclass
class Tally:
    """What became of a stream's messages. steps_back: messages that are earlier than the one before them."""

    messages: int = 0
    undecodable: int = 0
    rescued: int = 0
    rows_without: int = 0
    steps_back: int = 0


@dataclass
class Stream:
    """A channel's messages in an archive. name: of its columns. skip: called with a line for each piece of damage. unsure: spans of time,
    (first, behind the last), in order, that its clock ran through twice: `messages` are not in the order of their times there."""

    channel: str
    name: str
    ranges: list[Range]
    losses: list[Lost]
    skip: Callable[[str], None]
    contract: Contract = ()
    tally: Tally = field(default_factory=Tally)
    unsure: list[tuple[int, int]] = field(default_factory=list)
    _gaps: dict[int, list[tuple[int, int]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for one in self.losses:
            self._add_gap(one.epoch, one.start, one.end)

    @property
    def codecs(self) -> list[dict[str, Any]]:
        """The codecs of its recordings, each once."""
        found: list[dict[str, Any]] = []
        for one in self.ranges:
            codec = unencoded(one.codec)  # a training set has pixels as they were
            if bare(codec) not in map(bare, found):
                found.append(codec)
        return found

    @property
    def codec(self) -> dict[str, Any] | None:
        """The codec of all its recordings; None if they have several."""
        found = self.codecs
        return found[0] if len(found) == 1 else None

    def gaps(self) -> list[dict[str, int]]:
        """Positions that no recording has, or whose bytes are damaged: those that planning knew, and those found since."""
        return [
            {"epoch": epoch, "start": start, "end": end, "bytes": end - start}
            for epoch, gaps in sorted(self._gaps.items())
            for start, end in gaps
        ]

    def learn_columns(self, since: int = TIME_MIN, until: int = TIME_MAX) -> None:
        """Finds the columns: those that codecs declare, and where messages bring keys of their own, those of all messages."""
        for codec in self.codecs:
            self.contract = begun(codec, self.contract)
        for one in self.ranges:
            if is_open(one.codec):
                for batch in one.scan(["payload"], since=since, until=until, batch_rows=PIECE):
                    self.contract = decode(one.codec, self.contract, batch.column("payload")).contract

    def messages(self, since: int = TIME_MIN, until: int = TIME_MAX) -> Iterator[Merged]:
        """Its messages that were sent from `since` to `until`, in the order of their times, but for the spans that are `unsure`."""
        last = None
        window = self._window(since, until)
        if window:
            self._find_unsure(_in_order(merged(self.ranges, since, until), window))

        def counted() -> Iterator[Merged]:
            nonlocal last
            for message in merged(self.ranges, since, until, self.skip, self._note_damage):
                self.tally.messages += 1
                if last is not None and message.time_ns < last:
                    self.tally.steps_back += 1
                last = message.time_ns
                yield message

        yield from _in_order(counted(), window)

    def _window(self, since: int, until: int) -> int:
        """How many messages are to be put into order at once. 0: they are in order."""
        last: dict[int, int] = {}  # by epoch
        for one in sorted(self.ranges, key=lambda one: (one.epoch, one.start)):
            for batch in one.scan(["timestamp_ns"], since=since, until=until):
                times = batch.column("timestamp_ns").to_numpy(zero_copy_only=False)
                if len(times) and (times[0] < last.get(one.epoch, TIME_MIN) or bool((np.diff(times) < 0).any())):
                    size = sum(each.bytes for each in self.ranges) // max(1, sum(each.messages for each in self.ranges))
                    return max(1, min(WINDOW, WINDOW_BYTES // max(1, size)))
                if len(times):
                    last[one.epoch] = int(times[-1])
        return 0

    def _find_unsure(self, messages: Iterator[Merged]) -> None:
        self.unsure.clear()
        newest = TIME_MIN
        for message in messages:
            first = message.time_ns
            if first < newest:
                while self.unsure and self.unsure[-1][1] >= first:
                    first = min(first, self.unsure.pop()[0])
                self.unsure.append((first, newest))
            newest = max(newest, message.time_ns)

    def unsure_from(self, time_ns: int) -> int:
        """Where the next span begins that is unsure: at most that time if it is within one; TIME_MAX if there is none any more."""
        at = bisect.bisect_right(self.unsure, time_ns, key=lambda span: span[1])
        return self.unsure[at][0] if at < len(self.unsure) else TIME_MAX

    def lost_between(self, before: Merged | None, after: Merged | None) -> bool:
        """Whether messages are lost behind one message and in front of the one that follows it. None: the stream's beginning, or its end."""
        if before is None and after is None:
            return bool(self._gaps)
        if before is not None and after is not None and before.source.epoch == after.source.epoch:
            low, high = sorted((before.position, after.position))
            return self._has_gap(before.source.epoch, low, high)
        return (before is not None and self._has_gap(before.source.epoch, before.position, None)) or (
            after is not None and self._has_gap(after.source.epoch, 0, after.position)
        )

    def _has_gap(self, epoch: int, low: int, high: int | None) -> bool:
        """Whether a gap begins in [low, high)."""
        gaps = self._gaps.get(epoch, [])
        at = bisect.bisect_left(gaps, (low, 0))
        return at < len(gaps) and (high is None or gaps[at][0] < high)

    def _note_damage(self, source: Range, damage: LeftOut) -> None:
        if damage.end > damage.start:
            self._add_gap(source.epoch, damage.start, damage.end)

    def _add_gap(self, epoch: int, start: int, end: int) -> None:
        gaps = self._gaps.setdefault(epoch, [])
        if (start, end) not in gaps:
            bisect.insort(gaps, (start, end))


def _in_order(messages: Iterator[Merged], window: int) -> Iterator[Merged]:
    """The messages in the order of their times, as far as those that are so many apart can be exchanged."""
    waiting: list[tuple[int, int, Merged]] = []
    for number, message in enumerate(messages):
        one = message.time_ns, number, message
        if len(waiting) >= window:
            yield heapq.heappushpop(waiting, one)[2]
        else:
            heapq.heappush(waiting, one)
    while waiting:
        yield heapq.heappop(waiting)[2]


def check_frames(stream: Stream) -> None:
    """`Invalid` for frames of several shapes, which no column of images has."""
    frames = [codec for codec in stream.codecs if codec["kind"] == "frame"]
    shapes = {
        (
            tuple(codec.get("shape", ())),
            json.dumps([codec.get(name) for name in ("dtype", "dtypes", "varies", "pixels")]),
        )
        for codec in frames
    }
    if len(shapes) > 1:
        raise Invalid(
            f"{stream.channel} has recordings of {len(shapes)} shapes of frames: choose those of one shape with since and until"
        )


def payloads(messages: list[Merged]) -> pa.Array:
    """Their payloads as a column, those of frames with their pixels as they were."""
    if not messages or "encoding" not in messages[0].source.codec:
        return pa.array([one.payload for one in messages], pa.binary())
    form = FrameFormat(messages[0].source.codec)
    return pa.array([_decoded(form, one.payload) for one in messages], pa.binary())


def _decoded(form: FrameFormat, payload: bytes) -> bytes:
    try:
        return form.decoded(payload)
    except (ValueError, struct.error):  # it does not decode as a raw one either, and is counted then
        return payload
