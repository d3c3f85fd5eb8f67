"""Whether an event loop goes on: how long its thread was held up between two beats.

Time that the machine did not give to a thread of this process is not counted: such a thread may have the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

LIMIT = 0.05  # seconds for which a call may hold the loop up
BEAT = 0.002
ATTEMPTS = 3  # a call that holds the loop up does so every time; a machine that stops for a moment does not
HANG = 60


class Pulse:
    """A task that beats. held: the longest time between two beats, less what threads spent waiting for a processor."""

    def __init__(self) -> None:
        self._threads: dict[
            str, int
        ] = {}  # each one's file of the time for which it waited, kept open: it is read at each beat
        self._waited: dict[str, int] = {}  # nanoseconds, of each thread
        self._total = 0
        self.beats, self.held = 0, 0.0

    def _now(self) -> float:
        for thread in os.listdir("/proc/self/task"):
            try:
                if thread not in self._threads:
                    self._threads[thread] = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
                waited = int(os.pread(self._threads[thread], 100, 0).split()[1])
            except (OSError, IndexError):  # it has ended, or the kernel does not say
                continue
            self._total += max(0, waited - self._waited.get(thread, 0))
            self._waited[thread] = waited
        return time.monotonic() - self._total / 1e9

    def close(self) -> None:
        """Closes its files."""
        while self._threads:
            os.close(self._threads.popitem()[1])

    async def beat(self) -> None:
        """Until it is cancelled, or the loop was held up."""
        last = self._now()
        while self.held < LIMIT:
            await asyncio.sleep(BEAT)
            now = self._now()
            self.beats, self.held, last = self.beats + 1, max(self.held, now - last), now


async def _watched(main: Callable[[Pulse], Coroutine[Any, Any, None]], pulse: Pulse) -> None:
    tasks = [asyncio.create_task(pulse.beat()), asyncio.create_task(main(pulse))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[1].done():
            await tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def run(main: Callable[[Pulse], Coroutine[Any, Any, None]], prepare: Callable[[], None] = lambda: None) -> int:
    """Runs `main(pulse)` in an event loop, and again if that was held up. The beats; AssertionError if it was held up every time.

    prepare: is called before each attempt.
    """

    def hangs(*_: object) -> None:
        raise AssertionError(f"the event loop hangs: {HANG} s")

    held = []
    before = signal.signal(signal.SIGALRM, hangs)
    gc.disable()
    try:
        for _ in range(ATTEMPTS):
            prepare()
            signal.alarm(HANG)
            pulse = Pulse()
            try:
                asyncio.run(_watched(main, pulse))
            finally:
                pulse.close()
            if pulse.held < LIMIT:
                return pulse.beats
            held.append(round(pulse.held, 3))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    raise AssertionError(f"the event loop was held up for {held} s")


async def beats(pulse: Pulse, count: int) -> None:
    """Until the pulse has beaten so many times more."""
    wanted = pulse.beats + count
    while pulse.beats < wanted:
        await asyncio.sleep(BEAT)
