"""The newest message of each topic, and the thread that sends it to late subscriptions. Knows messages, and no socket."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from penstock.errors import Closed

TOPICS_MAX = 10_000
SLICE = 0.5  # seconds between two looks whether the publication still exists


class LastValues:
    """The newest message of each topic: of the first of several parts. Messages of one part have one value in common.

    At most `TOPICS_MAX` topics: the one that was sent longest ago is forgotten.
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[bytes | None, list[bytes]] = OrderedDict()

    def keep(self, frames: list[bytes]) -> None:
        """Keeps a message that was sent."""
        topic = frames[0] if len(frames) > 1 else None
        self._newest[topic] = frames
        self._newest.move_to_end(topic)
        if len(self._newest) > TOPICS_MAX:
            self._newest.popitem(last=False)

    def find(self, beginnings: Iterable[bytes]) -> list[list[bytes]]:
        """The messages that subscriptions with these topics get, in the order in which they were sent."""
        wanted = tuple(beginnings)
        return [frames for frames in self._newest.values() if wanted and frames[0].startswith(wanted)]

    def clear(self) -> None:
        """Forgets them."""
        self._newest.clear()


def serve(publication: Any) -> None:
    """Starts the thread by which a publication notices subscriptions between its calls. It ends with the publication."""
    thread = threading.Thread(target=_serve, args=(weakref.ref(publication),), name="penstock-last-value", daemon=True)
    thread.start()


def _serve(found: weakref.ref[Any]) -> None:
    while True:
        publication = found()
        if publication is None:
            return
        try:
            publication._wait_for_subscriptions(SLICE)
        except Closed:
            return
        del publication
