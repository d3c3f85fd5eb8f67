"""pysyncq: the queue is made before the processes are forked, as it has to be."""

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


class _Member(_End):
    """Reads whenever there is no room: all that blocked would wait for each other for ever."""

    def send(self, data: bytes) -> None:
        while True:
            try:
                return self.queue.append("", data)
            except MemoryError:
                self.early += self.take()

    early = 0

    def take(self) -> int:
        count, self.early = self.early, 0
        while self.queue.pop(decode=False) is not None:
            count += 1
        return count


def member(name: str, number: int, count: int, size: int) -> _Member:
    """One of `count` that all write and all read."""
    return _Member(name, f"member-{number}")


def sender(name: str, readers: int, size: int) -> _End:
    """A member that writes."""
    return _End(name, "sender")


def receiver(name: str, number: int, size: int, **options: Any) -> _End:
    """A member that reads."""
    return _End(name, f"receiver-{number}")


def clean(name: str) -> None:
    """Forgets the queue."""
    _queues.pop(name, None)
