"""Channels that patterns stand for: a writer for each that is there when a recorder begins, and for each that comes later.

Knows no folder and no channel: it is told which channels come, and how a writer is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any, Protocol

from penstock.channels.channel import parse
from penstock.errors import NotFound, PenstockError
from penstock.record.write.writer import PendingWriter, RecordingWriter

log = logging.getLogger("penstock")


class ChannelSource(Protocol):
    """Tells of channels as they come."""

    def new(self) -> list[str]:
        """Those that came since the last call."""
        ...


def open_named(
    named: Collection[str],
    made: list[RecordingWriter | PendingWriter],
    open: Callable[[str], RecordingWriter | PendingWriter | None],
) -> list[str]:
    """Adds the writers of channels that are named to `made`. Returns the channels to wait for: of frames nothing is known before their
    publication comes."""
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
    """Opens writers of channels as they come. One that cannot be recorded is left out, with a warning in the log."""

    def __init__(
        self,
        appearing: ChannelSource,
        named: Collection[str],
        start: str | int,
        open: Callable[[str, str | int, Callable[[Any], bool]], RecordingWriter | PendingWriter | None],
        identity: Callable[[Any], object],
    ) -> None:
        self._appearing, self._named, self._open, self._identity = appearing, set(named), open, identity
        self._joined: set[object] = set()  # the files of its subscriptions
        self._start: str | int | None = start  # of the channels that are there at first

    def __call__(self) -> list[RecordingWriter | PendingWriter]:
        """WriterOpener of the channels that came since the last call. One that comes later is recorded from its first message on, if its kind
        keeps messages."""
        made: list[RecordingWriter | PendingWriter] = []
        for channel in self._appearing.new():
            if channel in self._named:
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
        """Whether this is the first subscription to its channel. A channel that was made again between the look and the subscription is
        seen once more."""
        identity = self._identity(subscription)
        if identity in self._joined:
            return False
        self._joined.add(identity)
        return True
