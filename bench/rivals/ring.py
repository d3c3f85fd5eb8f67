"""Penstock's ring, one message at a time, without loss: the sender keeps the slowest reader within half the ring."""

from __future__ import annotations

from typing import Any

import penstock

CAPACITY = {64: 1 << 20, 1024: 1 << 22}


def _capacity(size: int) -> int:
    return CAPACITY.get(size, 1 << max(24, (size * 8).bit_length()))


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the channel."""
    penstock.publish(f"ring:{name}", capacity=_capacity(size)).close()


class Sender:
    """A publication that looks after its readers now and then."""

    def __init__(self, name: str, size: int) -> None:
        self.pub = penstock.publish(f"ring:{name}")
        self.close, self.send = self.pub.close, self.pub.send
        self.room = _capacity(size) // 2
        self.step = max(self.room // 4 // (size + 64), 1)

    def wait(self) -> None:
        """Until everybody is within the window."""
        while self.pub.lag > self.room:
            pass

    def send_many(self, data: bytes, count: int) -> None:
        """One by one."""
        send = self.send
        for done in range(0, count, self.step):
            self.wait()
            for _ in range(min(self.step, count - done)):
                send(data)


def sender(name: str, readers: int, size: int) -> Sender:
    """A publication."""
    return Sender(name, size)


def receiver(name: str, number: int, size: int, **options: Any) -> penstock.Subscription:
    """A subscription."""
    return penstock.subscribe(f"ring:{name}", **options)


def clean(name: str) -> None:
    """Removes the channel."""
    penstock.remove(f"ring:{name}")
