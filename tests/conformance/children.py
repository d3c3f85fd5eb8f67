"""Forked children of a test: they wait for its word, say how far they are, and are killed, stopped and continued by it."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any


class Link:
    """A child's end: `say` tells the test, `heed` waits for its word."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write = read, write

    def say(self) -> None:
        """Tells the test that the child has come so far."""
        os.write(self._write, b".")

    def heed(self) -> None:
        """Waits until the test says go. The child ends when the test is gone."""
        if not os.read(self._read, 1):
            os._exit(3)


class Child:
    """A forked child that runs `work(link)`. Its exit status is 0 when the work returned.

    It is forked now, or with `late=True` when it is first told to go: it then has the `fake:` channels of this process.
    """

    def __init__(self, work: Callable[[Link], Any], *, late: bool = False) -> None:
        self._work = work
        self.pid = 0
        if not late:
            self._fork()

    def _fork(self) -> None:
        hers, mine = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(hers[1])
                os.close(mine[0])
                self._work(Link(hers[0], mine[1]))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(hers[0])
        os.close(mine[1])
        self._write, self._read = hers[1], mine[0]
        self._status: int | None = None

    def go(self) -> None:
        """Lets the child go on."""
        if self.pid == 0:
            self._fork()
        os.write(self._write, b".")

    def hear(self) -> None:
        """Waits until the child has come to its next `say`."""
        assert os.read(self._read, 1), f"the child ended with {self.wait()}"

    def kill(self) -> None:
        """`kill -9`; the child is gone when this returns."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def stop(self) -> None:
        """Stops the child; it does not run any more when this returns."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        """Continues a stopped child."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """The exit status of a child that ends by itself; below 0: the signal that killed it."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def close(self) -> None:
        """Leaves nothing of the child behind."""
        if self.pid == 0:
            return
        self.kill()
        os.close(self._write)
        os.close(self._read)
