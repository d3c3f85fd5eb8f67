"""Takes the cut of a query: for each stream the rows of its table, then what a recording has beyond them, then what only memory has.

By (epoch, position) each row is in one of the three. Knows tables, archives and channels; knows no engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.channels.storage.looking import ChannelLook
from penstock.columns.contract import Contract, from_schema
from penstock.columns.contract.declared import begun, has_columns, inner, is_open
from penstock.columns.contract.decoding import decode
from penstock.errors import Busy, Invalid, PenstockError
from penstock.record import Range, ReadPlanner, intervals
from penstock.record.archive import Archive
from penstock.record.read.rows import holes
from penstock.tables.folder.state import State
from penstock.tables.lake import memory
from penstock.tables.lake.dataset import StreamDataset
from penstock.tables.lake.parts import FilePart, Gone, MemoryPart, Part, RangePart
from penstock.tables.lake.snapshots import Snapshot, Snapshots
from penstock.tables.schemas import of_stream
from penstock.tables.work.tasks import SAMPLE
from penstock.util.errors_in_text import first_of

RANGE_BYTES = 8 << 20
SAMPLED = 4  # ranges of a recording whose first messages may bring columns
TRIES = 5  # a commit, a purge or a recorder may come between two looks


@dataclass(frozen=True)
class Missing:
    """Messages that a query lacks: positions [start, end) of a stream that memory has no more, and no recording and no table has yet."""

    stream: str
    epoch: int
    start: int
    end: int

    @property
    def bytes(self) -> int:
        """How many, headers included."""
        return self.end - self.start

    def __str__(self) -> str:
        return (
            f"{self.stream}: {self.bytes} bytes from position {self.start} on are missing: memory has let go of them, and they are in no "
            "recording and no table yet"
        )


@dataclass(frozen=True)
class StreamCut:
    """One stream of a query. table: its rows that count but `gone`; rest: parts that no table has. ends: where memory ended, by epoch."""

    stream: str
    schema: pa.Schema
    contract: Contract
    table: Snapshot | None
    gone: Sequence[Gone]
    rest: Sequence[Part]
    erased: Sequence[tuple[int, int]]
    missing: Sequence[Missing]
    ends: Mapping[int, int]

    def files(self) -> list[FilePart]:
        """The table's files."""
        return [] if self.table is None else [FilePart(self.table.table, file, self.gone) for file in self.table.files]

    def dataset(self, *, files: bool = True) -> StreamDataset:
        """All rows; or those that are in no table."""
        parts = [*(self.files() if files else []), *self.rest]
        return StreamDataset(self.schema, self.contract, parts, self.erased)


@dataclass
class Sources:
    """Where the streams of a cut are. Each may be absent."""

    snapshots: Snapshots | None
    archive: Archive | None


@dataclass
class Found:
    """The parts of a stream while its cut is taken. looks: at its memory, each with its end. state: of its table, with the cuts of recordings
    that it has not followed. kept: what only memory has, by look."""

    stream: str
    looks: Sequence[tuple[ChannelLook, int]]
    snapshot: Snapshot | None
    state: State = field(default_factory=State)
    ranges: list[Range] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    kept: list[tuple[ChannelLook, pa.RecordBatch]] = field(default_factory=list)
    from_memory: dict[int, frozenset[int]] = field(
        default_factory=dict
    )  # epoch: positions of messages that begin where a recording has them, and end in memory
    missing: list[Missing] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.looks and self.snapshot is None and not self.ranges

    def memories(self) -> list[tuple[int, int, list[pa.RecordBatch]]]:
        """Of each look at memory: its epoch, where it ended, and the messages that only memory has."""
        return [(look.epoch, end, [batch for other, batch in self.kept if other is look]) for look, end in self.looks]


def take(sources: Sources, looks: dict[str, list[ChannelLook]], strict: bool) -> dict[str, StreamCut | Invalid | None]:
    """The cut of some streams; None for one that is nowhere, `Invalid` for one without columns. looks: at the sessions of each in memory.

    strict: `Busy` for messages that are missing.
    """
    found, _ = find(sources, looks, strict)
    return {one.stream: None if one.is_empty else _finished(sources, one) for one in found}


def find(
    sources: Sources, looks: dict[str, list[ChannelLook]], strict: bool, range_bytes: int = RANGE_BYTES
) -> tuple[list[Found], ReadPlanner | None]:
    """The parts of each stream, raw, as `take` has them; and the archive's indexes as they were then. range_bytes: about how large a range is."""
    ends = {stream: [(look, look.end()) for look in some] for stream, some in looks.items()}
    found: tuple[list[Found], ReadPlanner | None] | None = None
    for attempt in range(TRIES):
        is_last = attempt == TRIES - 1
        with contextlib.suppress(*([] if is_last else [Busy])):  # a commit replaced the state that was to be read
            found = _look(sources, ends, range_bytes, is_last)
            if found is not None and (is_last or not any(one.missing for one in found[0])):
                break
    assert found is not None
    if strict and (missing := [one for each in found[0] for one in each.missing]):
        raise Busy(first_of(missing))
    return found


