"""How a call of the command ends: errors as one line and a status, signals, the library's log. Knows no command."""

from __future__ import annotations

import _thread
import contextlib
import copy
import logging
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

import typer

import penstock
from penstock import PenstockError
from penstock.cli.terminal import output
from penstock.util.extras import describe_missing

FOREIGN = ("sqlite3", "pyarrow", "pyspark", "py4j", "zmq", "_pickle")  # libraries whose errors may reach the command
PANDAS = "PySpark does not yet fully support pandas"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ENDING_NUMBERS = frozenset(map(int, ENDING))
POKES = (0.0, 0.02, 0.2, 1.0)  # seconds between two
SOON = 0.005  # seconds
LINE_END = re.compile(r"\s*\n\s*")
LONGEST = 86_400.0  # seconds of one wait


class Signalled(KeyboardInterrupt):
    """SIGTERM or SIGHUP asked this process to end. CPython's compiler passes no other exception on out of the folding of constants."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


_raised: list[int] = []  # signals of this call that were raised


def _raise(number: int, frame: FrameType | None) -> None:
    _raised.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else Signalled(number)


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind as Ctrl-C does, unless the starting process set them to be ignored."""
    _raised.clear()
    with _handle_signals(ENDING, _raise), _defer_signals(), _main_woken():
        yield


@contextlib.contextmanager
def _main_woken() -> Iterator[None]:
    """A signal ends the wait of the main thread also where the kernel gave it to another thread, as to one of OpenBLAS.

    Python runs handlers in the main thread only, and a system call there continues when another thread takes the signal. So the number that
    Python's own handler writes wakes a thread, which sends the main thread SIGURG: that interrupts the call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reads, writes = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writes, False)
    main = threading.get_ident()

    def wake() -> None:
        while numbers := os.read(reads, 64):
            if not ENDING_NUMBERS.isdisjoint(numbers):
                for seconds in POKES:  # more than once: the call may be about to begin
                    time.sleep(seconds)
                    if done:
                        break
                    signal.pthread_kill(main, signal.SIGURG)
        os.close(reads)

    done: list[bool] = []
    before_urgent = signal.signal(signal.SIGURG, lambda number, frame: None)
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    _thread.start_new_thread(wake, ())
    try:
        yield
    finally:
        done.append(True)
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGURG, before_urgent)
        os.close(writes)


@contextlib.contextmanager
def _defer_signals() -> Iterator[None]:
    """A signal that arrived while Python ran a finalizer is raised again: an exception cannot leave a finalizer."""
    before, main = sys.unraisablehook, threading.get_ident()
    coming: list[int] = []

    def again(number: int) -> None:
        time.sleep(SOON)
        signal.pthread_kill(main, number)
        coming.pop()

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        number = _number(unraisable.exc_value)
        if not number:
            before(unraisable)
            return
        coming.append(number)
        _thread.start_new_thread(
            again, (number,)
        )  # threading's own takes locks, which the finalizer may have interrupted

    sys.unraisablehook = hook
    try:
        yield
    finally:
        while coming:  # it would end this process by its default action, as Python ends
            time.sleep(SOON)
        sys.unraisablehook = before


@contextlib.contextmanager
def defer_end() -> Iterator[Callable[[float], int]]:
    """The first signal to end is only noted. A second one ends at once.

    The value is a function of seconds: it waits that long or for a signal, and returns the signal's number or 0.
    """
    came, coming = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    poller = select.poll()
    poller.register(came, select.POLLIN)
    number, open_ = 0, True

    def note(which: int, frame: FrameType | None) -> None:
        nonlocal number
        if number or not open_:
            _raise(which, frame)
        number = which

    def wait(seconds: float) -> int:
        if not number and seconds > 0:
            poller.poll(min(seconds, LONGEST) * 1000)
            with contextlib.suppress(BlockingIOError):  # also signals with handlers of other code are written there
                os.read(came, 512)
        return number

    try:
        with _handle_signals(ENDING, note), _signal_pipe(coming):
            yield wait
    finally:
        open_ = False
        os.close(came)
        os.close(coming)


@contextlib.contextmanager
def _signal_pipe(descriptor: int) -> Iterator[None]:
    """Signals are written to a pipe as they arrive. Python runs a handler only between two of its own steps: a signal that arrives just
    before a system call would be handled after that call, however long it waits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


