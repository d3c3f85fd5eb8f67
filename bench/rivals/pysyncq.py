"""pysyncq: the queue is made before the processes are forked, as it has to be.

A member's own messages take room until it has read them, too: so a sender reads now and then. Members that both write and read
may wait for each other for ever.
"""

from __future__ import annotations

import importlib
from typing import Any

module = importlib.import_module("pysyncq.pysyncq")
_queues: dict[str, Any] = {}


def _room(size: int) -> int:
    return max(1 << 20, 16 * size)


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the queue."""
    _queues[name] = module.PySyncQ(size=_room(size))


class _End:
    reads_its_own = True

    def __init__(self, name: str, sender: str, size: int) -> None:
        self.queue = _queues[name]
        self.queue.open(sender)
        self.sent, self.burst = 0, max(1, min(64, _room(size) // 4 // (size + 64)))

    def send(self, data: bytes) -> None:
        self.queue.append("", data, block=True, timer=None)
        self.sent += 1
        if self.sent % self.burst == 0 and self.reads_its_own:
            self.queue.pop()

    def recv(self) -> bytes:
        return self.queue.pop(block=True, timer=None, decode=False)[2]

    def close(self) -> None:
        self.queue.close()


class _Member(_End):
    reads_its_own = False  # it reads everything

    def take(self) -> int:
        count = 0
        while self.queue.pop(decode=False) is not None:
            count += 1
        return count


def sender(name: str, readers: int, size: int) -> _End:
    """A member that writes."""
    return _End(name, "sender", size)


def receiver(name: str, number: int, size: int, **options: Any) -> _End:
    """A member that reads."""
    return _End(name, f"receiver-{number}", size)


def member(name: str, number: int, count: int, size: int) -> _Member:
    """One of `count` that all write and all read."""
    return _Member(name, f"member-{number}", size)


def clean(name: str) -> None:
    """Forgets the queue. The last member has removed it."""
    queue = _queues.pop(name)
    if queue.shm is not None:  # this process was no member
        queue.h.release()
        queue.b.release()
        queue.shm.close()
        queue.shm = None
