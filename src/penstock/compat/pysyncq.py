"""pysyncq's queue over `sync:` channels: `from penstock.compat.pysyncq import PySyncQ`.

What differs from the original is listed in docs/porting-from-pysyncq.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import penstock
from penstock.shm.sync import SyncQueue

SMALLEST, LARGEST = 1 << 16, 1 << 30


class QSet(set[bytes]):
    """A set whose elements become bytes: text is encoded, anything else made text first."""

    def __init__(self, iterable: Iterable[Any] = ()) -> None:
        super().__init__()
        for element in iterable:
            self.add(element)

    def add(self, element: Any) -> None:
        """Adds one element."""
        super().add(_bytes(element))

    def discard(self, element: Any) -> None:
        """Takes one away, if it is there."""
        super().discard(_bytes(element))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class PySyncQ:
    """A queue that several processes read and write: each makes or inherits the object, and calls `open`.

    size: bytes that may be unread before there is no more room; the next power of two from 64 KiB on. The object pickles, and is
    inherited by forked and spawned children.
    """

    def __init__(
        self, name: str | None = None, create: bool = True, size: int = 4096, start: str | None = None
    ) -> None:
        if size > LARGEST:
            raise MemoryError(f"Queue size can't exceed {LARGEST}")
        self.name = name or f"pysyncq-{secrets.token_hex(6)}"
        self.create, self.size, self.start = create, size, start
        self.sender: bytes | None = None
        self.scrnsend, self.scrntype = QSet(), QSet()
        self._screened: tuple[frozenset[bytes], frozenset[bytes]] = frozenset(), frozenset()
        self._queue: SyncQueue | None = None

    def open(self, sender: str | None = None, filtself: bool = True) -> None:
        """Registers this process; `sender` is the name in its messages, the process id unless given."""
        size = max(SMALLEST, 1 << (max(self.size, 1) - 1).bit_length())
        channel = f"sync:{self.name}"
        try:
            self._queue = penstock.join(channel, sender=sender, own=not filtself, size=size)
        except penstock.Mismatch:
            self._queue = penstock.join(channel, sender=sender, own=not filtself)  # whoever came first chose
        self.sender = self._queue.sender.encode()
        if filtself:
            self.scrnsend.add(self.sender)

    def _opened(self) -> SyncQueue:
        if self._queue is None:
            raise RuntimeError("this process is not registered: call open first")
        return self._queue

    def close(self) -> None:
        """Leaves; what is unread counts as read. The last one removes the queue."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None

    def append(self, msgtype: Any = "", msg: Any = "", block: bool = False, timer: float | None = 0.5) -> None:
        """Adds a message. MemoryError if there is no room; with `block` only after `timer` seconds (None: never)."""
        queue = self._opened()
        try:
            queue.append(_bytes(msg), _bytes(msgtype), timeout=timer if block else 0)
        except (penstock.TooLarge, penstock.Busy, TimeoutError) as error:
            raise MemoryError(str(error)) from error

    def pop(
        self, block: bool = False, timer: float | None = 0.5, decode: bool = True
    ) -> tuple[str, str, str] | tuple[bytes, bytes, bytes] | None:
        """(sender, type, message) of the next message that is not screened, or None; with `block` only after `timer` seconds."""
        queue = self._opened()
        wanted = frozenset(self.scrnsend), frozenset(self.scrntype)
        if wanted != self._screened:
            queue.screen(senders=wanted[0], types=wanted[1])
            self._screened = wanted
        try:
            message = queue.pop(timer) if block else queue.try_pop()
        except TimeoutError:
            return None
        if message is None:
            return None
        sender, kind = (part.encode("utf-8", "surrogateescape") for part in message[:2])
        parts = sender, kind, message.body
        return (parts[0].decode(), parts[1].decode(), parts[2].decode()) if decode else parts

    def __call__(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Pops, with these arguments, until there is nothing."""
        while (message := self.pop(*args, **options)) is not None:
            yield message

    def __iter__(self) -> Iterator[Any]:
        return self()

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "create": self.create, "size": self.size, "start": self.start}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __str__(self) -> str:
        sender = None if self.sender is None else self.sender.decode()
        return f"PySyncQ(name={self.name},size={self.size},sender={sender})"
