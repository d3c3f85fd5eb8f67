"""Waits that last longer than PENSTOCK_WARN_AFTER are told once each. Knows no handle: who waits says what for.

The compiled part tells its own waits of threads.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

Tell = Callable[[float], object]  # logs a wait that has taken so many seconds


def untold(_: float) -> None:
    """Of a wait that is no program's own, or a part of a longer one."""


_after = math.inf


def tell_after(seconds: float) -> None:
    """Waits that take longer are told. 0: none."""
    global _after
    _after = seconds or math.inf


class LongWait:
    """A wait of a thread, which sleeps in pieces and looks at it in between."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._begun, self._told = tell, time.monotonic(), _after == math.inf

    def left(self) -> float:
        """Seconds until it is to be told."""
        return math.inf if self._told else max(self._begun + _after - time.monotonic(), 0.0)

    def look(self) -> None:
        """Tells it, if it has taken long."""
        if not self._told and (taken := time.monotonic() - self._begun) >= _after:
            self._told = True
            self._tell(taken)


@contextlib.contextmanager
def in_event_loop(tell: Tell) -> Iterator[None]:
    """A wait of a task: the block."""
    if _after == math.inf:
        yield
        return
    import asyncio

    begun = time.monotonic()
    timer = asyncio.get_running_loop().call_later(_after, lambda: tell(time.monotonic() - begun))
    try:
        yield
    finally:
        timer.cancel()
