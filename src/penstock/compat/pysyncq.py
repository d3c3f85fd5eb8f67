"""pysyncq's queue over `sync:` channels: `from penstock.compat.pysyncq import PySyncQ`.

Differences from the original are listed in docs/from/pysyncq.md.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import multiprocessing
import os
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import penstock
from penstock.channels.storage import discovery
from penstock.kinds.sync.message import shared_name
from penstock.types import SyncMember

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
        """Removes an element if it is in the set."""
        super().discard(_bytes(element))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class PySyncQ:
    """A queue that several processes read and write: each makes or inherits the object, and calls `open`.

    create: whether to create the queue if it does not exist; otherwise NotFound (a FileNotFoundError). size: bytes that may be
    unread; the next power of two from 64 KiB on. start: how child processes begin, one of
    `multiprocessing`'s methods; any works. The object pickles with its screening sets, and is inherited by forked and spawned
    children.
    """

    def __init__(
        self, name: str | None = None, create: bool = True, size: int = 4096, start: str | None = None
    ) -> None:
        methods = multiprocessing.get_all_start_methods()
        if size > LARGEST:
            raise MemoryError(f"Queue size can't exceed {LARGEST}")
        if size < 0 or (create and size == 0):
            raise penstock.Invalid(f"size is {size}: it must be a positive number of bytes")
        if start is not None and start not in methods:
            raise penstock.Invalid(f"start is {start!r}: it must be one of {', '.join(methods)}")
        if name is None and not create:
            raise penstock.Invalid("create=False needs the name of a queue that exists")
        self.name = name or f"pysyncq-{secrets.token_hex(6)}"
        self.create, self.size = create, size
        self.start = start or multiprocessing.get_start_method(allow_none=True) or methods[0]
        self.sender: bytes | None = None
        self.scrnsend, self.scrntype = QSet(), QSet()
        self._screened: tuple[frozenset[bytes], frozenset[bytes]] = frozenset(), frozenset()
        self._queue: SyncMember | None = None
        if create:
            _make(self.name, self._options())
        else:
            _require_queue(self.name)

    def _options(self) -> dict[str, Any]:
        return {"capacity": max(SMALLEST, 1 << (max(self.size, 1) - 1).bit_length())}

    def open(self, sender: str | None = None, filtself: bool = True) -> None:
        """Registers this process; `sender` is the name in its messages, the process id unless given."""
        if not self.create:
            _require_queue(self.name)
        channel = f"sync:{self.name}"
        name: Any = shared_name((sender or str(os.getpid())).encode("utf-8", "surrogateescape"))
        try:
            self._queue = penstock.join(channel, name=name, own=not filtself, **self._options())
        except penstock.Mismatch:
            self._queue = penstock.join(channel, name=name, own=not filtself)  # the size is the choice of the first
        self._screened = frozenset(), frozenset()
        self.sender = self._queue.name.encode("utf-8", "surrogateescape")
        if filtself:
            self.scrnsend.add(self.sender)

    def _open_queue(self) -> SyncMember:
        if self._queue is None:
            raise RuntimeError("this process is not registered: call open first")
        return self._queue

    def close(self) -> None:
        """Leaves; unread messages count as read. The last one removes the queue, also one that had no member."""
        if self._queue is not None:
            self._queue.close()
            self._queue = None
            _made.pop(self.name, None)
        elif self.sender is None:
            _remove_if_empty(self.name)

    def append(self, msgtype: Any = "", msg: Any = "", block: bool = False, timer: float | None = 0.5) -> None:
        """Adds a message. MemoryError if there is no room; with `block` only after `timer` seconds (None: never)."""
        queue = self._open_queue()
        try:
            queue.send(_bytes(msg), timer if block else 0, type=_bytes(msgtype))
        except (penstock.TooLarge, penstock.Busy, TimeoutError) as error:
            raise MemoryError(str(error)) from error

    def pop(
        self, block: bool = False, timer: float | None = 0.5, decode: bool = True
    ) -> tuple[str, str, str] | tuple[bytes, bytes, bytes] | None:
        """(sender, type, message) of the next message that is not screened, or None; with `block` only after `timer` seconds."""
        queue = self._open_queue()
        wanted = frozenset(self.scrnsend), frozenset(self.scrntype)
        if wanted != self._screened:
            queue.screen(senders=wanted[0], types=wanted[1])
            self._screened = wanted
        try:
            message = queue.recv(timer) if block else queue.try_recv()
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
        return {**self.__dict__, "_queue": None, "_screened": (frozenset(), frozenset())}

    def __str__(self) -> str:
        sender = None if self.sender is None else self.sender.decode()
        return f"PySyncQ(name={self.name},size={self.size},sender={sender})"


def _make(name: str, options: dict[str, int]) -> None:
    """Creates the queue without members if it does not exist. It is removed with this process if no member ever joined."""
    discovery.make(f"sync:{name}", **options)
    with contextlib.suppress(penstock.NotFound):
        _made[name] = penstock.inspect(f"sync:{name}").created_ns


def _require_queue(name: str) -> None:
    """`NotFound` without such a queue."""
    try:
        penstock.inspect(f"sync:{name}")
    except penstock.NotFound as error:
        raise penstock.NotFound(
            errno.ENOENT, f"there is no queue sync:{name}: make it with create=True before create=False asks for it"
        ) from error


def _remove_if_empty(name: str) -> None:
    """Removes the queue if it has no member."""
    with contextlib.suppress(penstock.PenstockError):
        if not penstock.inspect(f"sync:{name}").members:
            penstock.join(f"sync:{name}").close()  # the last one that leaves removes it, safely


class _Made(dict[str, int]):
    """The names of the queues that this process made, and when: they are removed with it if they never had a member."""

    def __init__(self) -> None:
        super().__init__()
        self.pid = os.getpid()
        atexit.register(self.clean)

    def clean(self) -> None:
        """Removes those without a member."""
        for name, created_ns in self.items():
            with contextlib.suppress(penstock.PenstockError):
                if os.getpid() == self.pid and penstock.inspect(f"sync:{name}").created_ns == created_ns:
                    _remove_if_empty(name)


_made = _Made()
