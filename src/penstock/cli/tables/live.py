"""`penstock sql QUERY`: a query over shared memory, recordings and tables as they are now, once or again and again."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.cli import ending
from penstock.cli.tables import answers, engines
from penstock.cli.terminal import output, screen
from penstock.util.files import storage
from penstock.util.files.uris import is_remote

if TYPE_CHECKING:
    from penstock.tables.lake import Lake, Missing

Ask = Callable[[], tuple[Any, "list[Missing]"]]
FASTEST, SLOWEST = 0.05, 3600.0


def opened(places: Sequence[Any], *, strict: bool) -> Lake:
    """The lake of places that are each an archive or tables, and of this machine's channels."""
    from penstock.tables import reading

    found: dict[str, Any] = {}
    for place in places:
        if not is_remote(place) and Path(place).is_file():
            raise penstock.NotFound(f"{output.path(place)} is neither an archive nor tables")
        served = storage.where(place).is_served  # so it is no folder of tables
        what = "archive" if served or not reading.names(str(place)) else "tables"
        if what == "archive":
            try:
                penstock.Archive(place, create=False)
            except penstock.NotFound:
                raise penstock.NotFound(f"{output.path(place)} is neither an archive nor tables") from None
        if what in found:
            name = "archives" if what == "archive" else "folders of tables"
            raise penstock.Invalid(
                f"{output.path(found[what])} and {output.path(place)} are both {name}: --from takes one of each"
            )
        found[what] = place
    return penstock.lake(found.get("tables"), found.get("archive"), strict=strict)


def answer(lake: Lake, query: str) -> tuple[Any, list[Missing]]:
    """The rows, and what is missing, by DuckDB."""
    cut = lake.cut_of(query)
    return cut.sql(query), cut.missing


def tell(missing: Sequence[Missing]) -> None:
    """Says what is missing, on standard error."""
    for one in missing:
        output.note(f"penstock: {one}")


def check_interval(every: float) -> None:
    """`Invalid` for an interval that is too short or too long."""
    if not FASTEST <= every <= SLOWEST:
        raise penstock.Invalid(f"--watch is {every:g} seconds: it must be from {FASTEST:g} to {SLOWEST:g}")


@contextlib.contextmanager
def engine(
    name: str, master: str | None, lake: Lake, query: str, limit: int | None, cut: Callable[[Any], Any]
) -> Iterator[Ask]:
    """How a query is asked by an engine, as often as one likes. A query that is wrong is an error before anything is started.

    limit: rows at most, of engines in other processes. cut: what is kept of an answer.
    """

    def kept(found: Any, missing: list[Missing]) -> tuple[Any, list[Missing]]:
        return cut(found), missing

    if name == "duckdb":
        yield lambda: kept(*answer(lake, query))
        return
    from penstock.spark import lake as lakes

    lakes.cut_of(lake, query)
    with engines.session(name, "penstock-sql", master) as spark:
        yield lambda: kept(*lakes.answer(spark, lake, query, limit))


def watch(
    ask: Ask,
    every: float,
    show: Callable[[Any], None],
    draw: Callable[[Any, int, int], list[list[output.Part]]] | None = None,
) -> None:
    """Asks again and again, until Ctrl-C, or q. show: prints an answer. draw: gives an answer's lines, of at most this many columns and
    lines, which are redrawn in place on a terminal."""
    if draw is not None and screen.is_live():
        with screen.take_over_terminal() as terminal:
            _redraw(ask, every, terminal, draw)
        return
    with ending.defer_end() as wait:
        while not (ended := wait(0)):
            begun = time.monotonic()
            found, missing = ask()
            tell(missing)
            show(found)
            ended = wait(max(0.0, every - (time.monotonic() - begun)))
    if ended != signal.SIGINT:
        raise ending.Signalled(ended)


def print_table(most: int | None, found: Any) -> None:
    """Prints a table of so many rows at most, and an empty line."""
    rows = found.slice(0, most)
    for line in [*answers.lines(rows), ""]:
        output.say(line)
    if found.num_rows > rows.num_rows:
        output.note(answers.count(rows.num_rows, True))


def draw_table(most: int | None, found: Any, width: int, height: int) -> list[list[output.Part]]:
    """The lines of a table of so many rows at most, which says so if it leaves out others."""
    rows = found.slice(0, most)
    if found.num_rows > min(rows.num_rows, height - 1):
        rows = rows.slice(0, max(0, height - 2))
    first, *others = answers.lines(rows)
    drawn: list[list[output.Part]] = [[(first[:width], "bold")]]
    drawn += [[line[:width]] for line in others]
    if found.num_rows > rows.num_rows:
        drawn.append([(answers.count(rows.num_rows, rows.num_rows == most)[:width], "dim")])
    return drawn


def _redraw(
    ask: Ask,
    every: float,
    terminal: screen.Screen,
    draw: Callable[[Any, int, int], list[list[output.Part]]],
) -> None:
    while True:
        begun = time.monotonic()
        found, missing = ask()
        width, height = terminal.size()
        drawn = draw(found, width, max(1, height - len(missing)))
        drawn += [[(str(one)[:width], "bold red")] for one in missing]
        terminal.show(drawn[:height])
        while (left := every - (time.monotonic() - begun)) > 0:
            if terminal.key(left) in ("q", "\x1b", "\x03", "\x04"):
                return