def _look(
    sources: Sources, ends: dict[str, list[tuple[ChannelLook, int]]], range_bytes: int, is_last: bool
) -> tuple[list[Found], ReadPlanner | None] | None:
    """Tables, then recordings, then memory: what moves from one to the one before meanwhile is not missed. None if it may have been, since a
    table got a commit and the archive a purge."""
    tables = sources.snapshots
    found = [Found(stream, looks, None if tables is None else tables.of(stream)) for stream, looks in ends.items()]
    for one in found:
        if one.snapshot is not None:
            one.state = one.snapshot.copy_state()
            one.gone += [Gone(times=span) for span in one.snapshot.erased]
    survey = None if sources.archive is None else ReadPlanner(sources.archive, set(ends))
    if survey is not None:
        _plan(survey, found, range_bytes)
    if tables is not None and not is_last:
        for one in found:
            if one.snapshot is not None and not tables.is_newest(one.snapshot):
                return None
    for one in found:
        for look, end in one.looks:
            _clip(one, look, end)
            _remember(one, look, end, survey)
    return found, survey


def _plan(survey: ReadPlanner, found: list[Found], range_bytes: int) -> None:
    for one in found:
        for info, cut in survey.cuts:
            if info.channel == one.stream and one.snapshot is not None and cut.token not in one.state.cuts:
                one.state.forget(info, cut)
                one.gone.append(Gone(info.epoch, cut.position, info.id))
    done: dict[Any, Any] = {}
    for one in found:
        done |= one.state.intervals()
    for planned in survey.ranges(done=done, range_bytes=range_bytes):
        next(one for one in found if one.stream == planned.channel).ranges.append(planned)


def _clip(one: Found, look: ChannelLook, end: int) -> None:
    """What was sent behind the end of memory came later than the query."""
    mine = one.state.intervals().get((one.stream, look.epoch), [])
    if intervals.end_of(mine) > end:
        one.gone.append(Gone(look.epoch, end))
    one.ranges = [
        replace(planned, end=min(planned.end, end)) if planned.epoch == look.epoch else planned
        for planned in one.ranges
        if planned.epoch != look.epoch or planned.start < end
    ]


def _remember(one: Found, look: ChannelLook, end: int, survey: ReadPlanner | None) -> None:
    """What memory has and no recording has. Of what it has no more, that behind all recordings is missing: a recorder may write it yet."""
    key, state = (one.stream, look.epoch), one.state.intervals()
    recorded = intervals.union((survey.held(state) if survey is not None else state).get(key, []))
    behind, oldest = intervals.end_of(recorded), look.oldest()
    spans = [(behind, oldest)] if recorded and behind < oldest else []
    for low, high in intervals.without([(oldest, end)], recorded) if oldest < end else []:
        found = memory.copy(look, low, high, end)
        batches = found.batches
        if found.torn and low == behind and (begun := _begun(one, look.epoch)):
            found = memory.copy(look, min(begun), high, end)
            batches = memory.only(found, low, begun)
            positions = {position for batch in batches for position in batch.column("position").to_pylist()}
            one.from_memory[look.epoch] = frozenset(positions & begun)
        one.kept += [(look, batch) for batch in batches if batch.num_rows]
        spans += [span for span in found.missing if span[0] > low or (recorded and low >= behind)]
    one.missing += [Missing(one.stream, look.epoch, *span) for span in intervals.union(spans)]


def _begun(one: Found, epoch: int) -> set[int]:
    """Where messages begin whose ends no recording has yet."""
    found: set[int] = set()
    for planned in one.ranges:
        if planned.epoch == epoch:
            scanner = planned.scan(["position"])
            scanner.skip()
            found.update(holes(scanner, planned))
    return found


# ---- the columns ----


def _finished(sources: Sources, one: Found) -> StreamCut | Invalid:
    table = None if one.snapshot is None else one.snapshot
    codecs = [planned.codec for planned in one.ranges] + [look.codec for look, _ in one.looks]
    if table is None and codecs and not any(map(has_columns, codecs)):
        return Invalid(
            f"{one.stream} has messages of plain bytes, which have no columns: give its channel a codec, as codec='json'"
        )
    contract: Contract = () if table is None else from_schema(table.schema)
    contract = _sampled(one, contract)
    kind = inner(codecs[0])["kind"] if codecs else ""
    there = [] if table is None else list(table.schema)
    names = {column.name for column in there}
    fields = [*there, *(column for column in of_stream(contract, kind) if column.name not in names)]
    rest: list[Part] = [RangePart(planned, one.from_memory.get(planned.epoch, frozenset())) for planned in one.ranges]
    rest += [MemoryPart(batch, look.codec, look.epoch) for look, batch in one.kept]
    erased = sources.snapshots.erased(one.stream) if rest and sources.snapshots is not None else ()
    ends = {look.epoch: end for look, end in one.looks}
    return StreamCut(one.stream, pa.schema(fields), contract, one.snapshot, one.gone, rest, erased, one.missing, ends)


def _sampled(one: Found, contract: Contract) -> Contract:
    """A contract with what the codecs declare, and with the keys of the first messages of some parts. Other keys that have no column are in
    `_rescued`: the pipeline gives them a column when it reads them."""
    ranges = one.ranges if len(one.ranges) <= SAMPLED else [one.ranges[0], *one.ranges[1 - SAMPLED :]]
    for planned in ranges:
        contract = begun(planned.codec, contract)
        if is_open(planned.codec):
            with contextlib.suppress(PenstockError, OSError):  # damaged: reading it says so
                batch = next(planned.scan(["payload"], batch_rows=SAMPLE), None)
                if batch is not None:
                    contract = decode(planned.codec, contract, batch.column("payload")).contract
    for look, _ in one.looks:
        contract = begun(look.codec, contract)
    for look, batch in [*one.kept[:1], *one.kept[1:][-1:]]:
        if is_open(look.codec):
            for at in sorted({0, max(0, batch.num_rows - SAMPLE)}):
                payload = batch.column("payload").slice(at, SAMPLE)
                contract = decode(look.codec, contract, payload).contract
    return contract
