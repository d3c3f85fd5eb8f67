"""The pace of a playing: its rate, pauses and steps, which may change while it runs. Knows clocks; knows no message."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.channels.checks import callback, flag, more_than_zero, whole
from penstock.util.clock import Clock
from penstock.util.strict import Strict

TURN_SECONDS = 0.025  # between two turns: 40 a second, as ROS 2 publishes its clock
STEPS_MAX = 1 << 31
SOON = 1e-9  # seconds that sums of floats may lack


class Pace(Strict):
    """How fast `Archive.play` plays. All methods may be called by any thread, while it plays.

    rate: recorded seconds in a second; None: as fast as possible. paused: it begins with a pause. turn: called with the pace by the thread
    that plays, some forty times a second, and before the first message: to read keys, or a channel.
    """

    turn: Callable[[Pace], None] | None

    def __init__(
        self, rate: float | None = 1.0, *, paused: bool = False, turn: Callable[[Pace], None] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._steps, self._stopped = 0, False
        self._paused = flag(paused, "paused")
        callback(turn, "turn")
        self.turn = turn
        self.rate = rate
        self._is_steady = False

    @classmethod
    def steady(cls, rate: float | None) -> Pace:
        """A pace that nobody else has, so that nothing changes it."""
        made = cls(rate)
        made._is_steady = True
        return made

    @property
    def rate(self) -> float | None:
        """Recorded seconds in a second; None: as fast as possible. `Invalid` for a rate that is not above zero."""
        return self._rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        if rate is not None:
            more_than_zero(rate, "rate")
        self._rate = None if rate == math.inf else rate

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self._paused

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def pause(self) -> None:
        """Plays no message until `resume`, except for those of `step`."""
        self._paused = True

    def resume(self) -> None:
        """Goes on at the message at which it paused, as if no time had passed."""
        with self._lock:
            self._paused, self._steps = False, 0

    def step(self, count: int = 1) -> None:
        """Plays so many messages more while it is paused, at once."""
        number = whole(count, "count", 1, STEPS_MAX)
        with self._lock:
            self._steps = min(self._steps + number, STEPS_MAX)

    def stop(self) -> None:
        """Ends the playing, with its result. It cannot begin again."""
        self._stopped = True

    def _take_step(self) -> bool:
        with self._lock:
            taken = self._paused and self._steps > 0
            self._steps -= taken
            return taken


class Playhead:
    """The recorded time that one pass of a playing has reached. moved: called with it, at each turn."""

    def __init__(self, pace: Pace, clock: Clock, moved: Callable[[int], None] | None = None) -> None:
        self._pace, self._clock, self._moved = pace, clock, moved
        self._has_turns = pace.turn is not None or moved is not None
        self._slices = self._has_turns or not pace._is_steady
        self._turned = float("-inf")
        self._first: int | None = None
        self._reached = 0.0  # recorded seconds behind the first message
        self._last = clock.monotonic()

    def due(self, found: Iterator[Any]) -> Iterator[Any]:
        """The messages, each when it is due. It ends when the pace is stopped."""
        for message in found:
            if not self._wait(message.time_ns):
                return
            yield message

    def _wait(self, time_ns: int) -> bool:
        """Waits until a message is due; False if the pace was stopped."""
        if self._first is None:
            self._first = time_ns
        target = (time_ns - self._first) / 1e9
        while True:
            self._turn(time_ns)
            if self._pace.stopped:
                return False
            rate, now = self._pace.rate, self._clock.monotonic()
            if self._pace.paused:
                self._last = now
                if self._pace._take_step():
                    self._reached = max(self._reached, target)
                    return True
                self._clock.sleep(TURN_SECONDS)
                continue
            if rate is None:
                self._reached, self._last = max(self._reached, target), now
                return True
            self._reached += (now - self._last) * rate
            self._last = now
            ahead = (target - self._reached) / rate
            if ahead <= SOON:
                return True
            self._clock.sleep(min(ahead, TURN_SECONDS) if self._slices else ahead)

    def _turn(self, time_ns: int) -> None:
        """A turn, if one is due."""
        if not self._has_turns or self._clock.monotonic() - self._turned < TURN_SECONDS - SOON:
            return
        self._turned = self._clock.monotonic()
        if self._pace.turn is not None:
            self._pace.turn(self._pace)
        if self._moved is not None and self._first is not None:
            self._moved(min(self._first + int(self._reached * 1e9), max(time_ns, self._first)))
