"""Pipes and mailboxes between the threads of a process: Python objects, passed by reference."""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Iterator
from types import GenericAlias
from typing import Any, Self

from penstock._native import core as _native
from penstock.channels.waiting.iteration import until_closed, until_closed_async
from penstock.channels.waiting.loops import readable
from penstock.errors import TimedOut


class Empty(TimedOut, queue.Empty):
    """Nothing came within the timeout. It is also the `queue.Empty` that `queue.SimpleQueue` raises."""


class Pipe(_native.ThreadPipe):
    """A lock-free, unbounded queue of Python objects from one thread to another: one thread puts, one thread gets.

    Named like `queue.SimpleQueue`, and with `close`, `fileno`, `get_async`, iteration. `put` never blocks. NotImplemented cannot be put.
    After ZeroMQ's ypipe (docs/design/ypipe.md).
    """

    _empty = Empty
    __class_getitem__: Any = classmethod(GenericAlias)  # Pipe[int] in annotations, as of `queue.SimpleQueue`

    def empty(self) -> bool:
        """Whether the queue is empty at this moment."""
        return self.qsize() == 0

    async def get_async(self) -> Any:
        """The next object; waits in the running event loop. Cancelling it loses nothing."""
        while (item := self.take(0)) is NotImplemented:
            await readable(self.fileno())
        return item

    def __iter__(self) -> Iterator[Any]:
        """Every object, waiting for it; ends when the pipe is closed."""
        return until_closed(lambda: self.take(None))

    def __aiter__(self) -> AsyncIterator[Any]:
        return until_closed_async(self.get_async)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Mailbox(_native.ThreadMailbox):
    """A queue of Python objects from many threads to one. Writers take turns under a lock; the reader takes none. Otherwise as `Pipe`.

    After ZeroMQ's mailbox (docs/design/mailbox.md).
    """

    _empty, empty, get_async = Empty, Pipe.empty, Pipe.get_async
    __class_getitem__: Any = classmethod(GenericAlias)
    __iter__, __aiter__, __exit__ = Pipe.__iter__, Pipe.__aiter__, Pipe.__exit__

    def __enter__(self) -> Self:
        return self


__all__ = ["Empty", "Mailbox", "Pipe"]
