"""Tables that were set back go on: their states become what their rows say, and what cannot come back is named.

See docs/design/tables.md, "What a table remembers".
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import PenstockError
from penstock.record import Range, ReadPlanner, intervals
from penstock.record.format.intervals import Interval
from penstock.tables import losses
from penstock.tables.delta.files import File
from penstock.tables.delta.table import Table
from penstock.tables.folder import Folder
from penstock.tables.folder.state import Key, Row, State, Stored, cut_predicate, sql_text
from penstock.tables.reading import gone as absent
from penstock.tables.schemas import signed

GRAIN = 1 << 20  # bytes of a recording whose rows are counted together
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
NONE: Numbers = np.zeros(0, np.int64)


@dataclass
class Found:
    """A table's rows of one epoch of a stream, by position."""

    positions: Numbers = field(default_factory=lambda: NONE)
    recordings: Numbers = field(default_factory=lambda: NONE)

    def part(self, low: int, high: int) -> Found:
        """Those in [low, high)."""
        first, last = np.searchsorted(self.positions, [low, high])
        return Found(self.positions[first:last], self.recordings[first:last])


@dataclass
class Before:
    """The rows that a table had before it was set back. unsure: files of which only the log speaks; None: nothing does."""

    rows: dict[Key, Found] = field(default_factory=dict)
    unsure: list[File] | None = field(default_factory=list)

    def knows(self, key: Key, there: Found) -> bool:
        """Whether all rows of a key are known, or that none are gone."""
        return self.unsure is not None and not any(_may_lack(file, key, there) for file in self.unsure)


def continue_restored(stored: Stored, folder: Folder, survey: ReadPlanner, way: str) -> None:
    """Goes on with a table that was set back. way: `keep` leaves out the rows that are gone, `refill` reads them again. Rows behind cuts,
    and rows that were erased, may have come back with it: they go."""
    before = copy.deepcopy(stored.recalled())
    if stored is folder.losses:
        _continue_losses(stored, folder, survey, before, way)
        return
    assert stored.table is not None
    there = _rows_of(stored.table, stored.table.files())
    for info, cut in survey.cuts:
        if (found := there.get((info.channel, info.epoch))) is not None:
            stays = (found.recordings != info.id) | (found.positions < cut.position)
            there[info.channel, info.epoch] = Found(found.positions[stays], found.recordings[stays])
    gone = _refill(stored, survey, there, folder.damaged) if way == "refill" else _keep(stored, survey, there, before)
    if gone:
        stored.table.check_replacing()  # nothing goes that cannot come again
    for info, cut in survey.cuts:
        if stored is folder.messages or info.channel == stored.name:
            gone.append(cut_predicate(info, cut))
            for state in (stored.state, before):
                if cut.token not in state.cuts:
                    state.forget(info, cut)
    if way == "refill":
        held = {key: intervals.union(parts) for key, parts in survey.held(None).items()}
        mine = stored.state.intervals()
        for key, parts in sorted(before.intervals().items()):
            lost = intervals.without(parts, intervals.union(mine.get(key, []), held.get(key, [])))
            _tell(folder, stored, key, lost, "bytes")
    gone += (erased := folder.erased_since(stored, 0))
    stored.state.erased = len(folder.erased)
    if erased:
        folder.forget({*folder.to_forget, stored.folder})
    stored.accept(gone)


def _tell(folder: Folder, stored: Stored, key: Key, lost: Sequence[Interval], what: str) -> None:
    if lost:
        parts = f" (in {len(lost)} parts)" if len(lost) > 1 else ""
        folder.damaged.append(
            f"{stored.place}: {intervals.total(lost)} {what} of {key[0]} from position {lost[0][0]} to {lost[-1][1]}{parts} were not brought "
            "back: the archive has them no more"
        )


# ---- messages ----


