"""Where something may be missing in the sessions that a subscription reads: before it joined them, and what the network lost. Knows positions,
and no message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.kinds.udp.history.recorded import History, Key


class Joined:
    """Where a live subscription joined its sessions. keys: of those that are there or were, by their numbers."""

    def __init__(self, live: Any, history: History) -> None:
        self._live, self._history = live, history
        self.keys: dict[int, Key] = {}
        self._seen: set[Key] = set()

    def look(self) -> dict[Key, int]:
        """The sessions that are new; also those that came and went meanwhile, if the archive has something of them."""
        new = {}
        for one in self._live.sessions:
            key = one.session, one.initial_term_id
            if self.keys.get(one.session) != key:
                self.keys[one.session] = key
                new[key] = one.joined
        for key, (joined, _, _) in self._live._reached().items():
            if key not in self._seen and key not in new and self._history.knows(key):
                new[key] = joined
        self._seen |= new.keys()
        return new


class Losses:
    """The losses of a live subscription that were not looked at yet. Each is below the position up to which its session was read, or where the
    session was joined again, also once the session is gone."""

    def __init__(self, live: Any) -> None:
        self._live, self._lost = live, live.lost
        self._counted: dict[Key, int] = {}  # bytes of each session
        self._later: dict[Key, int] = {}  # in front of messages that are not read yet

    @property
    def has_new(self) -> bool:
        """Whether the count has grown since the last look."""
        return bool(self._live.lost != self._lost)

    def goals(self, begins: Mapping[Key, int]) -> dict[Key, int]:
        """Up to where something may be missing, of each session with a new loss. begins: the message that was just read; empty if there is
        none to be read."""
        goals: dict[Key, int] = {}
        if self.has_new:
            self._lost = self._live.lost
            for key, (image, position, lost) in self._live._reached().items():
                if lost != self._counted.get(key, 0):
                    self._counted[key], goals[key] = lost, position
                    if image > begins.get(key, image):  # it was joined again, and messages from before come first
                        self._later[key] = image
        elif not begins:
            goals, self._later = self._later, {}
        return goals

    def is_later(self, key: Key, position: int) -> bool:
        """Whether a loss that was seen before is in front of the message at a position. True once."""
        found = position >= self._later.get(key, position + 1)
        if found:
            del self._later[key]
        return found
