"""Channels that patterns stand for: a track for each that is there when a recorder begins, and for each that comes later.

Knows no folder and no channel: it is told which channels come, and how a track is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol

from penstock.channel import parse
from penstock.errors import PenstockError
from penstock.record.track import Track, WaitingTrack

log = logging.getLogger("penstock")


class Appearing(Protocol):
    """Tells of channels as they come."""

    def new(self) -> list[str]:
        """Those that came since the last call."""
        ...


class Coming:
    """Opens tracks of channels as they come. One that cannot be recorded is left out, with a warning in the log."""

    def __init__(
        self,
        appearing: Appearing,
        named: Collection[str],
        start: str | int,
        open: Callable[[str, str | int], Track | WaitingTrack],
    ) -> None:
        self._appearing, self._named, self._open = appearing, set(named), open
        self._start: str | int | None = start  # of the channels that are there at first

    def __call__(self) -> list[Track | WaitingTrack]:
        """Tracks of the channels that came since the last call. One that comes later is recorded from its first message on, if its kind
        keeps messages."""
        made: list[Track | WaitingTrack] = []
        for channel in self._appearing.new():
            if channel in self._named:
                continue
            keeps = parse(channel).kind.keeps
            start = self._start if self._start is not None else "earliest" if keeps else "newest"
            try:
                made.append(self._open(channel, start))
            except PenstockError as error:
                log.warning("%s is not recorded: %s", channel, error)
        self._start = None
        return made
