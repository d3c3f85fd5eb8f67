"""Penstock's pipes: push and pull, request and reply, one message at a time."""

from __future__ import annotations

from typing import Any

import penstock


def options(size: int) -> dict[str, Any]:
    """Room for a few of the largest messages."""
    return {
        "capacity": max(1 << 19, 1 << (4 * size).bit_length()),
        "max_messages": 10_000,
        "max_pipes": 16,
        "max_members": 32,
    }


class Sender:
    """A pusher."""

    def __init__(self, name: str, size: int) -> None:
        self.pub = penstock.publish(f"pipe:{name}", **options(size))
        self.send, self.close = self.pub.send, self.pub.close

    def finish(self) -> None:
        while self.pub.unread_messages > 0:
            pass


class Receiver:
    """A puller."""

    def __init__(self, name: str, size: int, **spin: float) -> None:
        self.sub = penstock.subscribe(f"pipe:{name}", **options(size), **spin)
        self.recv, self.close = self.sub.recv, self.sub.close


def sender(name: str, readers: int, size: int) -> Sender:
    """A pusher."""
    return Sender(name, size)


def receiver(name: str, number: int, size: int, **spin: float) -> Receiver:
    """A puller."""
    return Receiver(name, size, **spin)


def requester(name: str, **spin: float) -> Any:
    """A requester."""
    return penstock.join(f"pipe:{name}", role="request", **spin)


def replier(name: str, **spin: float) -> Any:
    """A server."""
    return penstock.join(f"pipe:{name}", role="reply", **spin)
