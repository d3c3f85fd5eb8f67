"""What a table's log says of one version. The log is opened again where another program cleans it while it is read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import Busy, Corrupt, PenstockError
from penstock.tables.delta.places import LOG, Place
from penstock.tables.delta.transactions import app_of, load_deltalake
from penstock.util.errors_in_text import in_one_line

if TYPE_CHECKING:
    from deltalake import DeltaTable

ATTEMPTS = 5  # of a commit between which others commit, and of reading a log that others clean


class Snapshot:
    """The log of a table, at a version."""

    def __init__(self, place: Place, found: DeltaTable) -> None:
        self.place, self._found = place, found

    @property
    def version(self) -> int:
        """The snapshot's version: it rises with each commit."""
        return self._found.version()

    def mark(self, app: str) -> int | None:
        """The version of an application's last transaction."""
        return cast("int | None", self._ask(lambda found: found.transaction_version(app)))

    def is_by(self, owner: str) -> bool:
        """Whether a pipeline made it."""
        return self.mark(app_of(owner)) is not None

    def _ask(self, ask: Callable[[DeltaTable], Any], attempts: int = ATTEMPTS) -> Any:
        """What the log answers. `Busy` if it has another version by then."""
        deltalake = load_deltalake()
        try:
            return ask(self._found)
        except (deltalake.exceptions.DeltaError, OSError) as error:
            if not was_cleaned(error):
                raise Corrupt(f"the log of {self.place} cannot be read: {in_one_line(error)}") from error
            again = opened(self.place)
            if again.version() != self.version or attempts == 1:
                raise Busy(
                    f"another program changed the log of {self.place} while it was read: run it again"
                ) from error
        self._found = again
        return self._ask(ask, attempts - 1)

    def _refresh(self) -> None:
        """Goes on to the newest version."""
        try:
            with self._altering():
                self._found.update_incremental()
        except PenstockError as error:
            if not was_cleaned(error):
                raise
            self._found = opened(self.place)

    @contextlib.contextmanager
    def _altering(self) -> Iterator[None]:
        """Within it, errors of the log are this library's."""
        deltalake = load_deltalake()
        try:
            yield
        except (deltalake.exceptions.DeltaError, OSError) as error:
            kind = Busy if isinstance(error, deltalake.exceptions.CommitFailedError) else PenstockError
            raise kind(f"the commit to {self.place} failed: {in_one_line(error)}") from error


def opened(place: Place, version: int | None = None, attempts: int = ATTEMPTS) -> DeltaTable:
    """A table's log, as delta-rs has it; with its errors."""
    from deltalake import DeltaTable, exceptions

    try:
        return DeltaTable(str(place), version=version, storage_options=place.storage_options)
    except exceptions.DeltaError as error:
        if version is not None or not was_cleaned(error) or attempts == 1:
            raise
    return opened(place, version, attempts - 1)


def was_cleaned(error: Exception) -> bool:
    """Whether a file of the log was gone between listing and reading."""
    return LOG in str(error) and "not found" in str(error).lower()
