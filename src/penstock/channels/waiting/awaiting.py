"""Waiting for a compiled handle in an event loop: for a message, for room, for subscriptions.

Knows descriptors, deadlines and the gates of tests. It must never know messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast

from penstock._native import core as _native
from penstock.channels.checks import HasChannel, limit_of
from penstock.channels.waiting.loops import patiently, readable
from penstock.errors import TimedOut

T = TypeVar("T")


async def room(
    publication: _native.Publication,
    attempt: Callable[[], T | None],
    timeout: float | None,
    why: str | Callable[[], str],
) -> T:
    """The first result of `attempt` that is not None. Tries again when there may be room. Raises `TimedOut` with the reason."""
    return await _until([publication], attempt, timeout, why)


async def room_or_message(
    publication: _native.Publication,
    subscription: _native.Subscription,
    attempt: Callable[[], T | None],
    timeout: float | None,
    why: str | Callable[[], str],
) -> T:
    """The same, but also tries again when a message arrives: the caller may have to read it to make room."""
    return await _until([publication, subscription], attempt, timeout, why)


async def members(
    publication: _native.Publication,
    attempt: Callable[[], T | None],
    timeout: float | None,
    why: str | Callable[[], str],
) -> T:
    """The same, but tries again when a subscription joins."""
    return await _until([publication], attempt, timeout, why, members=True)


@contextlib.contextmanager
def noted(
    handle: _native.Publication | _native.Subscription, *, timed: bool = False, blocks: bool = False
) -> Iterator[_native.AwaitNote]:
    """A note of the wait in the block, which begins with the first sleep. blocks: its thread sleeps, and not only a task."""
    note = _native.AwaitNote(handle, False, timed, blocks)
    try:
        yield note
    finally:
        note.end()


class NotedWait:
    """Says why a wait that is noted lasts, or was in vain. why: the text of its error. what: it waits for."""

    def __init__(
        self, handle: _native.Publication | _native.Subscription, why: str | Callable[[], str], what: str
    ) -> None:
        self._handle, self._why, self._what = handle, why, what

    def error(self) -> str:
        """The text of its error, with the reason."""
        from penstock.channels.waiting import reasons  # only where a wait fails

        return (self._why if isinstance(self._why, str) else self._why()) + reasons.of_noted(self._handle, self._what)

    def tell(self, seconds: float) -> None:
        """Logs it, with the reason."""
        from penstock.channels.waiting import reasons

        reasons.tell_noted(self._handle, self._what, seconds)


async def in_time(awaited: Awaitable[T], timeout: float | None, wait: NotedWait) -> T:
    """The awaited result, or `TimedOut` after `timeout` seconds. A long wait is logged."""
    return await patiently(awaited, timeout, wait.error, wait.tell)


async def _until(
    handles: list[Any],
    attempt: Callable[[], T | None],
    timeout: float | None,
    why: str | Callable[[], str],
    *,
    members: bool = False,
) -> T:
    limit = limit_of(timeout, handles[0])
    found = attempt()
    if found is not None:
        return found
    if limit == 0:
        raise TimedOut(why if isinstance(why, str) else why())
    watches = [_native.EventWatch(handle, members) for handle in handles]
    note = _native.AwaitNote(handles[0], members, limit is not None)

    async def again() -> T:
        while True:
            for watch in watches:
                watch.prepare()
            found = attempt()
            if found is not None:
                return found
            armed = [watch.arm() for watch in watches]
            note.begin()
            await readable(*armed)

    try:
        return await in_time(again(), limit, NotedWait(handles[0], why, "readers" if members else "room"))
    finally:
        note.end()


async def message(
    subscription: _native.Subscription, attempt: Callable[[], T | None], timeout: float | None, why: str
) -> T:
    """The first result of `attempt` that is not None. Tries again when there may be a message.

    While a test holds the channel, the test ends the wait and not the clock.
    """
    limit = limit_of(timeout, cast("HasChannel", subscription))
    found = attempt()
    if found is not None:
        return found
    wait = _native.gate_wait(subscription)
    if limit == 0:
        raise TimedOut(why)

    note = _native.AwaitNote(subscription, False, limit is not None)

    async def again() -> T:
        while True:
            fd = subscription.fileno()
            note.begin()
            await readable(fd)
            found = attempt()
            if found is not None:
                return found
            if wait is not None and wait.over:
                raise TimedOut(why)

    try:
        return await in_time(again(), limit if wait is None else None, NotedWait(subscription, why, "messages"))
    finally:
        note.end()
        if wait is not None:
            wait.end()
