"""Where the streams and the columns of a report come from: tables, or an archive. Draws nothing.

Of an archive it reads ranges one by one, and keeps times, sizes and decoded columns; of frames it reads no pixels.
"""

from __future__ import annotations

import collections
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.channels.uri.channel import parse
from penstock.cli.report.streams import Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.record import Range

log = logging.getLogger("penstock")
TRANSPORT = ("time", "timestamp_ns", "recorded_ns")


@dataclass(frozen=True, eq=False)
class Part:
    """A section of a report about columns. decoded: of a stream, with columns of Penstock's; without a column that can be drawn it is left out."""

    name: str
    rows: pa.Table
    caption: str = ""
    decoded: bool = True


def collect(out: Path) -> list[Stream]:
    """The streams of the table *messages*, in the order of their names."""
    import numpy as np
    import pyarrow.compute as pc

    from penstock.tables.reading import read

    rows = read(out, "messages", columns=["stream", "timestamp_ns", "recorded_ns", "bytes"])
    losses = read(out, "losses", columns=["stream", "bytes"])
    found = []
    for channel in sorted({*pc.unique(rows["stream"]).to_pylist(), *pc.unique(losses["stream"]).to_pylist()}):
        of = rows.filter(pc.equal(rows["stream"], channel))
        times = of["timestamp_ns"].to_numpy()
        took = of["recorded_ns"].fill_null(-1).to_numpy() - times
        found.append(
            Stream(
                channel,
                times=np.sort(times),
                latencies=took[took >= 0],
                bytes=int(pc.sum(of["bytes"]).as_py() or 0),
                messages=len(times),
                lost=int(pc.sum(losses.filter(pc.equal(losses["stream"], channel))["bytes"]).as_py() or 0),
                lost_unit="bytes",
            )
        )
    return found


def parts(tables: Path, channels: Sequence[str], own: Sequence[str]) -> Iterator[Part]:
    """The decoded columns of these streams, and the user's own tables."""
    from penstock.tables.reading import open_table, read, streams

    known = streams(tables)
    for channel in channels:
        if channel in known:
            yield Part(channel.partition(":")[2], read(tables, channel))
    for name in own:
        about = open_table(tables, name).description or ""
        yield Part(name, read(tables, name), f"{about} " if not about or about.endswith(".") else f"{about}. ", False)


def recorded(archive: penstock.Archive, damage: list[str]) -> tuple[list[Stream], list[Part]]:
    """The streams of an archive, in the order of their names, and their decoded columns.

    damage: gets a line for each damaged part, which is left out with a warning in the log.
    """
    from penstock.record import plan

    def skip(text: str) -> None:
        log.warning(text)
        damage.append(text)

    ranges: dict[str, list[Range]] = {}
    for one in plan(archive, on_skip=skip):
        ranges.setdefault(one.channel, []).append(one)
    columns: list[Part] = []
    return [_read(channel, ranges[channel], columns, damage) for channel in sorted(ranges)], columns


def _read(channel: str, ranges: Sequence[Range], columns: list[Part], damage: list[str]) -> Stream:
    """One stream. columns: gets its decoded ones, for each codec that it had."""
    import numpy as np

    pixels = parse(channel).kind.by_reference
    seen = _Transport(sum(one.bytes for one in ranges) if pixels else 0, damage)
    for codec, same in itertools.groupby(ranges, key=lambda one: one.codec):
        names = TRANSPORT if pixels else (*TRANSPORT, "payload")
        batches = itertools.chain.from_iterable(seen.scan(one, names) for one in same)
        if pixels:
            collections.deque(batches, maxlen=0)
            continue
        if (first := next(batches, None)) is not None:
            columns.append(Part(channel.partition(":")[2], _decoded(itertools.chain([first], batches), codec)))
    times, took = np.concatenate(seen.times), np.concatenate(seen.took)
    return Stream(
        channel,
        times=np.sort(times),
        latencies=took[took >= 0],
        bytes=seen.bytes,
        messages=len(times),
        lost=seen.lost,
        lost_unit="bytes",
    )


class _Transport:
    """Times, sizes, losses and damage of the ranges that are scanned."""

    def __init__(self, size: int, damage: list[str]) -> None:
        import numpy as np

        self.times, self.took = [np.zeros(0, "i8")], [np.zeros(0, "i8")]
        self.bytes, self.lost, self._damage = size, 0, damage

    def scan(self, one: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The batches of a range."""
        import pyarrow.compute as pc

        from penstock.record import described

        scanner = one.scan(columns)
        for batch in scanner:
            sent = batch["timestamp_ns"].to_numpy(zero_copy_only=False)
            self.times.append(sent)
            self.took.append(pc.fill_null(batch["recorded_ns"], -1).to_numpy(zero_copy_only=False) - sent)
            if "payload" in columns:
                self.bytes += int(pc.sum(pc.binary_length(batch["payload"])).as_py() or 0)
            yield batch
        self.lost += sum(size for _, size in one.lost)
        self.lost += sum(part.end - part.start for part in scanner.left_out if not part.in_index)
        self._damage += [f"{one.channel}: {described(part)}" for part in scanner.left_out]


def _decoded(batches: Iterable[pa.RecordBatch], codec: dict[str, Any]) -> pa.Table:
    from penstock.record.read import typed_columns

    return typed_columns.table(batches, ("time",), codec).drop_columns(["decode_error", "_rescued"])
