"""Names of streams in a query: the channel, its table's name, or the channel without its kind where one stream alone has that."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from penstock.channels.uri.value import AnyChannel, uri_of
from penstock.columns.parts import table_name
from penstock.errors import Invalid


class StreamNames:
    """All names that a query may use."""

    def __init__(self, streams: Iterable[str]) -> None:
        self.streams = sorted(streams)
        self._found: dict[str, set[str]] = {}
        for stream in self.streams:
            for name in (stream, table_name(stream), stream.partition(":")[2]):
                self._found.setdefault(name.lower(), set()).add(stream)

    def find(self, name: AnyChannel) -> str | None:
        """The stream of a name; None if there is none. `Invalid` for a name that several streams have. Case is ignored where no channel is
        written exactly so."""
        name = uri_of(name)
        if not isinstance(name, str):
            raise Invalid(f"a stream is named by a string such as 'log:imu', not by {type(name).__name__}")
        if name in self.streams:
            return name
        found = sorted(self._found.get(name.lower(), ()))
        if len(found) > 1:
            raise Invalid(f"{name} may be {' or '.join(found)}: write one of them in quotes")
        return found[0] if found else None

    def of(self, stream: str) -> list[str]:
        """The names that are this stream's alone, also for an engine that ignores case."""
        names = dict.fromkeys((stream, table_name(stream), stream.partition(":")[2]))
        return [name for name in names if self._found.get(name.lower()) == {stream}]

    def like(self, name: AnyChannel) -> str:
        """A hint for a name that is not there."""
        every = [*self.streams, *(table_name(stream) for stream in self.streams)]
        found = difflib.get_close_matches(str(name).lower(), every, 6, 0.5)
        close = list(dict.fromkeys(self.find(one) or one for one in found))[:3] or self.streams[:8]
        return f"; there is {', '.join(close)}" if close else "; there is no stream at all"
