"""Penstock's log in batches: offer_many and poll_arrow."""

from __future__ import annotations

import penstock
from bench.rivals.ours import clean
from bench.rivals.ours import prepare_whole as prepare

__all__ = ["clean", "prepare", "receiver", "sender"]


class _Sender:
    def __init__(self, name: str) -> None:
        self.pub = penstock.publish(f"log:{name}")
        self.close = self.pub.close

    def send_many(self, data: bytes, count: int) -> None:
        batch = [data] * 500
        left = count
        offer_many = self.pub.offer_many
        while left:
            sent = offer_many(batch if left >= 500 else batch[:left])
            left -= sent
            if not sent:
                left -= self.pub.send(data) > 0  # full: wait like a send


class Receiver:
    """A subscription read in batches."""

    def __init__(self, sub: penstock.types.Subscription, size: int) -> None:
        self.sub = sub
        self.close = self.sub.close
        self.recv = self.sub.recv
        self.limit = max(8, min(4_000, (1 << 19) // size))  # batches that stay in the caches
        self.sub.poll_arrow(0)  # loads pyarrow

    def receive_many(self) -> int:
        """Takes the messages that are there, at least one. Returns how many."""
        got = self.sub.poll_arrow(self.limit).num_rows
        if not got:
            penstock.wait([self.sub])
        return got


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication."""
    return _Sender(name)


def receiver(name: str, number: int, size: int) -> Receiver:
    """A subscription."""
    return Receiver(penstock.subscribe(f"log:{name}", start="earliest"), size)
