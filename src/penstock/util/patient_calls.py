"""Calls to another machine that their caller need not await: each is in a thread of its own, so a signal or a deadline ends the wait.

A call that was left goes on. The same call again, with a deadline too, waits for that one: its result is at most a second old. What needs
several calls keeps their results in an `Attempt` until it is done: so callers that never wait long still get on. Knows no connection.
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from penstock.errors import SystemFailure, TimedOut

FRESH_SECONDS = 1.0
ASK_SECONDS = 0.05  # that a call which does not wait gives another machine for an answer
KEPT = 64  # calls that were left, at most; the oldest are forgotten
_end: contextvars.ContextVar[float | None] = contextvars.ContextVar("end", default=None)
_attempt: contextvars.ContextVar[Attempt | None] = contextvars.ContextVar("attempt", default=None)


class Attempt:
    """Something that needs several calls, and is begun anew after a deadline: those that had ended are not made again. One thread at a time,
    with those that it starts."""

    def __init__(self) -> None:
        self.results: dict[Any, Any] = {}
        self.is_unfinished = False

    def begin(self) -> None:
        """Another try. The results of one that no deadline ended are forgotten."""
        if not self.is_unfinished:
            self.results.clear()
        self.is_unfinished = False


@contextlib.contextmanager
def within(seconds: float | None, attempt: Attempt | None = None) -> Iterator[None]:
    """Calls within the block are waited for so long, in all. None: until they end. attempt: what they are for; the block is a try."""
    ends = _end.set(None if seconds is None else time.monotonic() + seconds)
    tries = _attempt.set(attempt)
    if attempt is not None:
        attempt.begin()
    try:
        yield
    finally:
        _end.reset(ends)
        _attempt.reset(tries)


class Unfinished(SystemFailure):
    """A call goes on beyond the deadline."""


@contextlib.contextmanager
def in_time(seconds: float | None, what: str) -> Iterator[None]:
    """As `within`, but `TimedOut` if a call takes longer. An answer always has `ASK_SECONDS`. what: for the error."""
    try:
        with within(None if seconds is None else max(seconds, ASK_SECONDS)):
            yield
    except Unfinished as error:
        raise TimedOut(f"{what}: {error.strerror}") from None


class PatientCalls:
    """The calls of one client. Any thread may call."""

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._left: dict[Any, tuple[Future[Any], list[float]]] = {}

    def run(self, key: Any, call: Callable[[], Any]) -> Any:
        """The result of a call, or its error. key: the same for calls that are the same. `Unfinished` at the deadline of `within`."""
        attempt = _attempt.get()
        if attempt is None:
            return self._ended(key, call, None)
        if (self, key) not in attempt.results:
            attempt.results[self, key] = self._ended(key, call, attempt)
        return attempt.results[self, key]

    def _ended(self, key: Any, call: Callable[[], Any], attempt: Attempt | None) -> Any:
        end = _end.get()
        with self._lock:
            future, ended = self._left.pop(key, (None, []))
        is_old = bool(ended) and time.monotonic() - ended[0] > FRESH_SECONDS
        if future is None or end is None or (is_old and attempt is None):
            future, ended = Future(), []
            threading.Thread(target=_work, args=(future, ended, call), name="penstock-archive", daemon=True).start()
        try:
            return future.result(None if end is None else max(end - time.monotonic(), 0.0))
        except TimeoutError:
            if future.done():  # just now, or the error is its own
                return future.result()
            self._keep(key, future, ended)
            if attempt is not None:
                attempt.is_unfinished = True
            raise Unfinished(errno.EINPROGRESS, f"{self._name} has not answered yet") from None

    def _keep(self, key: Any, future: Future[Any], ended: list[float]) -> None:
        with self._lock:
            self._left[key] = future, ended
            while len(self._left) > KEPT:
                del self._left[next(iter(self._left))]


def _work(future: Future[Any], ended: list[float], call: Callable[[], Any]) -> None:
    try:
        found = call()
    except BaseException as error:  # its caller raises it
        future.set_exception(error)
    else:
        ended.append(time.monotonic())
        future.set_result(found)