def _refill(stored: Stored, survey: ReadPlanner, there: dict[Key, Found], damaged: list[str]) -> list[str]:
    """The state of a table follows from its rows: ranges of the archive whose rows are not all there are read again. SQL of what is there
    of them: it must go in the commit that has the state. damaged: gets what cannot be read again."""
    done: list[Row] = []
    gone: list[str] = []
    planned: dict[Key, list[Interval]] = {}
    for part in survey.plan(range_bytes=GRAIN):
        planned.setdefault((part.channel, part.epoch), []).append((part.start, part.end))
        found = there.get((part.channel, part.epoch), Found()).part(part.start, part.end)
        count = len(found.positions)
        if count and count == part.messages:
            done += _read(part.channel, part.epoch, found, part.start, part.end)
        elif count and len(readable := _readable(part)) == part.messages:
            gone.append(_predicate(part.channel, part.epoch, part.start, part.end))
        elif count:  # rows of messages that are damaged now stay
            known = np.union1d(readable, found.positions)
            for low, high in _proven(known, found.positions, part.start, part.end, is_sure=True):
                done += _read(part.channel, part.epoch, found, low, high)
            if (lost := part.messages - len(known)) > 0:
                damaged.append(
                    f"{stored.place}: {lost} messages of {part.channel} from position {part.start} to {part.end} were not brought back: they "
                    "are damaged in the archive"
                )
    done += _not_in_archive(stored.state, there, planned, _before(stored))
    stored.state.done = done
    stored.state.cover()  # neighbours as one
    return gone


def _readable(part: Range) -> Numbers:
    """The positions of a range's messages that the archive can give."""
    found = [NONE]
    with contextlib.suppress(PenstockError, OSError):
        found += [batch.column("position").to_numpy() for batch in part.scan(["position"])]
    return np.concatenate(found)


def _keep(stored: Stored, survey: ReadPlanner, there: dict[Key, Found], before: State) -> list[str]:
    """Rows that are gone count as read. SQL of rows of which the state does not know: they are read again."""
    gone: list[str] = []
    stored.state = copy.deepcopy(before)
    planned: dict[Key, list[Interval]] = {}
    for part in survey.plan(range_bytes=GRAIN):
        planned.setdefault((part.channel, part.epoch), []).append((part.start, part.end))
    known = before.intervals()
    for key, parts in planned.items():
        for low, high in intervals.without(intervals.union(parts), known.get(key, [])):
            if key in there and len(there[key].part(low, high).positions):
                gone.append(_predicate(*key, low, high))
    stored.state.done += _unknown(there, planned, known)
    stored.state.cover()
    return gone


def _not_in_archive(
    state: State, there: dict[Key, Found], planned: Mapping[Key, list[Interval]], before: Before
) -> list[Row]:
    """What a table has of positions that the archive has no more, or that are another archive's."""
    made: list[Row] = []
    held = {key: intervals.union(parts) for key, parts in planned.items()}
    for row in state.done:
        key = (row["channel"], row["epoch"])
        mine = there.get(key, Found())
        is_sure = before.knows(key, mine)
        for low, high in intervals.without([(row["start"], row["end"])], held.get(key, [])):
            known = np.union1d(mine.part(low, high).positions, before.rows.get(key, Found()).part(low, high).positions)
            kept = _proven(known, mine.positions, low, high, is_sure=is_sure)
            made += [{**row, "start": start, "end": end} for start, end in kept]
    return made + _unknown(there, planned, state.intervals())


def _unknown(
    there: Mapping[Key, Found], planned: Mapping[Key, list[Interval]], known: Mapping[Key, list[Interval]]
) -> list[Row]:
    """The positions of rows that neither the archive has nor a state knows, from the first to the last of them."""
    made: list[Row] = []
    for key, found in there.items():
        covered = intervals.union(planned.get(key, []), known.get(key, []))
        for low, high in intervals.without([(0, 1 << 63)], covered) if len(found.positions) else ():
            mine = found.part(low, high)
            if len(mine.positions):
                made += _read(*key, mine, int(mine.positions[0]), int(mine.positions[-1]) + 1)
    return made


