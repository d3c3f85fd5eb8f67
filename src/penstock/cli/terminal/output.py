"""How commands print: lines for people, JSON for programs (`plain`). The only file of the command that knows rich.

Text is printed unchanged: markup and emoji codes have no effect. A style is separate from its text.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from penstock.cli.terminal.fitting import fit_table, printable, table_width
from penstock.cli.terminal.plain import as_json
from penstock.util.files.uris import is_remote
from penstock.util.markup import count, duration, size

if TYPE_CHECKING:  # a command that prints nothing in colour does not load it
    from rich.console import Console
    from rich.text import Text

__all__ = [
    "as_json",
    "count",
    "duration",
    "many",
    "note",
    "printable",
    "say",
    "show",
    "size",
    "steps",
    "streams",
    "table",
    "working",
]

Part = str | tuple[str, str]
ANY_WIDTH, NARROWEST = 100_000, 80


class Unwritable(Exception):
    """Standard output cannot be written. closed: its reader has closed it, which is not an error."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to standard output: {error.strerror}")
        self.closed = error.errno == errno.EPIPE


class _Guarded:
    """A text stream that raises `Unwritable` when it cannot write, or drops the text. Everything else is the stream's own."""

    def __init__(self, stream: TextIO, drops: bool) -> None:
        self._stream, self._drops = stream, drops

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            if not self._drops:
                raise Unwritable(error) from error
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            if not self._drops:
                raise Unwritable(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def streams() -> Iterator[None]:
    """Standard output and error for one call: never an encoding error, and a failing output is an `Unwritable`.

    Text that the output's encoding lacks is written with backslashes. Standard error drops text that it cannot write, since
    there is nowhere to report it.
    """
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as opened:
        for name, drops in (("stdout", False), ("stderr", True)):
            stream = getattr(sys, name) or opened.enter_context(open(os.devnull, "w"))
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, cast(TextIO, _Guarded(stream, drops)))
        for variable in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):  # rich and typer stumble over some that are not numbers
            if not re.fullmatch("[0-9]{1,5}", os.environ.get(variable, "0"), re.ASCII):
                del os.environ[variable]
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


def check_reader() -> None:
    """Raises `Unwritable` if standard output is a pipe whose reader has closed it."""
    try:
        number = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(number).st_mode):
            return
    except (OSError, ValueError):
        return
    looked = select.poll()
    looked.register(number, select.POLLERR)
    if any(found & select.POLLERR for _, found in looked.poll(0)):
        raise Unwritable(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))


def open_descriptors() -> None:
    """Puts /dev/null where standard input, output or error is closed, so that no channel's file gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def forget_unwritten() -> None:
    """Drops text that standard output did not take. The interpreter would report it at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def path(value: os.PathLike[str] | str | bytes) -> str:
    r"""A path or a URI as text: bytes that are not UTF-8 as \xff."""
    given = value if isinstance(value, str | bytes | os.PathLike) else str(value)
    text = printable(os.fsencode(given).decode("utf-8", "backslashreplace"))
    if is_remote(text) and "://" not in text:  # pathlib has taken a slash
        text = text.replace(":/", "://", 1)
    return text


def _text(*parts: Part) -> Text:
    from rich.text import Text

    made = Text()
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        made.append(printable(text), style)
    return made


def _plain(stream: TextIO) -> bool:
    """Whether texts are written as they are: a file and a pipe take no style, and a call that writes to them does not load rich."""
    return not stream.isatty() and "FORCE_COLOR" not in os.environ


def _print(stream: TextIO, *parts: Part) -> None:
    if _plain(stream):
        stream.write("".join(printable(part if isinstance(part, str) else part[0]) for part in parts) + "\n")
    else:
        _console(stderr=stream is sys.stderr).print(_text(*parts))


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = shutil.get_terminal_size().columns if stream.isatty() else ANY_WIDTH
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, soft_wrap=True, width=width, height=25)


def width() -> int:
    """The columns of standard output: many without a terminal."""
    return ANY_WIDTH if _plain(sys.stdout) else _console().width


def message(data: Any) -> str:
    """A message as a line: bytes as text, arrays of numbers as NumPy prints them, everything else as JSON."""
    if isinstance(data, bytes):
        return data.decode("utf-8", "backslashreplace")
    is_array = hasattr(data, "tobytes") and data.dtype.names is None  # a frame has a dtype, too
    return str(data) if is_array else as_json(data)


