"""faster-fifo, one queue per reader; bytes without pickling."""

from __future__ import annotations

from queue import Empty, Full
from typing import Any

from faster_fifo import Queue

_queues: dict[str, list[Any]] = {}


def _same(data: Any) -> Any:
    return data


def prepare(name: str, readers: int, size: int) -> None:
    """Queues must exist before the children do."""
    room = max(8 << 20, 16 * size)
    _queues[name] = [Queue(max_size_bytes=room, loads=bytes, dumps=_same) for _ in range(readers)]


class _Sender:
    def __init__(self, name: str) -> None:
        self.queues = _queues[name]

    def send(self, data: bytes) -> None:
        for queue in self.queues:
            while True:
                try:
                    queue.put(data, timeout=10)
                    break
                except Full:
                    continue

    def close(self) -> None:
        pass


class _Receiver:
    def __init__(self, name: str, number: int) -> None:
        self.queue = _queues[name][number]

    def recv(self) -> bytes:
        while True:
            try:
                data: bytes = self.queue.get(timeout=10)
                return data
            except Empty:
                continue

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
    for queue in _queues.pop(name):
        queue.close()
