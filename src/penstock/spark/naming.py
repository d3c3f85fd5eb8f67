"""Names of tables in SQL: the built-in ones, a user's own, and the streams, by their channel or a short name. Knows no file and no Spark."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable

from penstock.errors import Invalid

BUILT_IN = ("raw", "messages", "stats")
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def short_name(channel: str) -> str:
    """A channel as a plain word of SQL: `log:drive.speed` is drive_speed."""
    return re.sub(r"[^a-z0-9_]", "_", channel.partition(":")[2].lower()) or "_"


def quoted(name: str, quote: str = "`") -> str:
    """A name as SQL writes it."""
    return name if PLAIN.fullmatch(name) else quote + name.replace(quote, quote * 2) + quote


class Names:
    """All names that a query may use. A user's table hides a stream's short name; a channel is always itself."""

    def __init__(self, streams: Iterable[str], own: Iterable[str] = ()) -> None:
        self._streams = sorted(streams)
        self._tables = {name.lower(): name for name in (*own, *BUILT_IN)}
        self._short: dict[str, list[str]] = {}
        for stream in self._streams:
            self._short.setdefault(short_name(stream), []).append(stream)

    def find(self, name: str) -> str | None:
        """The table or channel of a name, or None. `Invalid` if it is short for several streams. Case is ignored, as in Spark."""
        low = name.lower()
        if low in self._tables:
            return self._tables[low]
        exact = [stream for stream in self._streams if stream == name] or [s for s in self._streams if s.lower() == low]
        found = exact or self._short.get(low, [])
        if len(found) > 1:
            raise Invalid(f"{name} may be {' or '.join(found)}: write one of them in backticks")
        return found[0] if found else None

    def like(self, name: str) -> str:
        """A hint for a name that is not there."""
        every = [*self._tables.values(), *self._short, *self._streams]
        close = difflib.get_close_matches(name.lower(), every, 3, 0.5)
        if close:
            return f"; there is {', '.join(map(quoted, close))}"
        return f"; there are {', '.join(map(quoted, every[:8]))}{', …' if len(every) > 8 else ''}"

    def shown(self) -> list[tuple[str, str]]:
        """(name in queries, table or channel) of all, streams under both of their names."""
        once = Counter(short_name(stream) for stream in self._streams)
        found = [(name, name) for name in (*BUILT_IN, *(n for n in self._tables.values() if n not in BUILT_IN))]
        for stream in self._streams:
            found.append((stream, stream))
            short = short_name(stream)
            if once[short] == 1 and short not in self._tables:
                found.append((short, stream))
        return found
