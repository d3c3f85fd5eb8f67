"""Penstock's ring, one message at a time, without loss: the sender keeps the slowest reader within half the ring."""

from __future__ import annotations

import os
from typing import Any

import penstock
from bench.report import cores

PATIENCE = 0.01  # seconds of a wait in which an end looks and yields its core in turn, before it sleeps
CAPACITY = {64: 1 << 20, 1024: 1 << 22}


def _capacity(size: int) -> int:
    return CAPACITY.get(size, 1 << max(24, (size * 8).bit_length()))


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the channel."""
    penstock.publish(f"ring:{name}", capacity=_capacity(size)).close()


def crowded(readers: int) -> dict[str, Any]:
    """Options of readers that share cores: they yield for longer. A sleep and a wake of each burst would cost more."""
    return {"spin": PATIENCE} if readers + 1 > cores() else {}


class Sender:
    """A publication that looks after its readers now and then."""

    def __init__(self, name: str, readers: int, size: int) -> None:
        self.crowded = bool(crowded(readers))
        self.pub = penstock.publish(f"ring:{name}")
        self.close, self.send = self.pub.close, self.pub.send
        self.room = _capacity(size) // 2
        self.step = max(self.room // 4 // (size + 64), 1)

    def wait(self) -> None:
        """Until everybody is within the window."""
        while self.pub.lag > self.room:
            if self.crowded:
                os.sched_yield()

    def send_many(self, data: bytes, count: int) -> None:
        """One by one."""
        send = self.send
        for done in range(0, count, self.step):
            self.wait()
            for _ in range(min(self.step, count - done)):
                send(data)


def sender(name: str, readers: int, size: int) -> Sender:
    """A publication."""
    return Sender(name, readers, size)


def receiver(name: str, number: int, size: int, **options: Any) -> penstock.types.Subscription:
    """A subscription."""
    return penstock.subscribe(f"ring:{name}", **options)


def clean(name: str) -> None:
    """Removes the channel."""
    penstock.remove(f"ring:{name}")
