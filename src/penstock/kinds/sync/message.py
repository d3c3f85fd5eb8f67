"""The results of reading a sync queue: messages, borrowed messages, and subscriptions whose `last` has the sender.

Knows the compiled handles. It must never know queues or members.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock._native import core as _native
from penstock.channels.checks import text_bytes
from penstock.channels.handles import NativeSubscription
from penstock.channels.interfaces.subscription import Received


class SyncMessage(NamedTuple):
    """A message received. position: in the one order that every member sees; time_ns since the epoch.

    body: bytes, or the object that the queue's codec makes of them.
    """

    sender: str
    type: str
    body: Any
    position: int
    time_ns: int

    @property
    def text(self) -> str:
        """A body of bytes as text. Bytes that are not UTF-8 become escapes; nothing is lost."""
        return str(self.body.decode("utf-8", "surrogateescape"))


class BorrowedMessage(NamedTuple):
    """A message read in place: as `SyncMessage`, but its body is not copied."""

    sender: str
    type: str
    body: memoryview
    position: int
    time_ns: int


@dataclass(frozen=True)
class Change:
    """A member joined or left."""

    joined: bool
    name: str
    pid: int


def text_of(name: bytes) -> str:
    """A name as Python's text."""
    return name.decode("utf-8", "surrogateescape")


def bytes_of(text: str | bytes, what: str) -> bytes:
    """A name as it travels."""
    return text_bytes(text, what)


def _describe_last(subscription: NativeSubscription) -> Received:
    position, time_ns, session, sender, kind = _native.last_of(subscription)
    return Received(position, time_ns, session, text_of(sender), text_of(kind))


class SyncSubscription(NativeSubscription):
    """A subscription to a sync queue. `recv` gives bodies; `last` has the sender and the type of the message received last.

    `poll_arrow` has the columns position, session, sender, type, payload and time. In senders and types, what is not UTF-8 is
    replaced.
    """

    @property
    def last(self) -> Received:
        """Where and when the message received last was sent, and its sender and type."""
        return _describe_last(self)


class Borrowed:
    """`SyncMember.borrow` returns this: a context manager over a `BorrowedMessage`."""

    def __init__(self, borrowed: _native.Borrow) -> None:
        self._borrowed = borrowed

    def __enter__(self) -> BorrowedMessage:
        body = self._borrowed.__enter__()
        position, time_ns, _ = self._borrowed.received
        sender, kind = self._borrowed.envelope
        return BorrowedMessage(text_of(sender), text_of(kind), body, position, time_ns)

    def __exit__(self, *error: Any) -> None:
        self._borrowed.__exit__(*error)


def shared_name(name: bytes) -> Any:
    """A member's name, for `join`, that several members may have at a time."""
    return _native.MemberName(name, own=False)
