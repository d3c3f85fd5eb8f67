"""Penstock's network log in batches: offer_many and poll_arrow."""

from __future__ import annotations

import penstock
from bench.rivals.ours_batch import Receiver
from bench.rivals.udp_ours import BEGIN_S, clean, options, prepare, uri

__all__ = ["clean", "prepare", "receiver", "sender"]
BATCH_BYTES = 1 << 15


class _Sender:
    def __init__(self, name: str, size: int) -> None:
        self.pub = penstock.publish(uri(name))
        self.close = self.pub.close
        self.count = max(1, BATCH_BYTES // size)

    def begin(self) -> None:
        self.pub.wait_for_readers(1, timeout=BEGIN_S)

    def send_many(self, data: bytes, count: int) -> None:
        batch = [data] * self.count
        left = count
        offer_many = self.pub.offer_many
        while left:
            sent = offer_many(batch if left >= self.count else batch[:left])
            left -= sent
            if not sent:
                left -= self.pub.send(data) > 0  # full: wait like a send


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int) -> Receiver:
    """A subscription read in batches."""
    return Receiver(penstock.subscribe(uri(name), **options), size)
