"""Names of tables in SQL: the built-in ones, a user's own, and the streams, by their channel or their table's name. Knows no file and no Spark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from penstock.columns.parts import table_name
from penstock.errors import Invalid

BUILT_IN = ("messages", "losses", "stats")
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quoted(name: str, quote: str = "`") -> str:
    """A name as SQL writes it."""
    return name if PLAIN.fullmatch(name) else quote + name.replace(quote, quote * 2) + quote


class Names:
    """All names that a query may use: a stream's are its channel and its table's name. A user's table hides a stream's table."""

    def __init__(self, streams: Iterable[str], own: Iterable[str] = ()) -> None:
        self._streams = sorted(streams)
        self._plain = {table_name(stream): stream for stream in self._streams}
        self._tables = {name.lower(): name for name in (*own, *BUILT_IN)}

    def find(self, name: str) -> str | None:
        """The table or channel of a name, or None. `Invalid` for a channel in another case that several streams could be.

        Case is ignored, as in Spark, where no channel is written exactly so.
        """
        low = name.lower()
        if low in self._tables:
            return self._tables[low]
        if name in self._streams:
            return name
        found = [stream for stream in self._streams if stream.lower() == low]
        if len(found) > 1:
            raise Invalid(f"{name} may be {' or '.join(found)}: write one of them in backticks")
        return found[0] if found else self._plain.get(low)

    def like(self, name: str) -> str:
        """A hint for a name that is not there."""
        every = [*self._tables.values(), *self._plain, *self._streams]
        close = difflib.get_close_matches(name.lower(), every, 3, 0.5)
        if close:
            return f"; there is {', '.join(map(quoted, close))}"
        return f"; there are {', '.join(map(quoted, every[:8]))}{', …' if len(every) > 8 else ''}"

    def shown(self) -> list[tuple[str, str]]:
        """(name in queries, table or channel) of all, streams under both of their names."""
        found = [(name, name) for name in (*BUILT_IN, *(n for n in self._tables.values() if n not in BUILT_IN))]
        for plain, stream in self._plain.items():
            found.append((stream, stream))
            if plain not in self._tables:
                found.append((plain, stream))
        return found
