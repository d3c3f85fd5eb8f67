"""Penstock's frames, handed over by reference and without loss: the sender stays within half of the buffers."""

from __future__ import annotations

from typing import Any

import penstock

BUFFERS = 32
NOTE = 64  # bytes of the channel's stream per frame


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the channel."""
    penstock.publish(f"frames:{name}", shape=(size,), buffers=BUFFERS).close()


class FrameSender:
    """A publication of whole buffers."""

    note = NOTE

    def __init__(self, name: str) -> None:
        self.pub = penstock.publish(f"frames:{name}")
        self.close, self.sent = self.pub.close, 0

    def acquire(self) -> Any:
        """A buffer to be filled."""
        return self.pub.acquire()

    def send(self, data: bytes) -> None:
        """Publishes the next frame."""
        if self.sent % 8 == 0:
            while self.pub.lag > BUFFERS // 2 * self.note:
                pass
        with self.acquire() as frame:
            frame.array[0] = self.sent % 256
        self.sent += 1


class _Receiver:
    def __init__(self, name: str) -> None:
        self.sub = penstock.subscribe(f"frames:{name}", conflate=False)
        self.close, self.received = self.sub.close, 0

    def recv(self) -> None:
        assert self.sub.recv().array[0] == self.received % 256
        self.received += 1


def sender(name: str, readers: int, size: int) -> FrameSender:
    """A publication."""
    return FrameSender(name)


def receiver(name: str, number: int, size: int) -> _Receiver:
    """A subscription."""
    return _Receiver(name)


def clean(name: str) -> None:
    """Removes the channel."""
    penstock.remove(f"frames:{name}")
