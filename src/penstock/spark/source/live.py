"""The data source's option `live`: messages of recordings, and those that only shared memory has, each once. One plan is one cut.

Knows cuts of recordings and memory; knows no table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from penstock.channels.storage.looking import looks_at
from penstock.channels.uri.opener import parse
from penstock.channels.uri.wildcards import matches
from penstock.errors import NotFound
from penstock.record import Lost, Range, ReadPlanner, assign_losses, intervals
from penstock.record.archive import Archive
from penstock.record.read.planning.ranges import with_lost
from penstock.record.read.rows import WHOLE
from penstock.spark.source.options import Request
from penstock.spark.source.streaming import arrange, log
from penstock.tables.lake import memory
from penstock.tables.lake.cut import Found, Sources, find


class LivePartition(InputPartition):
    """A task: a range of a recording but some positions, or messages copied from memory with the losses that they report, as
    (first position behind it, bytes)."""

    def __init__(self, of: Range | pa.RecordBatch, but: frozenset[int], lost: list[tuple[int, int]]) -> None:
        self.of, self.but, self.lost = of, but, lost


def partitions(request: Request) -> list[InputPartition]:
    """The tasks of one cut. `NotFound` for a stream that neither the archive nor memory has."""
    archive = Archive(request.path, create=False)
    streams = _streams(archive, request)
    size = request.bytes_of_ranges(sum(info.bytes for info in archive.list() if info.channel in streams))
    looks = {stream: looks_at(parse(stream)) for stream in sorted(streams)}
    found, survey = find(Sources(None, archive), looks, False, size)
    for missing in (one for each in found for one in each.missing):
        log.warning("%s", missing)
    ranges = [(planned, one) for one in found for planned in one.ranges]
    gaps = [] if survey is None else _gaps(found, survey, request)
    made = list[InputPartition]()
    for (planned, one), lost in zip(ranges, assign_losses(gaps, [planned for planned, _ in ranges]), strict=True):
        start, end = max(planned.start, request.start), min(planned.end, request.end)
        held_back = one.from_memory.get(planned.epoch, frozenset())
        if start < end and planned.time_max >= request.since and planned.time_min <= request.until:
            made.append(LivePartition(replace(planned, start=start, end=end, lost=lost), held_back, []))
    for one in found:
        for epoch, _, batches in one.memories():
            behind = max((planned.end for planned in one.ranges if planned.epoch == epoch), default=0)
            mine = [gap for gap in gaps if (gap.channel, gap.epoch) == (one.stream, epoch) and gap.end >= behind]
            todo = [(gap.end, gap.end - gap.start) for gap in mine]
            for batch in batches:
                last = pc.max(batch.column("position")).as_py()
                made.append(LivePartition(batch, frozenset(), [loss for loss in todo if loss[0] <= last]))
                todo = [loss for loss in todo if loss[0] > last]
    return made


def _streams(archive: Archive, request: Request) -> set[str]:
    there = {info.channel for info in archive.list() if info.channel} | set(memory.streams())
    if request.channels is None:
        return there
    for name in request.channels:
        if not any(matches(name, channel) for channel in there):
            raise NotFound(f"neither {request.path} nor this machine's memory has a stream {name}")
    return {channel for channel in there if any(matches(name, channel) for name in request.channels)}


def _gaps(found: list[Found], survey: ReadPlanner, request: Request) -> list[Lost]:
    """What no recording and no memory has, in order: what recorders missed, and what memory had let go of."""
    gaps = [Lost(one.stream, one.epoch, one.start, one.end, 0) for each in found for one in each.missing]
    # All that no recording has is copied, from the first message on that memory has.
    held = {
        (one.stream, epoch): [(pc.min(batches[0].column("position")).as_py(), end)]
        for one in found
        for epoch, end, batches in one.memories()
        if batches
    }
    for gap in survey.lost():
        parts = intervals.without([(gap.start, gap.end)], held.get((gap.channel, gap.epoch), []))
        gaps += [replace(gap, start=low, end=high) for low, high in parts]
    gaps = [gap for gap in gaps if gap.end >= request.start and gap.start < request.end]
    return sorted(gaps, key=lambda gap: (gap.channel, gap.epoch, gap.start))


def rows_of(partition: LivePartition, columns: dict[str, bool], request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of a task."""
    if isinstance(partition.of, Range):
        names = [*columns, *({"position"} - set(columns))]
        for batch in partition.of.rows(names, since=request.since, until=request.until, batch_rows=request.batch_rows):
            if partition.but:
                gone = pc.is_in(batch.column("position"), pa.array(sorted(partition.but), pa.int64()))
                batch = batch.filter(pc.invert(gone))
            yield arrange(batch, columns)
        return
    count, todo = partition.of.num_rows, list(partition.lost)
    batch = partition.of
    for name, value in (
        ("flags", pa.scalar(WHOLE, pa.int32())),
        ("lost", pa.scalar(0, pa.int64())),
        ("recorded_ns", pa.scalar(None, pa.int64())),
    ):
        batch = batch.append_column(name, pa.repeat(value, count))
    batch = with_lost(batch, todo, batch.schema.names)
    time, position = batch.column("timestamp_ns"), batch.column("position")
    wanted = pc.and_(pc.greater_equal(time, request.since), pc.less_equal(time, request.until))
    within = pc.and_(pc.greater_equal(position, request.start), pc.less(position, min(request.end, (1 << 63) - 1)))
    batch = batch.filter(pc.and_(wanted, within))
    for at in range(0, batch.num_rows, request.batch_rows):
        yield arrange(batch.slice(at, request.batch_rows), columns)