@contextlib.contextmanager
def _handle_signals(
    numbers: tuple[signal.Signals, ...], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
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
    """Log records as lines on standard error; with tracebacks only for --verbose."""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple):
            record = copy.copy(record)
            record.args = tuple(reason(one) if isinstance(one, OSError) else one for one in record.args or ())
        message = record.getMessage()
        quiet = logging.getLogger().level > logging.INFO
        py4js = record.name.partition(".")[0] == "py4j" or "/py4j/" in record.pathname  # some go to the root logger
        if quiet and py4js:  # Spark's calls: their errors reach the command, which prints them
            return
        if record.name == "py.warnings" and PANDAS in message:  # it concerns no command
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


def log_to_the_end() -> None:
    """What is logged when the call has ended, as publications do that close with the process, is a line as any other."""
    lines = _Lines()
    lines.setLevel(logging.WARNING)
    logging.lastResort = lines


def log_everything() -> None:
    """Logs everything that the library does, with tracebacks of errors."""
    logging.getLogger().setLevel(logging.INFO)


def reason(error: BaseException) -> str:
    """An error in a line, without its number."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{output.path(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return f"{place}{error.strerror}"
    return str(error) or type(error).__name__


def readable(messages: Iterator[Any], on_error: Callable[[penstock.DecodeError], object]) -> Iterator[Any]:
    """The messages that can be decoded. Each other one becomes a line on standard error, and is passed to `on_error`."""
    while True:
        try:
            yield next(messages)
        except penstock.DecodeError as error:
            output.note(f"warning: {reason(error)}")
            on_error(error)
        except StopIteration:
            return


def check_received(channels: Iterable[str]) -> None:
    """`Disconnected` if receivers of a publication on the network that this call has closed did not get the end of its stream. channels: to
    which it has published."""
    handle = sys.modules.get("penstock.kinds.udp.handle")
    if handle is None:
        return
    from penstock.channels.uri.opener import parse

    mine = {str(parse(channel)) for channel in channels}
    for channel, unsent in handle.finish():
        if channel not in mine:  # this process has published to it before
            continue
        raise penstock.Disconnected(
            f"{channel}: nobody received the last {unsent:,} bytes of the stream. Start a subscription there first"
        )


def status(error: BaseException) -> int:
    """Prints the error that ended a call as one line on standard error. Returns the call's status."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if number := _signal_behind(error) or _replaced_by(error):
        return 128 + number
    if isinstance(error, output.Unwritable) and error.closed:
        return 0
    logging.getLogger("penstock").info("the error was raised here", exc_info=error)
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


def _replaced_by(error: BaseException) -> int:
    """The signal that a library's compiled code replaced by an error of its own, as pandas does where its import is interrupted; or 0."""
    return _raised[0] if _raised and not isinstance(error, PenstockError) else 0


def _number(error: BaseException | None) -> int:
    if isinstance(error, Signalled):
        return error.number
    return signal.SIGINT if isinstance(error, KeyboardInterrupt) else 0


def _line(error: BaseException) -> tuple[str, int]:
    usage: Any = error
    if hasattr(error, "format_message"):  # the parser's own errors, by whichever class this version of typer has
        context = getattr(usage, "ctx", None)
        command = context.command_path if context is not None else "penstock"
        said = LINE_END.sub(" ", usage.format_message().strip())
        return f"{said} ({command} --help lists them)", usage.exit_code
    if isinstance(error, PenstockError | OSError | output.Unwritable):
        return reason(error), 1
    if isinstance(error, ModuleNotFoundError) and (text := describe_missing(error.name or "", "this command")):
        return text, 1
    if isinstance(error, MemoryError):
        return "out of memory", 1
    if type(error).__module__.partition(".")[0] in FOREIGN:
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        return f"{type(error).__name__}: {first.strip()}", 1
    return f"a fault of Penstock's own, please report it with the output of penstock -v: {error!r}", 1
