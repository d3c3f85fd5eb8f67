"""multiprocessing.Queue, one per reader."""

from __future__ import annotations

import multiprocessing
from typing import Any

_queues: dict[str, list[Any]] = {}


def prepare(name: str, readers: int, size: int) -> None:
    """Queues must exist before the children do."""
    _queues[name] = [multiprocessing.get_context("fork").Queue(maxsize=1000) for _ in range(readers)]


class _Sender:
    def __init__(self, name: str) -> None:
        self.queues = _queues[name]

    def send(self, data: bytes) -> None:
        for queue in self.queues:
            queue.put(data)

    def close(self) -> None:
        for queue in self.queues:
            queue.close()
            queue.join_thread()


class _Receiver:
    def __init__(self, name: str, number: int) -> None:
        self.recv = _queues[name][number].get

    def close(self) -> None:
        pass


def sender(name: str, readers: int, size: int) -> _Sender:
    """The queues."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """One queue."""
    return _Receiver(name, number)


def clean(name: str) -> None:
    """Forgets the queues."""
    del _queues[name]
