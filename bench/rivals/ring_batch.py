"""Penstock's ring in batches: offer_many and poll_arrow, without loss."""

from __future__ import annotations

import penstock
from bench.rivals.ours_batch import Receiver
from bench.rivals.ring import Sender, clean, crowded, prepare

__all__ = ["clean", "crowded", "prepare", "receiver", "sender"]


class _Sender(Sender):
    def send_many(self, data: bytes, count: int) -> None:
        """In runs of as many as fit the window's quarter, 500 at most."""
        size = min(self.step, 500)
        batch = [data] * size
        for done in range(0, count, size):
            self.wait()
            self.pub.offer_many(batch if count - done >= size else batch[: count - done])


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication."""
    return _Sender(name, readers, size)


def receiver(name: str, number: int, size: int, **options: float) -> Receiver:
    """A subscription."""
    return Receiver(penstock.subscribe(f"ring:{name}", **options), size)
