"""Messages of several blocks in the order of their log times, by NumPy: only blocks that overlap in time are in memory together."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np


class Part(NamedTuple):
    """Messages of a block: where each begins and ends in `data`, and its fields."""

    data: bytes
    begins: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]
    fields: np.ndarray[Any, Any]

    def without(self, channels: Collection[int]) -> Part:
        """The messages of all other channels."""
        if not channels:
            return self
        kept = ~np.isin(self.fields["channel"], list(channels))
        return Part(self.data, self.begins[kept], self.ends[kept], self.fields[kept])


def due_before(waiting: list[tuple[int, Part]], until: int) -> Iterator[Part]:
    """The messages that are due before a time, in their order: runs of messages of one block. Those that are not stay in `waiting`."""
    waiting.sort(key=lambda one: one[0])
    due: list[tuple[int, np.ndarray[Any, Any]]] = []
    for number, (offset, part) in enumerate(waiting):
        ready = part.fields["log"] < until if until < 1 << 64 else np.ones(len(part.fields), bool)
        due.append((number, np.flatnonzero(ready)))
        if not ready.all():
            waiting[number] = offset, part
    logs = np.concatenate([waiting[number][1].fields["log"][rows] for number, rows in due])
    owners = np.concatenate([np.full(len(rows), number) for number, rows in due])
    rows = np.concatenate([rows for _, rows in due])
    order = np.argsort(logs, kind="stable")
    owners, rows = owners[order], rows[order]
    cuts = np.flatnonzero(np.diff(owners)) + 1
    for run_owners, run_rows in zip(np.split(owners, cuts), np.split(rows, cuts), strict=True):
        if len(run_rows):
            part = waiting[int(run_owners[0])][1]
            yield Part(part.data, part.begins[run_rows], part.ends[run_rows], part.fields[run_rows])
    for number, taken in due:
        offset, part = waiting[number]
        rest = np.ones(len(part.fields), bool)
        rest[taken] = False
        waiting[number] = offset, Part(part.data, part.begins[rest], part.ends[rest], part.fields[rest])
    waiting[:] = [one for one in waiting if len(one[1].fields)]
