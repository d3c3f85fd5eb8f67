"""The newest message of each key of a topic, for viewers that subscribe late: of logs that keep last values. Knows no SDK."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.channels.uri.channel import parse
from penstock.channels.uri.opener import subscription_options
from penstock.codecs import keys
from penstock.errors import Invalid, Unsupported
from penstock.front import opening

Row = tuple[bytes, int]  # a message, and when it was sent


def rows_of(batch: Any) -> list[Row]:
    """The messages of a batch, and when they were sent."""
    return list(zip(batch.column("payload").to_pylist(), batch.column("time").cast("int64").to_pylist(), strict=True))


def subscribe(channel: str) -> Any:
    """A subscription for viewers: at the last values of a channel that keeps them, else at its newest message. No writer waits for it."""
    possible = subscription_options(channel)
    wanted: dict[str, Any] = {"last": 1, "drop_after": 0.0}
    newest = {name: value for name, value in wanted.items() if name in possible}
    while True:
        if "last" in parse(channel).kind.value_options:
            with contextlib.suppress(Unsupported):  # it keeps none
                return opening.subscribe(channel, start="last", drop_after=0.0)
        opened = opening.subscribe(channel, **newest)
        if opened.statistics().last is None:
            return opened
        opened.close()  # another channel has the name now


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

    def forget(self, viewer: int) -> None:
        """A viewer has left."""
        self._owed = deque(one for one in self._owed if one[0] != viewer)

    def give(self, show: Callable[[bytes, int, list[int]], None], most: int) -> int:
        """Shows viewers what they are to get, at most so many messages; how many. A key's newest message, also if it came meanwhile."""
        given = min(most, len(self._owed))
        for _ in range(given):
            viewer, key = self._owed.popleft()
            show(*self._newest[key], [viewer])
        return given
