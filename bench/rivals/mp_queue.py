"""multiprocessing.Queue, one per reader."""

from __future__ import annotations

import contextlib
import multiprocessing
from queue import Empty, Full
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


class _Member:
    """Writes to everybody else's queue, reads its own."""

    def __init__(self, name: str, number: int) -> None:
        queues = _queues[name]
        self.mine, self.others = queues[number], [*queues[:number], *queues[number + 1 :]]
        self.early = 0

    def send(self, data: bytes) -> None:
        for queue in self.others:
            while True:
                try:
                    queue.put_nowait(data)
                    break
                except Full:  # the process that should make room may be waiting for this one
                    self.early = self.take()

    def take(self) -> int:
        count, self.early = self.early, 0
        with contextlib.suppress(Empty):
            while True:
                self.mine.get_nowait()
                count += 1
        return count

    def close(self) -> None:
        for queue in self.others:
            queue.close()
            queue.join_thread()


def member(name: str, number: int, count: int, size: int) -> _Member:
    """One of `count` that all write and all read."""
    return _Member(name, number)


def sender(name: str, readers: int, size: int) -> _Sender:
    """The queues."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """One queue."""
    return _Receiver(name, number)


def clean(name: str) -> None:
    """Forgets the queues."""
    del _queues[name]
