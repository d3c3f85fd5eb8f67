"""faster-fifo in batches: put_many and get_many, one queue per reader; bytes without pickling."""

from __future__ import annotations

from queue import Empty, Full
from typing import Any

from bench.rivals import faster_fifo
from bench.rivals.faster_fifo import clean, prepare

__all__ = ["clean", "prepare", "receiver", "sender"]

ROOM = 1 << 20  # bytes of a batch


class _Sender(faster_fifo._Sender):
    def send_many(self, data: bytes, count: int) -> None:
        most = max(1, min(500, ROOM // len(data)))
        batch, left = [data] * most, count
        while left:
            part = batch if left >= most else batch[:left]
            for queue in self.queues:
                while True:
                    try:
                        queue.put_many(part, timeout=10)
                        break
                    except Full:
                        continue
            left -= len(part)


class _Receiver(faster_fifo._Receiver):
    def receive_many(self) -> int:
        try:
            return len(self.queue.get_many(max_messages_to_get=500, timeout=10))
        except Empty:
            return 0


def sender(name: str, readers: int, size: int) -> Any:
    """The queues."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **options: float) -> Any:
    """One queue."""
    return _Receiver(name, number)
