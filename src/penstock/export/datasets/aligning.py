"""Rows of a training set: the messages of one stream, each with its partner of every other stream, divided into episodes.

Walks all streams at once, each in the order of its times. Decodes nothing but markers; memory holds two messages of each stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock import codecs
from penstock.errors import DecodeError
from penstock.export.datasets.streams import Stream
from penstock.record import TIME_MAX, TIME_MIN, Merged

PICKS = ("latest", "nearest")
WORDS = re.compile(rb"\s*(start|end)(?:\s+(\d{1,18}))?\s*")


class Row(NamedTuple):
    """A row before it is decoded. found: the message of each stream, the aligned one first; None without a partner. lost: for each stream,
    whether messages are lost between the partner and the stream's next one; of the aligned one, in front of its message."""

    episode: int
    time_ns: int
    found: tuple[Merged | None, ...]
    lost: tuple[bool, ...]


class Cursor:
    """A stream that is walked: the last message up to a time, and the one after it."""

    def __init__(self, stream: Stream, messages: Iterator[Merged]) -> None:
        self.stream, self._messages = stream, messages
        self.before: Merged | None = None
        self.after = next(messages, None)

    def move(self, time_ns: int) -> None:
        """Moves to a time: `before` is the last message that was sent up to it."""
        while self.after is not None and self.after.time_ns <= time_ns:
            if self.before is None or self.before.time_ns <= self.after.time_ns:
                self.before = self.after
            self.after = next(self._messages, None)

    def partner(self, time_ns: int, tolerance_ns: int | None, pick: str) -> Merged | None:
        """The message for a row of that time; None if there is none within the tolerance, or if it is not known since a clock stepped back."""
        unsure = self.stream.unsure_from(time_ns)
        if unsure <= time_ns or (self.before is not None and self.before.time_ns > time_ns):
            return None
        found = self.before
        if pick == "nearest" and self.after is not None:
            later = min(self.after.time_ns, unsure) - time_ns
            if found is None or later < time_ns - found.time_ns:
                if unsure < self.after.time_ns and (tolerance_ns is None or later <= tolerance_ns):
                    return None  # a nearer one follows
                found = self.after
        if found is not None and tolerance_ns is not None and abs(found.time_ns - time_ns) > tolerance_ns:
            return None
        return found

    def lost_here(self) -> bool:
        """Whether a loss lies between the two messages: a better partner may have been in it."""
        return self.stream.lost_between(self.before, self.after)


@dataclass
class Episode:
    """A part of the recording between two markers. number: the marker's own. ended: whether its end was marked, or the next one began."""

    number: int | None
    start_ns: int | None
    end_ns: int | None = None
    ended: bool = False


@dataclass
class Episodes:
    """The episodes that a stream of markers tells. Without such a stream, all rows are one episode.

    A marker is `{"event": "start", "episode": 3}` or `{"event": "end"}` in any codec with fields, or the text "start 3" or "end" of a channel of
    bytes. A start ends the episode before it. unread: markers that are neither, as (position, text).
    """

    stream: Stream | None
    until: int = TIME_MAX
    all: list[Episode] = field(default_factory=list)
    unread: list[tuple[int, str]] = field(default_factory=list)
    stray_ends: int = 0
    _open: bool = False

    def __post_init__(self) -> None:
        self._messages = iter(()) if self.stream is None else self.stream.messages(TIME_MIN, self.until)
        self._next: Merged | None = next(self._messages, None)
        if self.stream is None:
            self.all.append(Episode(None, None))
            self._open = True

    def at(self, time_ns: int) -> int | None:
        """The number of the episode, from 0 on, that a row of this time is in. A row at the time of either marker is in it. Where times step back
        behind the start of the episode, the row is in none."""
        while self._next is not None and self._next.time_ns <= time_ns:
            event, number = _read_marker(self._next)
            if event == "end" and self._next.time_ns == time_ns:
                break
            self._take(self._next, event, number)
            self._next = next(self._messages, None)
        if not self._open or time_ns < (self.all[-1].start_ns or time_ns):
            return None
        return len(self.all) - 1

    def finish(self) -> None:
        """Reads the markers behind the last row."""
        self.at(TIME_MAX)

    def _take(self, marker: Merged, event: str | None, number: int | None) -> None:
        if event is None:
            self.unread.append((marker.position, repr(marker.payload[:80])))
            return
        if event == "end" and not self._open:
            self.stray_ends += 1
            return
        if self._open:
            self.all[-1].end_ns, self.all[-1].ended, self._open = marker.time_ns, True, False
        if event == "start":
            self.all.append(Episode(number, marker.time_ns))
            self._open = True


def _read_marker(marker: Merged) -> tuple[str | None, int | None]:
    """("start" or "end", the episode's number if it says one); (None, None) for any other message."""
    if marker.source.codec["kind"] == "bytes":
        found = WORDS.fullmatch(marker.payload)
        return (found[1].decode(), None if found[2] is None else int(found[2])) if found else (None, None)
    try:
        data: Any = codecs.from_spec(marker.source.codec).parse(marker.payload)
    except DecodeError:
        return None, None
    if not isinstance(data, Mapping):
        names = getattr(getattr(data, "dtype", None), "names", None) or ()
        data = {name: data[name].item() for name in names}
    event, number = data.get("event"), data.get("episode")
    event = event.decode(errors="replace") if isinstance(event, bytes) else event
    if event not in ("start", "end"):
        return None, None
    return event, number if isinstance(number, int) and not isinstance(number, bool) else None


def aligned(
    base: Stream,
    others: list[Stream],
    episodes: Episodes,
    *,
    tolerance_ns: int | None,
    pick: str,
    since: int = TIME_MIN,
    until: int = TIME_MAX,
    outside: Outside | None = None,
) -> Iterator[Row]:
    """The rows, in the order of their times. outside: counts messages that are in no episode."""
    low = TIME_MIN if tolerance_ns is None or since == TIME_MIN else max(TIME_MIN, since - tolerance_ns)
    high = until
    if pick == "nearest" and until != TIME_MAX:
        high = TIME_MAX if tolerance_ns is None else min(TIME_MAX, until + tolerance_ns)
    cursors = [Cursor(stream, stream.messages(low, high)) for stream in others]
    last = None
    for message in base.messages(since, until):
        lost_before = base.lost_between(last, message)
        last = message
        for cursor in cursors:
            cursor.move(message.time_ns)
        number = episodes.at(message.time_ns)
        if number is None:
            if outside is not None:
                outside.count += 1
            continue
        partners = [cursor.partner(message.time_ns, tolerance_ns, pick) for cursor in cursors]
        lost = (lost_before, *(cursor.lost_here() for cursor in cursors))
        yield Row(number, message.time_ns, (message, *partners), lost)
    episodes.finish()
    for cursor in cursors:
        cursor.move(TIME_MAX)


@dataclass
class Outside:
    """Counts messages that are in no episode."""

    count: int = 0
