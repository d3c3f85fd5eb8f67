"""The tables of streams as a query finds them: one version of each, with what its state says. Opened again only after a commit.

Knows tables; knows no archive and no channel.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import NotFound
from penstock.tables.delta.files import File
from penstock.tables.delta.places import Place
from penstock.tables.delta.table import Table
from penstock.tables.folder import erased_spans, read_erased
from penstock.tables.folder.state import WAYS, Restored, State, has_version, set_back, stamp
from penstock.tables.reading import files_of, open_table, streams


@dataclass(frozen=True)
class Snapshot:
    """A stream's table at one version. erased: spans of send times that were erased from the folder after it."""

    table: Table
    schema: pa.Schema
    state: State
    files: list[File]
    erased: tuple[tuple[int, int], ...]

    def copy_state(self) -> State:
        """The state, for a caller that changes it."""
        return copy.deepcopy(self.state)


class Snapshots:
    """A folder of tables. Any thread."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._known: dict[str, tuple[Snapshot, list[int] | None]] = {}

    def streams(self) -> list[str]:
        """The streams that have a table."""
        return sorted(streams(self.place))

    def of(self, stream: str) -> Snapshot | None:
        """A stream's table as it is now; None if it has none."""
        known = self._known.get(stream)
        if known is None or known[1] is None or known[1] != _stamp(known[0].table):
            try:
                table = open_table(self.place, stream)
            except NotFound:
                self._known.pop(stream, None)
                return None
            state = State.of(table.state())
            if how := set_back(table, state, state.seen):  # its state knows rows as read that are gone
                raise Restored(f"{table.place} was set back: {how}. {WAYS}")
            known = Snapshot(table, table.schema, state, files_of(table), ()), _stamp(table)
            self._known[stream] = known
        found = known[0]
        return replace(found, erased=self._erased(stream, found.state.erased))

    def erased(self, stream: str) -> tuple[tuple[int, int], ...]:
        """All spans of send times that were erased of a stream."""
        return self._erased(stream, 0)

    def is_newest(self, snapshot: Snapshot) -> bool:
        """Whether the table has had no commit since."""
        table = snapshot.table
        if table.place.is_local:
            return not has_version(table.place, table.version + 1)
        again = Table.open(table.place)
        return again is not None and again.version == table.version

    def _erased(self, stream: str, followed: int) -> tuple[tuple[int, int], ...]:
        return tuple(erased_spans(read_erased(self.place)[0][followed:], stream))


def _stamp(table: Table) -> list[int] | None:
    """The same as long as the table has no other commit. None where that is not known: then it is opened again."""
    if not table.place.is_local or has_version(table.place, table.version + 1):
        return None
    return stamp(table.place, table.version)