def say(*parts: Part) -> None:
    """Prints a line. A part is a text, or a pair of a text and its style."""
    _print(sys.stdout, *parts)


def note(*parts: Part) -> None:
    """Prints a line to standard error."""
    _print(sys.stderr, *parts)


class Rows:
    """A table of texts, with some columns to the right. leaves, name: as of `fit_table`.

    blocks: where the terminal is too narrow, each row is a block, with a line for each column.
    """

    def __init__(
        self,
        *columns: str,
        right: tuple[str, ...] = (),
        leaves: tuple[str, ...] = (),
        name: str = "",
        blocks: bool = False,
    ) -> None:
        self._columns, self._right, self._leaves, self._name, self._blocks = columns, right, leaves, name, blocks
        self._rows: list[list[str]] = []

    def add_row(self, *cells: str) -> None:
        """One more row."""
        self._rows.append([printable(cell) for cell in cells])

    def show(self) -> None:
        """Prints it: as wide as the terminal, or as its texts without a terminal.

        On a narrow terminal it is wider if it cannot be cut, which wraps whole lines: words cut into columns of two letters could not be read.
        """
        if _plain(sys.stdout):
            self._write()
            return
        from rich.table import Table

        console = _console()
        columns, rows = fit_table(self._columns, self._rows, console.width, self._leaves, self._name)
        if self._blocks and table_width(columns, rows) > console.width:
            widest = max(map(len, columns))
            for row in rows:
                console.print(
                    *(f"{column:{widest}}  {cell}" for column, cell in zip(columns, row, strict=True)), "", sep="\n"
                )
            return
        drawn = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            drawn.add_column(_text(column), justify="right" if column in self._right else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*map(_text, row))
        if not self._name:
            console.width = max(console.width, NARROWEST)
        console.print(drawn)

    def _write(self) -> None:
        columns, rows = fit_table(self._columns, self._rows, ANY_WIDTH, self._leaves, self._name)
        widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
        for row in (columns, *rows):
            cells = (
                cell.rjust(width) if column in self._right else cell.ljust(width)
                for column, cell, width in zip(columns, row, widths, strict=True)
            )
            sys.stdout.write("  ".join(cells).rstrip() + "\n")


table = Rows


def show(rows: Rows) -> None:
    """Prints a table."""
    rows.show()


@contextlib.contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Shows the current step on a terminal: call the value with its text."""
    console = _console(stderr=True)
    if not (console.is_terminal and console.is_interactive):
        yield lambda text: None
        return
    status = console.status(_text(text))
    try:  # around start() too: a signal may arrive while its thread starts
        status.start()
        yield lambda text: status.update(_text(text))
    finally:
        status.stop()


@contextlib.contextmanager
def redrawn() -> Iterator[Callable[[Sequence[Sequence[Part]]], None]]:
    """Takes the terminal's other screen for the block, without a cursor. Call the value with lines that replace those there."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(markup=False, emoji=False, highlight=False, force_terminal=True)
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def show(lines: Sequence[Sequence[Part]]) -> None:
        text = Text("\n", no_wrap=True, overflow="crop").join(_text(*line) for line in lines)
        live.update(text, refresh=True)

    try:
        live.start()
        yield show
    except BaseException:  # a signal in the middle of a write: later output of rich may stay in its buffer
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()
        raise
    finally:
        live.stop()


@contextlib.contextmanager
def steps(first: str, *, quiet: bool = False, counted: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; call the value with (what, done, all). counted: whether the steps are counted."""
    console = _console(stderr=True)
    if quiet or not (console.is_terminal and console.is_interactive):
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    about = TextColumn("{task.description}", markup=False)
    columns = (about, BarColumn(), MofNCompleteColumn()) if counted else (SpinnerColumn(), about)
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=not counted)
    try:
        bar.start()
        task = bar.add_task(printable(first), total=None)
        yield lambda what, done, total: bar.update(task, description=printable(what), completed=done, total=total)
    finally:
        bar.stop()


def many(number: int, one: str, several: str = "") -> str:
    """1 message, 2 messages."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def size_or_unknown(value: int | None) -> str:
    """Bytes as text; "unknown" if the kind does not count them."""
    return "unknown" if value is None else size(value)
