"""Redraws a terminal in place, and reads its keys. Knows terminals; knows nothing of the content."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence

from penstock.cli.terminal import output

SLICE = 0.5  # seconds: a signal just before a wait is handled only after it


def is_live() -> bool:
    """Whether standard output is a terminal that can be drawn in place."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def join_line(line: Sequence[output.Part]) -> str:
    """A line as text without styles."""
    return "".join(part if isinstance(part, str) else part[0] for part in line).rstrip()


class Screen:
    """Draws lines and reads keys. show: replaces the lines on the screen; they must fit. keys: whether there are keys."""

    def __init__(self, show: Callable[[Sequence[Sequence[output.Part]]], None], keys: bool) -> None:
        self.show, self._keys = show, keys

    def size(self) -> tuple[int, int]:
        """(columns, lines) now: terminals change their size."""
        found = shutil.get_terminal_size()
        return max(20, found.columns), max(5, found.lines)

    def key(self, seconds: float) -> str | None:
        """The next key pressed within that time, or within a slice of it, or None. Arrows and other long codes are None."""
        if not self._keys:
            time.sleep(min(seconds, SLICE))
            return None
        if not select.select([sys.stdin], [], [], min(seconds, SLICE))[0]:
            return None
        pressed = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
        return pressed if len(pressed) == 1 else "q" if not pressed else None  # an input that has ended ends the screen


@contextlib.contextmanager
def take_over_terminal() -> Iterator[Screen]:
    """Takes over the terminal for the block, and restores it at the end."""
    with single_keys() as has_keys, output.redrawn() as show:
        yield Screen(show, has_keys)


@contextlib.contextmanager
def single_keys() -> Iterator[bool]:
    """Gives each key at once for the block, without a line's end; the terminal is restored at the end. False: there is no terminal.

    Ctrl-Z does nothing: it would leave the shell on a screen without a cursor.
    """
    before = termios.tcgetattr(sys.stdin) if sys.stdin is not None and sys.stdin.isatty() else None
    try:
        if before is not None:
            tty.setcbreak(sys.stdin)
            attributes = termios.tcgetattr(sys.stdin)
            attributes[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(sys.stdin, termios.TCSANOW, attributes)
        yield before is not None
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
