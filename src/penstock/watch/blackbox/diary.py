"""The diary of a black box: what fired and what became of it, as messages of one recording in the archive. Knows no trigger and no channel."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.record.archive import Archive
from penstock.record.write.snapshot import Snapshot
from penstock.watch.blackbox.calls import escape_surrogates

log = logging.getLogger("penstock")

SECOND = 10**9
DIARY = "log:penstock/triggers"  # a recording with a message for each firing
DIARY_SECONDS = 1.0  # between two writes; a trigger's firings in it are one message
NOTE_MAX = 2000
FIELDS = ("trigger", "note", "count", "snapshot", "outcome")


@dataclass
class Firing:
    """A trigger that fired `count` times in a second; the note is the first one's.

    snapshot: whether it began one. extends: whether it extended the one that was being taken. Neither: it came in the cool-down, or right after one that failed. outcome: of the
    snapshot that it began, in words, in a message of its own with a count of 0; else empty.
    """

    trigger: str
    note: str
    time_ns: int
    count: int = 1
    snapshot: bool = False
    extends: bool = False
    outcome: str = ""


class Diary:
    """Collects firings, and appends them to the archive. One thread at a time."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._rows: list[Firing] = []
        self.due: float | None = None  # when it is to be written, by the monotonic clock; None: nothing is new

    def add(self, firing: Firing) -> None:
        """Has a firing written soon."""
        if self.due is None:
            self.due = time.monotonic() + DIARY_SECONDS
        self._rows.append(firing)

    def add_outcome(self, firing: Firing, text: str) -> None:
        """Has it written what became of the snapshot that a firing began."""
        outcome = escape_surrogates(text)[:NOTE_MAX]
        self.add(Firing(firing.trigger, firing.note, time.time_ns(), 0, snapshot=True, outcome=outcome))

    def has(self, firing: Firing) -> bool:
        """Whether it was written that this firing began a snapshot."""
        try:
            rows = list(self.archive.replay(DIARY, since=firing.time_ns, until=firing.time_ns))
        except PenstockError:  # there is none yet
            return False
        return any(row.data.get("trigger") == firing.trigger and row.data.get("snapshot") for row in rows)

    def write(self) -> None:
        """Appends the firings since the last time."""
        rows, self._rows, self.due = self._rows, [], None
        merged: list[Firing] = []
        for one in rows:  # a trigger that fires often has one message for many firings
            last = merged[-1] if merged else None
            near = last is not None and one.time_ns - last.time_ns < DIARY_SECONDS * SECOND and not last.outcome
            if last is not None and near and not one.snapshot and last.trigger == one.trigger:
                last.count += one.count
            else:
                merged.append(one)
        messages = [{name: getattr(one, name) for name in FIELDS} for one in merged]
        try:
            self.archive.append(DIARY, messages, codec="json", times_ns=[one.time_ns for one in merged])
        except (PenstockError, OSError) as error:
            log.warning("the black box could not note %d firings: %s", sum(one.count for one in rows), error)


def tell_result(result: Snapshot | PenstockError) -> str:
    """The outcome of a snapshot, in words."""
    if isinstance(result, PenstockError):
        return f"no snapshot: {result}"
    numbers = ", ".join(str(part.recording) for part in result.parts)
    done = (
        f"in the recordings {numbers}"
        if numbers
        else "no snapshot: memory has no message of these channels from that time"
    )
    lacks = [f"{part.channel}: memory had only {part.held:.1f} s of it" for part in result.short]
    return "; ".join([done, *lacks, *result.left_out])
