"""Log records of Python's `logging` as messages of a channel, so that they are recorded, queried and seen from other processes.

A record that cannot be sent at once is thrown away and counted: the program never waits for its log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import Any

import msgspec

from penstock.errors import Closed, Invalid, PenstockError, TimedOut, TooLarge
from penstock.front.opening import publish

PATIENCE = 0.005  # seconds that the first record without room waits
_TEXT = logging.Formatter()


class LogLine(msgspec.Struct, frozen=True):
    """One log record. severity: the number of its level, 30 for a warning. exception: with its trace, and the stack that was asked for.
    dropped: records that this process threw away before this one, since the last one that was sent."""

    severity: int
    level: str
    logger: str
    message: str
    exception: str | None
    file: str
    line: int
    function: str
    process: int
    thread: str
    dropped: int


class LogHandler(logging.Handler):
    """Sends log records into a channel. A record for which there is no room is dropped and counted, in `dropped` and in the next record that
    is sent. The first one of several waits 5 ms for room, the others not at all.

    channel: such as ``log:logs``. options: of `penstock.publish`. Each message is a `LogLine` as JSON; a text too long for the channel is
    cut, and says so. A formatter, if one is set, makes the message. Any thread, and a forked child, may log. `penstock sub --logs` prints
    the lines.

    >>> import logging
    >>> logging.getLogger("robot").addHandler(penstock.LogHandler("log:doc/logs"))
    >>> with penstock.subscribe("log:doc/logs") as sub:
    ...     logging.getLogger("robot").warning("battery at %d %%", 9)
    ...     print(sub.recv(1)["message"])
    battery at 9 %
    """

    def __init__(self, channel: str = "log:logs", level: int | str = logging.NOTSET, **options: Any) -> None:
        if not isinstance(channel, str):
            raise Invalid(f"channel is {channel!r}: a LogHandler names its channel by a URI such as 'log:logs'")
        self.dropped, self._pid = 0, os.getpid()
        self._within = threading.local()  # this library logs, too
        self._untold = 0  # of the dropped ones
        self._publication = publish(channel, codec=LogLine, **options)
        super().__init__(level)

    def handle(self, record: logging.LogRecord) -> Any:
        """As of `logging.Handler`, without its lock: a thread that logs would wait for another one's."""
        kept: Any = self.filter(record)
        if kept:
            self.emit(kept if isinstance(kept, logging.LogRecord) else record)
        return kept

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one record, or drops it."""
        if getattr(self._within, "emit", False):  # by its own formatter, or by what it calls
            self._count_dropped()
            return
        self._within.emit = True
        try:
            sent = self._send(record)
        except Exception:
            sent = False
            self.handleError(record)
        finally:
            self._within.emit = False
        if not sent:
            self._count_dropped()

    def _count_dropped(self) -> None:
        with self._counting():
            self._count_own()
            self.dropped += 1
            self._untold += 1

    def _count_own(self) -> None:
        """A forked child has dropped nothing yet."""
        if self._pid != (pid := os.getpid()):
            self.dropped = self._untold = 0
            self._pid = pid

    def _counting(self) -> Any:
        return self.lock if self.lock is not None else contextlib.nullcontext()

    def _send(self, record: logging.LogRecord) -> bool:
        self._count_own()
        untold = self._untold
        line = _line(record, self.format(record) if self.formatter else record.getMessage(), untold)
        try:
            position = self._offer(line)
        except Closed:  # the program ends, and what closes after this handler has something to say
            return False
        if position is not None and untold:
            with self._counting():
                self._untold -= untold
        return position is not None

    def _offer(self, line: LogLine) -> int | None:
        try:
            position = self._publication.offer(line)
        except TooLarge:
            line = _cut(line, self._publication.max_payload // 32)
            position = self._publication.offer(line)
        if position is None and not self._untold:  # another process may only keep the channel's lock for a moment
            with contextlib.suppress(TimedOut):
                position = self._publication.send(line, timeout=PATIENCE)
        return position

    def close(self) -> None:
        """Leaves the channel."""
        with contextlib.suppress(PenstockError):
            self._publication.close()
        super().close()


def _line(record: logging.LogRecord, message: str, dropped: int) -> LogLine:
    parts = [_TEXT.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    parts += [record.exc_text] if record.exc_text and not parts else []
    parts += [record.stack_info] if record.stack_info else []
    return LogLine(
        record.levelno, _text(record.levelname), _text(record.name), _text(message), _text("\n".join(parts)) or None,
        _text(record.pathname), record.lineno, _text(record.funcName or ""), record.process or os.getpid(),
        _text(record.threadName or ""), dropped,
    )  # fmt: skip


def _text(text: str) -> str:
    """The text with backslashes where it is not Unicode, as in names of files that are not UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _cut(line: LogLine, letters: int) -> LogLine:
    """The line with shorter texts. letters: of each; one takes six bytes at most."""
    cut = {}
    for name in ("message", "exception", "file", "logger", "function"):
        text = getattr(line, name)
        if text is not None and len(text) > letters:
            cut[name] = f"{text[:letters]}… ({len(text) - letters:,} letters more)"
    return msgspec.structs.replace(line, **cut)


__all__ = ["LogHandler", "LogLine"]
