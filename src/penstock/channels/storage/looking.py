"""A look at the messages that a channel keeps in memory. It takes no slot and changes nothing, and no writer waits for it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._native import core as _native
from penstock.channels.arrow import to_batch
from penstock.channels.storage import files, inspection, opening
from penstock.channels.uri.channel import Channel
from penstock.errors import NotFound

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("stream", "session", "position", "time", "timestamp_ns", "payload")
_BITS = sum(_native.RECORDED_COLUMNS[name] for name in COLUMNS)
SLICE = 16 << 20  # positions that are copied at once where only times are asked for


class Copied(NamedTuple):
    """Messages that memory had. end: every message below it was seen: a claim that is not committed may be there. resume: where the first
    message begins that is not whole yet. missing: spans of positions that memory has no more. torn: whether a message begins before the
    copy and ends in it."""

    batches: list[pa.RecordBatch]
    end: int
    resume: int
    missing: list[tuple[int, int]]
    torn: bool


class ChannelLook:
    """A look at one channel, whatever gets its name later. One thread at a time.

    epoch: of the positions. codec: gives it, for those who ask. has_claims: whether programs claim positions before they write, and may die then.
    """

    def __init__(
        self,
        channel: Channel,
        look: _native.Look,
        codec: Callable[[], dict[str, Any]],
        epoch: int,
        *,
        has_claims: bool = True,
    ) -> None:
        self.channel, self.epoch, self.has_claims = channel, epoch, has_claims
        self._look, self._codec = look, codec

    @functools.cached_property
    def codec(self) -> dict[str, Any]:
        """As a recording keeps it."""
        return self._codec()

    def end(self) -> int:
        """The position behind the newest message."""
        return self._look.end()

    @property
    def first(self) -> int:
        """The position at which the channel began."""
        return self._look.start_position

    def oldest(self) -> int:
        """Where the oldest message that is kept begins; the end if there is none."""
        return self._look.oldest()

    def copy(self, start: int, end: int) -> Copied:
        """Whole messages that begin in positions [start, end) and end there, with the columns of `COLUMNS`. start: where a message begins."""
        made, reached, resume, missing = self._look.copy(start, end, _BITS, str(self.channel))
        return Copied([to_batch(one) for one in made], reached, resume, missing, self._look.torn)

    def times(self, start: int, end: int) -> list[tuple[int, int]]:
        """The position and the send time, in ns, of each message of [start, end) that memory has."""
        found: list[tuple[int, int]] = []
        while start < end:
            made, reached = self._look.times(start, min(end, start + SLICE))
            found += made
            if reached <= start:
                break
            start = reached
        return found


def looks_at(channel: Channel) -> list[ChannelLook]:
    """A look at each session that this machine keeps apart; of most kinds one at the channel, if it is there."""
    memory = channel.kind.memory
    if memory is not None and memory.looks is not None:
        return [
            ChannelLook(channel, one.look, partial(getattr, one, "codec"), one.epoch, has_claims=False)
            for one in memory.looks(channel)
        ]
    found = look_at(channel)
    return [] if found is None else [found]


def look_at(channel: Channel) -> ChannelLook | None:
    """A look at the channel that has this name now. None if there is none, if it has no first publication yet, or if messages of its kind
    cannot be looked at."""
    memory = channel.kind.memory
    if memory is None or memory.look is None:
        return None
    try:
        fd = files.open_existing(channel)
    except NotFound:
        return None
    try:
        place = opening.place_of(channel)
        found = inspection.about(channel.kind, fd, place)
        if "open" in found:
            return None
        look = memory.look(fd, place)
        return ChannelLook(
            channel, look, lambda: inspection.description(channel.kind, channel, found)["codec"], look.epoch
        )
    except NotFound:
        return None
    finally:
        os.close(fd)
