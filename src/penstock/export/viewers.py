"""The viewers of a view: which topics they subscribe to, as the threads of Foxglove's SDK say. Knows no channel."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

__all__ = ["Viewers"]

CLIENTS = "foxglove.websocket.connected_client"  # the SDK's logger of what viewers do
UNKNOWN = "subscribe to unknown channel: "
MOST = 1000  # refused subscriptions that are kept


class Viewers:
    """What viewers subscribe to and leave, until the view has answered it.

    changes: (whether it came, the viewer, the number of its topic), in order; a viewer that disconnects leaves its topics. early: the numbers of
    topics to which the SDK refused a subscription: it advertises a topic before it knows it, and a viewer that was refused does not ask
    again. Other numbers in it are a viewer's mistake.
    """

    def __init__(self, websocket: Any) -> None:
        self.changes: deque[tuple[bool, int, int]] = deque()
        self.early: deque[int] = deque(maxlen=MOST)
        self._logger = logging.getLogger(CLIENTS)
        changes = self.changes

        class _Listener(websocket.ServerListener):  # type: ignore[misc]
            """Notes each subscription of a viewer, in the SDK's own thread."""

            def on_subscribe(self, client: Any, channel: Any) -> None:
                changes.append((True, client.id, channel.id))

            def on_unsubscribe(self, client: Any, channel: Any) -> None:
                changes.append((False, client.id, channel.id))

        self.listener = _Listener()

    def watch(self) -> None:
        """Begins to look for refused subscriptions. The SDK reports them in its log only."""
        self._logger.addFilter(self._should_log)

    def close(self) -> None:
        """Ends what `watch` began."""
        self._logger.removeFilter(self._should_log)

    def _should_log(self, record: logging.LogRecord) -> bool:
        """Notes a refused subscription. Its line is not logged: the topic is advertised again, if it is one."""
        number = record.getMessage().partition(UNKNOWN)[2]
        if number.isdecimal():
            self.early.append(int(number))
        return not number.isdecimal()
