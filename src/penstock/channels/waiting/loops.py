"""Waiting on descriptors: in an event loop, and on several of any kind. Knows no channel and no handle."""

from __future__ import annotations

import contextlib
import math
import select
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.channels.waiting.long_waits import Tell, in_event_loop
from penstock.errors import TimedOut

if TYPE_CHECKING:
    import asyncio

    Loop = asyncio.AbstractEventLoop
    Waiters = set[asyncio.Future[None]]

T = TypeVar("T")

TICK = 0.02
POLL_MAX = 1e6  # seconds, 12 days: poll takes no more. A longer wait polls again
_waiting: weakref.WeakKeyDictionary[Loop, dict[int, Waiters]] = weakref.WeakKeyDictionary()


def _wake(loop: Loop, fd: int) -> None:
    loop.remove_reader(fd)
    for waiter in _waiting[loop].pop(fd, set()):
        if not waiter.done():
            waiter.set_result(None)


async def readable(*fds: int) -> None:
    """Until one of the descriptors is readable, in the running event loop.

    Several tasks may wait on the same descriptor: a loop keeps one reader for each.
    """
    import asyncio  # most programs have no event loop, and need not load it

    loop = asyncio.get_running_loop()
    waiting = _waiting.setdefault(loop, {})
    future: asyncio.Future[None] = loop.create_future()
    joined: dict[int, Waiters] = {}
    for fd in fds:
        waiters = joined[fd] = waiting.setdefault(fd, set())
        waiters.add(future)
        if len(waiters) == 1:
            loop.add_reader(fd, _wake, loop, fd)
    try:
        await future
    finally:
        for fd, waiters in joined.items():
            waiters.discard(future)
            if not waiters and waiting.get(fd) is waiters:
                del waiting[fd]
                if not loop.is_closed():
                    loop.remove_reader(fd)


async def patiently(
    awaited: Awaitable[T], timeout: float | None, message: str | Callable[[], str], tell: Tell | None = None
) -> T:
    """The awaited result, or `TimedOut` with that message, or its result, after `timeout` seconds. tell: logs it once, if it takes long."""
    import asyncio

    try:
        with contextlib.nullcontext() if tell is None else in_event_loop(tell):
            async with asyncio.timeout(timeout):
                return await awaited
    except TimedOut:
        raise
    except TimeoutError:
        raise TimedOut(message if isinstance(message, str) else message()) from None


class Pump:
    """Receives for all tasks of one event loop that wait for answers on one handle.

    turn: reads the available messages, and checks for deaths, which have no signal; called when the descriptor is readable, and every 20 ms. If it
    raises, every task that waits gets the error.
    """

    def __init__(self, fileno: Callable[[], int], turn: Callable[[], None]) -> None:
        import asyncio

        self.loop = asyncio.get_running_loop()
        self._fileno, self._turn = fileno, turn
        self._fd = -1
        self._timer: asyncio.TimerHandle | None = None
        self._futures: Waiters = set()

    @property
    def idle(self) -> bool:
        """Whether no task waits."""
        return not self._futures

    async def until(self, future: asyncio.Future[None]) -> None:
        """Waits for a future that `turn`, or another thread, will set."""
        if not self._futures:
            self._fd = self._fileno()
            self.loop.add_reader(self._fd, self._run)
            self._timer = self.loop.call_later(TICK, self._tick)
        self._futures.add(future)
        try:
            await future
        finally:
            self._futures.discard(future)
            if not self._futures:
                self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.loop.is_closed():
            self.loop.remove_reader(self._fd)

    def _tick(self) -> None:
        self._run()
        if self._futures:
            self._timer = self.loop.call_later(TICK, self._tick)

    def _run(self) -> None:
        try:
            self._turn()
        except Exception as error:
            for future in self._futures:
                if not future.done():
                    future.set_exception(error)


class Pending(Protocol):
    """A request whose reply is awaited. `_wake` is called once it is done."""

    _wake: Callable[[], None] | None

    @property
    def done(self) -> bool:
        """Whether there is a reply, or will be none."""
        ...


def waker(future: asyncio.Future[None]) -> Callable[[], None]:
    """A function that sets a future from any thread. It does nothing if the future is done, or its loop is closed."""
    loop = future.get_loop()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(None))

    return wake


class Pumps:
    """The pumps of one handle that answers are awaited on: one for each event loop that has tasks waiting."""

    def __init__(self) -> None:
        self._pumps: dict[Loop, Pump] = {}

    def clear(self) -> None:
        """Forgets all of them: in a forked child they are its parent's."""
        self._pumps.clear()

    async def answered(self, pending: Pending, fileno: Callable[[], int], turn: Callable[[], None]) -> None:
        """Waits until a request is done, whichever thread or task receives its reply. fileno, turn: see `Pump`."""
        import asyncio

        loop = asyncio.get_running_loop()
        pump = self._pumps.get(loop)
        if pump is None:
            pump = self._pumps[loop] = Pump(fileno, turn)
        future = loop.create_future()
        pending._wake = waker(future)
        try:
            if not pending.done:  # another thread may have received the reply just now
                await pump.until(future)
        finally:
            if pump.idle:
                self._pumps.pop(loop, None)


def wait(handles: Iterable[Any], check: Callable[[], list[T]], timeout: float | None) -> list[T]:
    """The result of `check`, tried again whenever a handle's descriptor is readable, for up to `timeout` seconds. A descriptor is only a hint."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    watched = list(handles)
    while True:
        poller = select.poll()
        for handle in watched:
            poller.register(handle.fileno(), select.POLLIN)
        found = check()
        left = deadline - time.monotonic()
        if found or left <= 0:
            return found
        poller.poll(math.ceil(min(left, POLL_MAX) * 1000))


async def wait_async(handles: Iterable[Any], check: Callable[[], list[T]], timeout: float | None) -> list[T]:
    """The result of `check`, as `wait` gives it, in the running event loop."""
    watched = list(handles)

    async def again() -> list[T]:
        while not (found := check()):
            await readable(*(handle.fileno() for handle in watched))
        return found

    import asyncio

    try:
        async with asyncio.timeout(timeout):
            return check() if timeout == 0 else await again()
    except TimeoutError:
        return []
