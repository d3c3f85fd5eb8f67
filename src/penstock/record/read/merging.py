"""Several recordings as one sequence of messages, in the order of their send times. Knows planned ranges; bounded in memory.

A recording's own order is never changed: where its times step back, its messages still follow each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.record.read.planning.ranges import Range
from penstock.record.read.scan import TIME_MAX, TIME_MIN, LeftOut, described

BATCH_ROWS, BATCH_BYTES = 512, 1 << 20  # of each stream that is open: one batch is in memory
COLUMNS = ("timestamp_ns", "position", "session", "recorded_ns", "payload")


class Merged(NamedTuple):
    """A message and its range. payload: the encoded bytes."""

    source: Range
    time_ns: int
    position: int
    session: int
    recorded_ns: int
    payload: bytes


def merged(
    ranges: Iterable[Range],
    since: int = TIME_MIN,
    until: int = TIME_MAX,
    on_skip: Callable[[str], None] = lambda text: None,
    on_damage: Callable[[Range, LeftOut], None] = lambda source, damage: None,
) -> Iterator[Merged]:
    """The messages of all ranges that were sent from `since` to `until`, in the order of their send times.

    A stream is opened when its first message may be due, so that only those that overlap in time are open at once. on_skip: called with a
    line for each piece of damage, which is not there. on_damage: called with each such piece before the message behind it is yielded.
    """
    streams = _streams(ranges)
    waiting: list[tuple[int, int, Merged | None]] = [
        (max(stream[0].time_min, since), number, None) for number, stream in enumerate(streams)
    ]
    heapq.heapify(waiting)
    rows: dict[int, Iterator[Merged]] = {}
    while waiting:
        due, number, message = heapq.heappop(waiting)
        if message is None:
            rows[number] = _rows(streams[number], since, until, on_skip, on_damage)
        else:
            yield message
        following = next(rows[number], None)
        if following is None:
            del rows[number]
        else:
            heapq.heappush(waiting, (max(due, following.time_ns), number, following))


def _streams(ranges: Iterable[Range]) -> list[list[Range]]:
    """Ranges by channel and epoch, each in the order of positions: one stream of messages."""
    found: dict[tuple[str, int], list[Range]] = {}
    for one in ranges:
        found.setdefault((one.channel, one.epoch), []).append(one)
    return [sorted(stream, key=lambda one: one.start) for stream in found.values()]


def _rows(
    stream: Sequence[Range],
    since: int,
    until: int,
    on_skip: Callable[[str], None],
    on_damage: Callable[[Range, LeftOut], None],
) -> Iterator[Merged]:
    reported: set[str] = set()  # two ranges may meet at a piece of damage

    def report(one: Range, found: Sequence[LeftOut]) -> None:
        for damage in found:
            if not damage.in_index and damage.what not in reported:
                reported.add(damage.what)
                on_damage(one, damage)
                on_skip(f"{one.channel}: {described(damage)}")

    for one in stream:
        scanner, seen = one.scan(COLUMNS, since=since, until=until, batch_rows=BATCH_ROWS, batch_bytes=BATCH_BYTES), 0
        for batch in scanner:
            fresh, seen = scanner.left_out[seen:], len(scanner.left_out)
            report(one, fresh)
            columns = [batch.column(name).to_pylist() for name in COLUMNS]
            for row in zip(*columns, strict=True):
                yield Merged(one, *row)
        report(one, scanner.left_out[seen:])
