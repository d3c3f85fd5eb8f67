"""Penstock's log without copies: claim and borrow."""

from __future__ import annotations

import penstock
from bench.rivals.ours import clean
from bench.rivals.ours import prepare_whole as prepare

__all__ = ["clean", "prepare", "receiver", "sender"]


class _Sender:
    def __init__(self, name: str, size: int) -> None:
        self.pub, self.size = penstock.publish(f"log:{name}"), size
        self.close = self.pub.close

    def send(self, data: bytes) -> None:
        with self.pub.claim(self.size) as view:
            view[0] = 1


class _Receiver:
    def __init__(self, name: str) -> None:
        self.sub = penstock.subscribe(f"log:{name}", start="earliest")
        self.close = self.sub.close

    def recv(self) -> int:
        with self.sub.borrow() as view:
            return len(view)


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication that writes one byte in place."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int) -> _Receiver:
    """A subscription that reads in place."""
    return _Receiver(name)
