"""How a call of the command ends: errors as one line and a status, signals, the library's log. Knows no command."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import typer

import penstock
from penstock import PenstockError
from penstock.cli import output

FOREIGN = ("sqlite3", "pyarrow", "pyspark", "py4j", "zmq", "_pickle")  # libraries whose errors may reach the command
PANDAS = "PySpark does not yet fully support pandas"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SOON = 0.005  # seconds


class Signalled(BaseException):
    """SIGTERM or SIGHUP asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else Signalled(number)


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does, unless the starting process set them to be ignored."""
    with _handled((signal.SIGTERM, signal.SIGHUP), _raise), _none_lost():
        yield


@contextlib.contextmanager
def _none_lost() -> Iterator[None]:
    """A signal that came while Python ran a finalizer comes again: an exception cannot leave a finalizer."""
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        number = _number(unraisable.exc_value)
        if not number:
            before(unraisable)
            return
        again = threading.Timer(SOON, signal.pthread_kill, (threading.main_thread().ident, number))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def noted() -> Iterator[Callable[[float], int]]:
    """The first signal that asks for the end is only noted. A second one ends at once.

    The value is a function of seconds: it waits that long or for a signal, and returns the signal's number or 0.
    """
    came = threading.Event()
    number = 0

    def note(which: int, frame: FrameType | None) -> None:
        nonlocal number
        if came.is_set():
            _raise(which, frame)
        number = which
        came.set()

    def wait(seconds: float) -> int:
        came.wait(seconds)
        return number

    with _handled(ENDING, note):
        yield wait


@contextlib.contextmanager
def _handled(numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    heeded = [number for number, now in before.items() if now is not signal.SIG_IGN]
    try:
        for number in heeded:
            signal.signal(number, handler)
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])


class _Lines(logging.Handler):
    """Log records as lines on standard error; with tracebacks only when asked for everything."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        quiet = logging.getLogger().level > logging.INFO
        py4js = record.name.partition(".")[0] == "py4j" or "/py4j/" in record.pathname  # some go to the root logger
        if quiet and py4js:  # Spark's calls: their errors reach the command, which tells them
            return
        if record.name == "py.warnings" and PANDAS in message:  # no command uses what it is about
            return
        if record.name == "py.warnings":
            message = message.partition("\n")[0]  # without the line of source that it points to
        output.note(f"{record.levelname.lower()}: {message}")
        if record.exc_info and logging.getLogger().level <= logging.INFO:
            sys.stderr.write("".join(traceback.format_exception(*record.exc_info)))


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """Warnings of the library and of others as lines on standard error."""
    root, handler = logging.getLogger(), _Lines()
    level, others = root.level, root.handlers
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers = others
        root.setLevel(level)


def log_everything() -> None:
    """Logs everything that the library does, with tracebacks of errors."""
    logging.getLogger().setLevel(logging.INFO)


def reason(error: BaseException) -> str:
    """An error in a line, without its number."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{output.path(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return f"{place}{error.strerror}"
    return str(error) or type(error).__name__


def readable(messages: Iterator[Any]) -> Iterator[Any]:
    """The messages that can be decoded. Each other one becomes a line on standard error."""
    while True:
        try:
            yield next(messages)
        except penstock.DecodeError as error:
            output.note(f"warning: {reason(error)}")
        except StopIteration:
            return


def status(error: BaseException) -> int:
    """Prints the error that ended a call as one line on standard error. Returns the call's status."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if number := _signal_behind(error):
        return 128 + number
    if isinstance(error, output.Unwritable) and error.closed:
        return 0
    logging.getLogger("penstock").info("the error came from here", exc_info=error)
    about, code = _line(error)
    output.note(f"penstock: {about}")
    return code


def _signal_behind(error: BaseException | None) -> int:
    """The signal that ended a call, or 0. Errors that libraries raise as the call unwinds have the signal as their context."""
    while error is not None:
        if number := _number(error):
            return number
        error = error.__cause__ or error.__context__
    return 0


def _number(error: BaseException | None) -> int:
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    return error.number if isinstance(error, Signalled) else 0


def _line(error: BaseException) -> tuple[str, int]:
    usage: Any = error
    if hasattr(error, "format_message"):  # the parser's own errors, by whichever class this version of typer has
        context = getattr(usage, "ctx", None)
        command = context.command_path if context is not None else "penstock"
        return f"{usage.format_message()} ({command} --help lists what there is)", usage.exit_code
    if isinstance(error, PenstockError | OSError | output.Unwritable):
        return reason(error), 1
    if isinstance(error, MemoryError):
        return "out of memory", 1
    if type(error).__module__.partition(".")[0] in FOREIGN:
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        return f"{type(error).__name__}: {first.strip()}", 1
    return f"a fault of Penstock's own, please report it with the output of penstock -v: {error!r}", 1