def _proven(known: Numbers, mine: Numbers, low: int, high: int, *, is_sure: bool) -> list[Interval]:
    """The positions in [low, high) that rows prove to be there, in order. known: where messages begin; mine: of which there are rows. A message
    reaches to the next known one. is_sure: there are no others; else those before the first and behind the last may be gone."""
    if not len(known):
        return [(low, high)] if is_sure else []
    begins = known.copy()
    ends = np.append(known[1:], high if is_sure else known[-1] + 1)
    if is_sure:
        begins[0] = low
    is_mine = np.isin(known, mine)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_mine, [False])).astype(np.int8)))
    return [(int(begins[first]), int(ends[last - 1])) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def _read(channel: str, epoch: int, found: Found, low: int, high: int) -> list[Row]:
    """Positions that were read, each from the recording that its row names."""
    mine = found.part(low, high)
    begins = np.flatnonzero(np.diff(mine.recordings, prepend=-1))
    starts = [low, *mine.positions[begins[1:]].tolist()]
    of = mine.recordings[begins].tolist()
    return [
        {"channel": channel, "epoch": epoch, "recording": recording, "start": start, "end": end}
        for recording, start, end in zip(of, starts, [*starts[1:], high], strict=True)
    ]


def _predicate(channel: str, epoch: int, low: int, high: int) -> str:
    return f"stream = {sql_text(channel)} AND epoch = {signed(epoch)} AND position >= {low} AND position < {high}"


# ---- losses ----


def _continue_losses(stored: Stored, folder: Folder, survey: ReadPlanner, before: State, way: str) -> None:
    """The same for the table of losses. Its rows say which losses it has told."""
    known = stored.state if way == "refill" else before
    stored.state = replace(known, told=losses.told_by_rows(stored, known.told, is_all=way == "keep"))
    if way == "refill":
        mine, again = (
            losses.by_stream(stored.state.told),
            losses.by_stream(
                [
                    {"channel": one.channel, "epoch": one.epoch, "start": one.start, "end": one.end}
                    for one in survey.lost()
                ]
            ),
        )
        held = {key: intervals.union(parts) for key, parts in survey.held(None).items()}
        for key, parts in sorted(losses.by_stream(before.told).items()):
            others = [found.get(key, []) for found in (mine, again, held)]
            _tell(folder, stored, key, intervals.without(parts, intervals.union(*others)), "lost bytes")
    stored.accept([])


# ---- rows ----


def _before(stored: Stored) -> Before:
    """What a table had before the first RESTORE of which its state does not know. Of a backup that was put back the state itself speaks."""
    assert stored.table is not None
    for version, operation in stored.table.operations(stored.state.seen):
        if operation is None:
            return Before(unsure=None)
        if operation == "RESTORE":
            try:
                then = Table.open(stored.place, version - 1)
            except PenstockError:
                then = None
            if then is None:
                return Before(unsure=None)
            there = {file.path for file in stored.table.files()}
            missing: list[File] = []
            return Before(_rows_of(then, [file for file in then.files() if file.path not in there], missing), missing)
    return Before()


def _rows_of(table: Table, files: Iterable[File], missing: list[File] | None = None) -> dict[Key, Found]:
    """The rows of files by their key. missing: gets files that are not there."""
    parts: dict[Key, list[Found]] = {}
    for file in files:
        try:
            source = table.place.fs.open_input_file(table.place.file(file.path))
        except FileNotFoundError as error:
            if missing is None:
                raise absent(table, file) from error
            missing.append(file)
            continue
        with source:
            rows = pq.read_table(source, columns=["stream", "epoch", "recording", "position"], partitioning=None)
        streams = rows["stream"].cast(pa.string())  # other writers' files have views of texts
        for stream in pc.unique(streams).to_pylist():
            mine = rows.drop_columns("stream").filter(pc.equal(streams, stream))
            epochs, recordings, positions = (mine[name].to_numpy() for name in ("epoch", "recording", "position"))
            for epoch in np.unique(epochs).tolist():
                of = epochs == epoch
                parts.setdefault((stream, epoch % (1 << 64)), []).append(Found(positions[of], recordings[of]))
    made: dict[Key, Found] = {}
    for key, some in parts.items():
        positions = np.concatenate([one.positions for one in some])
        order = np.argsort(positions, kind="stable")
        made[key] = Found(positions[order], np.concatenate([one.recordings for one in some])[order])
    return made


def _may_lack(file: File, key: Key, there: Found) -> bool:
    """Whether a file may have had rows of a key that the table has no more, by the file's statistics."""
    bounds = []
    for name, value in (("stream", key[0]), ("epoch", signed(key[1]))):
        low, high = file.low.get(name), file.high.get(name)
        if low is None or high is None:
            return True
        if not low <= value <= high:
            return False
        bounds.append(low == high)
    low, high = file.low.get("position"), file.high.get("position")
    if not all(bounds) or low is None or high is None:
        return True
    return len(there.part(int(low), int(high) + 1).positions) < file.rows
