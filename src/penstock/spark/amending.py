"""Changes of rows that are in *messages* already: losses that another recording made good, the time since a message that came later,
and rows behind a cut. Reads the ledger; the work itself is tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from penstock.record import Lost, Range, ReadPlanner, assign_losses, subtract
from penstock.spark.ledger import Interval, Key, Ledger, Row, key_of


@dataclass
class Amendment:
    """Changes to one file; see `tasks`."""

    entry: Row
    below: int | None = None
    lost: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)

    def task(self, ledger: Ledger) -> Row:
        """The task that does it."""
        return {
            "kind": "amend",
            "stream": self.entry["channel"],
            "place": str(ledger.place),
            "entry": self.entry,
            "below": self.below,
            "lost": {str(at): lost for at, lost in self.lost.items()},
            "before": {str(at): time for at, time in self.before.items()},
        }


class Amendments:
    """Changes by file: each is rewritten once."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self._of = ledger, dict[str, Amendment]()

    def of(self, entry: Row) -> Amendment:
        """The changes of a file, to be added to."""
        return self._of.setdefault(entry["path"], Amendment(entry))

    def tasks(self) -> list[Row]:
        """A task for each file."""
        return [one.task(self.ledger) for one in self._of.values()]


class Losses:
    """Which row tells which loss. A loss that another recording makes good later is told no more; one that no message follows yet
    waits, and *stats* has it.

    The ledger changes in `settle` alone, so that a killed run begins again from what the files say.
    """

    def __init__(self, ledger: Ledger, survey: ReadPlanner) -> None:
        self._ledger = ledger
        held = survey.held(ledger.intervals())
        missing: dict[Key, list[tuple[int, int, int]]] = {}
        for gap in survey.lost(ledger.intervals()):
            missing.setdefault((gap.channel, gap.epoch), []).append((gap.start, gap.end, gap.noted_ns))
        self._shrunk: list[Row] = []
        self._told: list[Row] = []
        for row in ledger.told:
            parts = subtract((row["start"], row["end"]), held.get(key_of(row), []))
            if parts != [(row["start"], row["end"])]:
                self._shrunk.append(row)
            self._told += [{**row, "start": low, "end": high} for low, high in parts if high == row["end"]]
        self.waiting: list[Lost] = []
        for key, gaps in missing.items():
            known = [(row["start"], row["end"]) for row in self._told if key_of(row) == key]
            for start, end, noted in gaps:
                self.waiting += [Lost(*key, *part, noted) for part in subtract((start, end), known)]

    def assign(self, ranges: list[Range]) -> list[Any]:
        """For each range the losses that its rows are to tell."""
        return list(assign_losses(self.waiting, ranges))

    def tell(self, rows: list[Row]) -> None:
        """Losses that new rows tell."""
        self._told += rows
        self._ledger.told += rows

    def settle(self) -> Amendments:
        """After ranges were written: rows that tell less than before are changed; losses that no row tells wait."""
        ledger, changes = self._ledger, Amendments(self._ledger)
        for row in self._shrunk:
            for gap in self.waiting:  # parts whose row was there already
                inside = (gap.channel, gap.epoch) == key_of(row) and row["start"] <= gap.start and gap.end <= row["end"]
                if inside and not self._is_told(gap):
                    self._told.append({**row, "start": gap.start, "end": gap.end})
            entry = entry_of(ledger, key_of(row), row["at"])
            if entry is not None:
                total = sum(
                    one["end"] - one["start"]
                    for one in self._told
                    if key_of(one) == key_of(row) and one["at"] == row["at"]
                )
                changes.of(entry).lost[row["at"]] = total
        waiting = [[gap.channel, gap.noted_ns, gap.end - gap.start] for gap in self.waiting if not self._is_told(gap)]
        if ledger.told != self._told or ledger.waiting != waiting:
            ledger.told, ledger.waiting = self._told, waiting
            ledger.changed()
        return changes

    def _is_told(self, gap: Lost) -> bool:
        return any(
            key_of(row) == (gap.channel, gap.epoch) and row["start"] <= gap.start and gap.end <= row["end"]
            for row in self._told
        )


def entry_of(ledger: Ledger, key: Key, position: int) -> Row | None:
    """The file of *messages* with the row at a position: messages that were completed later have their own."""
    found = [row for row in ledger.files.values() if key_of(row) == key and row["start"] <= position < row["end"]]
    found.sort(key=lambda row: row["end"] - row["start"])
    if len(found) > 1:
        found = [row for row in found if _rows(ledger, row, position, position + 1)]
    return found[0] if found else None


def follow(ledger: Ledger, there: dict[Key, list[Interval]], answers: list[Row], changes: Amendments) -> None:
    """Rows that were there before what comes right in front of them get the time since that. there: the intervals that were."""
    for answer in answers:
        for _, end in answer["done"].get("messages", [])[-1:]:
            key, reach = key_of(answer["source"]), end
            for low, high in sorted(there.get(key, [])):
                reach = high if low <= reach < high else reach
            if reach == end or not answer["last"]:
                continue
            near = [
                row for row in ledger.files.values() if key_of(row) == key and row["start"] < reach and row["end"] > end
            ]
            found = [(*one, row["path"]) for row in near for one in _rows(ledger, row, end, reach)[:1]]
            if found:
                position, time, interval, path = min(found)
                if interval != time - answer["last"][1]:
                    changes.of(ledger.files[path]).before[position] = answer["last"][1]


def _rows(ledger: Ledger, row: Row, start: int, end: int) -> list[tuple[int, int, int | None]]:
    """(position, send time, time since the message before) of a file's rows in [start, end), by position."""
    with ledger.place.fs.open_input_file(ledger.place.file(row["path"])) as source:
        found = pq.read_table(
            source,
            columns=["position", "timestamp_ns", "interval_ns"],
            filters=[("position", ">=", start), ("position", "<", end)],
            partitioning=None,
        )
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))
