"""A level-triggered descriptor for a ZeroMQ socket, whose own descriptor is edge-triggered and is reset by any call on the socket."""

from __future__ import annotations

import contextlib
import os
import select


class Watch:
    """A descriptor that is readable while ZeroMQ has events for its socket, or while `say(True)` holds. It stays open for the life of this object."""

    def __init__(self, *descriptors: int) -> None:
        self._news = descriptors
        self._known = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_signalled = self._written = (
            False  # two, because a signal may interrupt between the descriptor and its flag
        )
        self._both = select.epoll()
        for descriptor in descriptors:
            self._both.register(descriptor, select.EPOLLIN)
        self._both.register(self._known, select.EPOLLIN)

    def fileno(self) -> int:
        """The descriptor."""
        return self._both.fileno()

    def say(self, ready: bool) -> None:
        """Whether there is something, as far as the socket knows."""
        if ready and not self._is_signalled:
            self._written = True
            os.eventfd_write(self._known, 1)
            self._is_signalled = True
        elif self._written and not ready:
            self._is_signalled = False
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._known)
            self._written = False

    def end(self) -> None:
        """The socket closes: from now on the descriptor is readable, so that every waiter wakes."""
        for descriptor in self._news:
            self._both.unregister(descriptor)
        self.say(True)

    def abandon(self) -> None:
        """In a forked child: it is the parent's."""
        self._both.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._known)
