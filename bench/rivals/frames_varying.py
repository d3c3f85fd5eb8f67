"""Penstock's frames of sizes of their own, each up to the largest."""

from __future__ import annotations

from typing import Any

import penstock
from bench.rivals import frames
from bench.rivals.frames import BUFFERS, clean, receiver


def prepare(name: str, readers: int, size: int) -> None:
    """Makes the channel."""
    penstock.publish(f"frames:{name}", shape=(size,), varies=True, buffers=BUFFERS).close()


class _Sender(frames.FrameSender):
    note = 96  # with the frame's size

    def acquire(self) -> Any:
        size = self.pub.shape[0]
        return self.pub.acquire(shape=size - self.sent % (size // 2))


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication."""
    return _Sender(name)


__all__ = ["clean", "prepare", "receiver", "sender"]
