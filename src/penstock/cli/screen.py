"""A terminal that is drawn again and again in place, and the keys pressed there. Knows terminals; knows nothing of what is drawn."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence

from penstock.cli import output

_STYLES = {"bold": 1, "dim": 2, "underline": 4, "red": 31, "yellow": 33, "cyan": 36}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the alternate screen, without a cursor
SLICE = 0.5  # seconds: a signal just before a wait is heeded only behind it
_HOME, _LINE_END, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def is_live() -> bool:
    """Whether standard output is a terminal that can be drawn in place."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def joined(line: Sequence[output.Part]) -> str:
    """A line as text without styles."""
    return "".join(part if isinstance(part, str) else part[0] for part in line).rstrip()


class Screen:
    """Draws lines and reads keys. Where standard input is no terminal there are no keys."""

    def __init__(self) -> None:
        self._keys = sys.stdin is not None and sys.stdin.isatty()
        self._plain = bool(os.environ.get("NO_COLOR"))

    def size(self) -> tuple[int, int]:
        """(columns, lines) now: terminals change their size."""
        found = shutil.get_terminal_size()
        return max(20, found.columns), max(5, found.lines)

    def show(self, lines: Sequence[Sequence[output.Part]]) -> None:
        """Draws these lines in place of what is there. They must fit."""
        text = "".join(self._drawn(line) + _LINE_END + "\r\n" for line in lines).removesuffix("\r\n")
        sys.stdout.write(_HOME + text + _BELOW)
        sys.stdout.flush()

    def key(self, seconds: float) -> str | None:
        """The next key pressed within that time, or within a slice of it, or None. Arrows and other long codes are None."""
        if not self._keys:
            time.sleep(min(seconds, SLICE))
            return None
        if not select.select([sys.stdin], [], [], min(seconds, SLICE))[0]:
            return None
        pressed = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
        return pressed if len(pressed) == 1 else "q" if not pressed else None  # an input that has ended ends the screen

    def _drawn(self, line: Sequence[output.Part]) -> str:
        made = []
        for part in line:
            text, style = (part, "") if isinstance(part, str) else part
            codes = ";".join(str(_STYLES[word]) for word in style.split())
            made.append(
                output.printable(text) if self._plain or not codes else f"\x1b[{codes}m{output.printable(text)}\x1b[0m"
            )
        return "".join(made)


def _ignore_suspend() -> None:
    """Ctrl-Z does nothing: it would leave the shell on a screen without a cursor."""
    attributes = termios.tcgetattr(sys.stdin)
    attributes[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(sys.stdin, termios.TCSANOW, attributes)


@contextlib.contextmanager
def opened() -> Iterator[Screen]:
    """Takes the terminal over for the block, and leaves it as it was, however the block ends."""
    screen = Screen()
    before = termios.tcgetattr(sys.stdin) if screen._keys else None
    try:
        if before is not None:
            tty.setcbreak(sys.stdin)
            _ignore_suspend()
        sys.stdout.write(_ENTER)
        yield screen
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
