"""Penstock's sync queue, one message at a time."""

from __future__ import annotations

from typing import Any

import penstock
from penstock.kinds.sync.opener import SyncMember

SIZE = 1 << 20


def _join(name: str, own: str, size: int, **options: Any) -> SyncMember:
    return penstock.join(f"sync:{name}", name=own, capacity=max(SIZE, 1 << (4 * size).bit_length()), **options)


class _Sender:
    def __init__(self, name: str, size: int) -> None:
        self.queue = _join(name, "sender", size)
        self.send, self.close = self.queue.send, self.queue.close


class _Receiver:
    def __init__(self, name: str, number: int, size: int, **options: Any) -> None:
        self.queue = _join(name, f"receiver-{number}", size, **options)
        self.close, self.take = self.queue.close, self.queue.recv

    def recv(self) -> bytes:
        body: bytes = self.take().body
        return body


def sender(name: str, readers: int, size: int) -> _Sender:
    """A member that writes."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int, **options: Any) -> _Receiver:
    """A member that reads."""
    return _Receiver(name, number, size, **options)


class _Member:
    """Writes and reads; `take` says how many messages of others it read, without waiting."""

    def __init__(self, name: str, number: int, size: int) -> None:
        self.queue = _join(name, f"member-{number}", size)
        self.send, self.close = self.queue.send, self.queue.close

    def take(self) -> int:
        return len(self.queue.poll(1000))

    def wait_for(self, count: int) -> None:
        self.queue.wait_for([f"member-{number}" for number in range(count)], timeout=60)


def member(name: str, number: int, count: int, size: int) -> _Member:
    """One of `count` that all write and all read."""
    return _Member(name, number, size)
