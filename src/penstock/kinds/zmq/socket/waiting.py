"""Waiting for a ZeroMQ socket: level-triggered descriptors, calls that block, and calls in an event loop.

It knows the socket, its lock and its events. It must never open, close or configure the socket.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.channels.checks import limit_of, seconds
from penstock.channels.uri.channel import Channel
from penstock.channels.waiting import loops
from penstock.channels.waiting.long_waits import LongWait, Tell, in_event_loop
from penstock.errors import TimedOut, Unsupported
from penstock.kinds.zmq.socket import process as zmq_process
from penstock.kinds.zmq.socket.monitor import Monitor
from penstock.kinds.zmq.socket.watch import Watch
from penstock.util.strict import Strict

if TYPE_CHECKING:
    import zmq

T = TypeVar("T")
SLICE = 0.05  # seconds between two checks for events that another thread's call on the socket has consumed


class ZmqWaiting(Strict):
    """A socket, its lock, and the threads and event loops that wait for it. A call that waits does not hold the lock."""

    receives: bool

    def __init__(self, channel: Channel, *, receives: bool, spin: float) -> None:
        self._zmq = zmq_process.pyzmq()
        self._channel = channel
        self.receives = receives
        self._spin = seconds(spin, "spin")
        self._lock = threading.RLock()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._watches: dict[int, Watch] = {}
        self._sleepers = 0  # threads that wait on them
        self._trying = False  # whether a waiting call tries: the events that it consumes are its own
        self._lent = False  # whether an event loop or another caller has the descriptor
        self._deferred: deque[Any] = deque()  # messages that were taken and did not fit: the next call gets them

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    def _open(self) -> zmq.Socket[bytes]:
        """The socket, with the lock held."""
        raise NotImplementedError

    def _refresh(self) -> None:
        """After a call on the socket, with the lock held: descriptors are updated."""
        if (self._sleepers or self._lent) and self._socket is not None:
            self._notify_watches(not self._trying)

    def _notify_watches(self, news: bool) -> None:
        """news: whether the call may have consumed an event that other waiters need."""
        if self._socket is not None:
            events: int = self._socket.getsockopt(self._zmq.EVENTS)  # type: ignore[assignment]
            for mask, watch in self._watches.items():
                kept = mask == self._zmq.POLLIN and bool(self._deferred)
                watch.say(bool(events & mask) or kept if mask else news)

    def _watch(self, mask: int) -> int:
        """A descriptor that is readable while the socket may be read, or written. mask: 0 for news of any kind."""
        with self._lock:
            socket = self._open()
            if mask not in self._watches:
                news: list[int] = [socket.getsockopt(self._zmq.FD)]  # type: ignore[list-item]
                if not mask and self._monitor is not None:
                    news.append(self._monitor.fileno())
                self._watches[mask] = Watch(*news)
            self._notify_watches(bool(mask))
            return self._watches[mask].fileno()

    def _try_once(self, attempt: Callable[[], T | None]) -> tuple[int, T | None]:
        """A descriptor that is readable after the next event, and the result of an attempt that consumed all events before."""
        with self._lock:
            descriptor = self._watch(0)
            self._trying = True
            try:
                return descriptor, attempt()
            finally:
                self._trying = False

    def _tell_wait(self, what: str, seconds: float) -> None:
        """Logs that a wait has taken long. what: it is for."""
        raise NotImplementedError

    def _tell_of(self, mask: int) -> Tell:
        """Logs a wait that has taken long. mask: as in `_until`."""
        what = "messages" if mask and self.receives else "readers"
        return lambda seconds: self._tell_wait(what, seconds)

    def _tell_room(self, seconds: float) -> None:
        self._tell_wait("room", seconds)

    def _until(
        self, attempt: Callable[[], T | None], mask: int, timeout: float | None, tell: Tell | None = None
    ) -> T | None:
        """The first result of `attempt` that is not None; None after `timeout` seconds. mask: what to wait for; 0: any news. tell: logs the
        wait, if it takes long; by default as a wait of the program."""
        limit = limit_of(timeout, self)
        found = attempt()
        if found is not None or limit == 0:
            return found
        deadline = math.inf if limit is None else time.monotonic() + limit
        if self._spin:
            busy = min(time.monotonic() + self._spin, deadline)
            while found is None and time.monotonic() < busy:
                found = attempt()
            if found is not None:
                return found
        with self._lock:
            self._sleepers += 1
        try:
            return self._sleep_between_attempts(attempt, mask, deadline, LongWait(tell or self._tell_of(mask)))
        finally:
            with self._lock:
                self._sleepers -= 1

    def _sleep_between_attempts(
        self, attempt: Callable[[], T | None], mask: int, deadline: float, long: LongWait
    ) -> T | None:
        found = None
        while found is None and (left := deadline - time.monotonic()) > 0:
            long.look()
            if mask:
                zmq_process.sleep_on(self._watch(mask), min(left, long.left()))
                found = attempt()
            else:
                descriptor, found = self._try_once(attempt)
                if found is None:
                    zmq_process.sleep_on(descriptor, min(left, SLICE))
        return attempt() if found is None else found

    async def _until_async(
        self, attempt: Callable[[], T | None], mask: int, timeout: float | None, tell: Tell | None = None
    ) -> T | None:
        """`_until` in the running event loop. Cancelled, it consumes no message."""
        left = limit_of(timeout, self)
        found = attempt()
        if found is not None or left == 0:
            return found
        import asyncio

        try:
            with in_event_loop(tell or self._tell_of(mask)):
                async with asyncio.timeout(left):
                    return await self._await_attempt(attempt, mask)
        except TimedOut:  # of the attempt
            raise
        except TimeoutError:
            return None

    async def _await_attempt(self, attempt: Callable[[], T | None], mask: int) -> T:
        if not mask:
            return await self._awaited_news(attempt)
        found = None
        while found is None:
            self._lent = True
            await loops.readable(self._watch(mask))
            found = attempt()
        return found

    async def _awaited_news(self, attempt: Callable[[], T | None]) -> T:
        import asyncio

        with self._lock:
            self._sleepers += 1
        try:
            while True:
                descriptor, found = self._try_once(attempt)
                if found is not None:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SLICE):
                        await loops.readable(descriptor)
        finally:
            with self._lock:
                self._sleepers -= 1

    def fileno(self) -> int:
        """A descriptor that is readable while there may be something to receive. A call that finds nothing makes it unreadable."""
        if not self.receives:
            raise Unsupported(f"{self.channel}: a {type(self).__name__} only sends, so there is nothing to wait for")
        self._lent = True
        return self._watch(self._zmq.POLLIN)

    def ready(self) -> bool:
        """Whether there is something to receive now."""
        with self._lock:
            events: int = self._open().getsockopt(self._zmq.EVENTS)  # type: ignore[assignment]
            self._refresh()
            return bool(events & self._zmq.POLLIN) or bool(self._deferred)

    def _abandon_watches(self) -> None:
        """In a forked child: the watches, and the threads that wait on them, are the parent's."""
        for watch in self._watches.values():
            watch.abandon()
        self._watches, self._sleepers, self._lent, self._trying = {}, 0, False, False
