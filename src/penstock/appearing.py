"""Channels that patterns stand for: those that are there, and those that come. Looks at names only; opens nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from penstock.channel import FAKE, Channel
from penstock.channels import files, memory
from penstock.clock import SystemClock
from penstock.opener import faked
from penstock.wildcards import matches_any

SETTLED_NS = 50_000_000  # a folder changed this long ago: a later change has another time


def listing(patterns: Sequence[str]) -> tuple[list[Channel], list[files.Stranger]]:
    """This user's channels that one of the patterns stands for, and files that look like a channel's and are none.

    `fake:` channels of this process are among them if a pattern says so, as `fake:log:*`.
    """
    names, strange = files.listing()
    found = [one for one in names if not faked(one.kind) and matches_any(patterns, str(one))]
    own = [pattern for pattern in patterns if pattern.startswith(f"{FAKE}:")]
    for one in memory.listing():
        told = replace(one, uri=f"{FAKE}:{one}")
        if matches_any(own, str(told)):
            found.append(told)
        elif faked(one.kind) and matches_any(patterns, str(one)):
            found.append(one)
    return found, strange


class Appearing:
    """The channels that patterns stand for, as they come. One thread at a time."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = list(patterns)
        self._seen: set[tuple[str, int]] = set()
        self._state: object = None

    def new(self) -> list[str]:
        """URIs of the channels that came since the last call; at first, of all that are there. A call costs a look at the folder's time
        if nothing changed. A channel that was removed and made again has come again."""
        state = self._changes()
        if state is not None and state == self._state:
            return []
        self._state = state
        there = {(str(one), files.identity(one)) for one in listing(self._patterns)[0]}
        fresh = there - self._seen
        self._seen = there
        return sorted(uri for uri, _ in fresh)

    def _changes(self) -> object:
        """Changes whenever a channel comes or goes; None if a change may not show."""
        try:
            found = os.stat(files.folder())
        except OSError:
            return memory.count(), 0, 0
        if SystemClock().now_ns() - found.st_mtime_ns < SETTLED_NS:
            return None
        return memory.count(), found.st_ino, found.st_mtime_ns


__all__ = ["Appearing", "listing"]
