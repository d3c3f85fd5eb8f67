"""The newest message of each key of a topic, for viewers that subscribe late: of logs that keep last values. Knows no SDK."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import penstock
from penstock.codecs import keys
from penstock.errors import Invalid

Row = tuple[bytes, int]  # a message, and when it was sent


def keeps_last(channel: str) -> bool:
    """Whether a channel keeps last values now."""
    with contextlib.suppress(penstock.PenstockError):
        return penstock.inspect(channel).last is not None
    return False


def rows_of(batch: Any) -> list[Row]:
    """The messages of a batch, and when they were sent."""
    return list(zip(batch.column("payload").to_pylist(), batch.column("time").cast("int64").to_pylist(), strict=True))


class Latched:
    """The newest message of each key that a subscription has given. It keeps nothing where the channel keeps no last values."""

    def __init__(self, subscription: Any | None = None) -> None:
        field = None if subscription is None else subscription.statistics().last
        self._key_of = None if field is None else keys.reader(subscription.codec, field)  # type: ignore[union-attr]
        self._newest: dict[bytes, Row] = {}
        self._owed: deque[tuple[int, bytes]] = deque()  # viewers, and the keys whose newest message they are to get

    def __bool__(self) -> bool:
        return self._key_of is not None

    @property
    def owes(self) -> bool:
        """Whether a viewer is still to get messages."""
        return bool(self._owed)

    def keep(self, rows: Sequence[Row]) -> None:
        """Keeps messages, the newest last."""
        if self._key_of is None:
            return
        for row in rows:
            with contextlib.suppress(Invalid):  # written by something else
                key = self._key_of(row[0])
                self._newest.pop(key, None)
                self._newest[key] = row

    def owe(self, viewer: int) -> None:
        """A viewer is to get the newest message of each key, in the order in which they were sent."""
        self._owed += [(viewer, key) for key in self._newest]

    def give(self, show: Callable[[bytes, int, int], None], most: int) -> int:
        """Shows viewers what they are to get, at most so many messages; how many. A key's newest message, also if it came meanwhile."""
        given = min(most, len(self._owed))
        for _ in range(given):
            viewer, key = self._owed.popleft()
            show(*self._newest[key], viewer)
        return given
