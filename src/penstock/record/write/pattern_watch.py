"""Opens a writer for each channel that matches a pattern: those that exist when a recorder begins, and those that appear later.

Knows no folder and no channel: it gets the channels' names and a function that opens a writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from penstock.channels.uri.channel import parse
from penstock.errors import NotFound, PenstockError
from penstock.record.write.writer import PendingStreams, PendingWriter, RecordingWriter

log = logging.getLogger("penstock")


class ChannelSource(Protocol):
    """Reports channels as they appear."""

    def new(self) -> list[str]:
        """The channels that appeared since the last call."""
        ...


def open_named(
    named: Collection[str],
    made: list[RecordingWriter | PendingWriter],
    open: Callable[[str], RecordingWriter | PendingWriter | None],
) -> list[str]:
    """Adds the writers of channels that are named to `made`. Returns the channels to wait for: a frames channel is unknown until
    its publication exists."""
    awaited = []
    for channel in named:
        try:
            made += filter(None, [open(channel)])
        except NotFound:
            if not parse(channel).kind.by_reference:
                raise
            awaited.append(channel)
    return awaited


class PatternWatch:
    """Opens writers of channels as they appear. A channel that cannot be recorded is skipped, with a warning in the log.

    made: the writers that there are. Their channels are opened again only when others have their names. start: None if `discovery` has told the
    channels that exist at first.
    """

    def __init__(
        self,
        discovery: ChannelSource,
        made: Iterable[RecordingWriter | PendingWriter],
        start: str | int | None,
        open: Callable[[str, str | int, Callable[[Any], bool]], RecordingWriter | PendingWriter | None],
        identity: Callable[[Any], object],
    ) -> None:
        self._discovery, self._open, self._identity = discovery, open, identity
        opened = [(writer, writer.subscription.channel) for writer in made]
        self._named = {channel for _, channel in opened}
        self._lasting = {channel for writer, channel in opened if isinstance(writer, PendingStreams)}
        self._joined = {identity(writer.subscription) for writer, _ in opened}  # the files of subscriptions
        self._start = start  # of the channels that exist at first

    def __call__(self) -> list[RecordingWriter | PendingWriter]:
        """Writers of the channels that appeared since the last call. A channel that appears after the start is recorded from its first
        message on, if its kind keeps messages."""
        made: list[RecordingWriter | PendingWriter] = []
        for channel in self._discovery.new():
            if channel in (self._lasting if self._start is None else self._named):
                continue
            keeps = parse(channel).kind.keeps
            wanted = "earliest" if self._start is None else self._start
            start = "newest" if wanted == "earliest" and not keeps else wanted
            try:
                writer = self._open(channel, start, self._joins)
            except PenstockError as error:
                log.warning("%s is not recorded: %s", channel, error)
                continue
            if writer is not None:
                made.append(writer)
        self._start = None
        return made

    def _joins(self, subscription: Any) -> bool:
        """Whether this is the first subscription to its channel. A channel that was created again between the listing and the subscription is
        found again."""
        identity = self._identity(subscription)
        if identity in self._joined:
            return False
        self._joined.add(identity)
        return True
