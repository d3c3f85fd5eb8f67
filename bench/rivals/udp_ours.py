"""Penstock's network log, one message at a time."""

from __future__ import annotations

from typing import Any

import penstock
from bench.rivals.loopback import clean, port, prepare

__all__ = ["clean", "options", "prepare", "receiver", "sender", "uri"]
options: dict[str, Any] = {}  # of subscriptions, set by a question for one measurement
BEGIN_S = 30  # for the other side to come


def uri(name: str) -> str:
    """The channel of a name."""
    return f"udp://127.0.0.1:{port(name)}/7"


class _Sender:
    def __init__(self, name: str) -> None:
        self.pub = penstock.publish(uri(name))
        self.send, self.close = self.pub.send, self.pub.close

    def begin(self) -> None:
        self.pub.wait_for_readers(1, timeout=BEGIN_S)


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **given: float) -> penstock.types.Subscription:
    """A subscription."""
    return penstock.subscribe(uri(name), **{**options, **given})
