"""Counts of an MCAP file's messages, channel by channel, from its first reading."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.record import TIME_MAX


class Tally:
    """Counts the messages of each channel of a file, and the parts of them that a recording does not keep."""

    def __init__(self, span: tuple[int, int]) -> None:
        self._since, self._until = span
        self.counts = np.zeros(
            (4, 1 << 16), np.int64
        )  # in the span, too late, with a publish time or its own sequence number
        self._counted: dict[
            int, tuple[int, int, int]
        ] = {}  # channel → its first sequence number or -1, messages, the last time

    def look(self, fields: np.ndarray[Any, Any]) -> None:
        """Some messages more."""
        inside = self.in_span(fields["log"])
        late = (fields["log"] > np.uint64(TIME_MAX)) & (self._until == TIME_MAX)
        published, sequenced = inside & (fields["publish"] != fields["log"]), inside & (fields["sequence"] != 0)
        for row, chosen in zip(self.counts, (inside, late, published, sequenced), strict=True):
            found = np.bincount(fields["channel"][chosen])
            row[: len(found)] += found
        for number in np.unique(fields["channel"]).tolist():
            chosen = fields["channel"] == number
            had, log = fields["sequence"][chosen].astype(np.int64), fields["log"][chosen]
            first, count, before = self._counted.get(number, (int(had[0]), 0, 0))
            due = first + count + np.arange(len(had))
            if (had != due).any() or log[0] < before or (log[1:] < log[:-1]).any():
                first = -1
            self._counted[number] = first, count + len(had), int(log[-1])

    def first_sequence(self, number: int) -> int | None:
        """0 or 1 if a channel's sequence numbers only count its messages from there, and all of them are in the span."""
        first, count, _ = self._counted.get(number, (-1, 0, 0))
        return first if first in (0, 1) and self.counts[0, number] == count and self.counts[3, number] else None

    def in_span(self, log: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Selects the log times that are requested and that a recording can have."""
        if self._until < 0:
            return np.zeros(len(log), bool)
        found: np.ndarray[Any, Any] = (log >= np.uint64(max(self._since, 0))) & (log <= np.uint64(self._until))
        return found

    def total(self, chosen: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The counts of some channels together."""
        found: np.ndarray[Any, Any] = self.counts[:, chosen].sum(axis=1)
        return found
