"""Injectable clocks: the system's and one for tests. No other module reads the time."""

from __future__ import annotations

import time
from typing import Protocol

from penstock._native import core

__all__ = ["Clock", "ManualClock", "SystemClock"]

ManualClock = core.ManualClock


class Clock(Protocol):
    """The clock of archives and replays."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


class SystemClock:
    """The machine's own time."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass, however many: infinity, too."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 3600.0))  # the system's sleep refuses long times
