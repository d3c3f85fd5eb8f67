"""pysyncq: the queue is made before the processes are forked, as it has to be.

There is no member that both writes and reads: several of them wait for each other until they are killed.
"""

from __future__ import annotations

import importlib
from typing import Any

module = importlib.import_module("pysyncq.pysyncq")
_queues: dict[str, Any] = {}


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the queue."""
    _queues[name] = module.PySyncQ(size=max(1 << 20, 16 * size))


class _End:
    def __init__(self, name: str, sender: str) -> None:
        self.queue = _queues[name]
        self.queue.open(sender)

    def send(self, data: bytes) -> None:
        self.queue.append("", data, block=True, timer=None)

    def recv(self) -> bytes:
        return self.queue.pop(block=True, timer=None, decode=False)[2]

    def close(self) -> None:
        self.queue.close()


def sender(name: str, readers: int, size: int) -> _End:
    """A member that writes."""
    return _End(name, "sender")


def receiver(name: str, number: int, size: int, **options: Any) -> _End:
    """A member that reads."""
    return _End(name, f"receiver-{number}")


def clean(name: str) -> None:
    """Forgets the queue."""
    _queues.pop(name, None)
