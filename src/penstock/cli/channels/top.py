"""The command `top`: channels with their rates, refreshed in place. Draws lines; `screen` shows them and reads keys."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

import penstock
from penstock.channels.status import peer_text
from penstock.channels.waiting.why.words import wait_text
from penstock.cli import arguments
from penstock.cli.channels.facts import held_seconds
from penstock.cli.channels.members import member_command
from penstock.cli.channels.names import missing
from penstock.cli.channels.top_columns import COLUMNS, SORTS, Column
from penstock.cli.terminal import output, screen
from penstock.cli.terminal.fitting import cut, shortened
from penstock.front.counters import Count, Counts
from penstock.watch.rates import Rate, Rates, as_row

BLOCKS = " ▁▂▃▄▅▆▇█"
FASTEST, SLOWEST = 0.1, 3600.0
GAP = 2
LAST = 2  # columns that go only to make names readable
NARROWEST = 7  # columns would be hard to read if their width changed with each refresh
ROOMY = 100  # columns from which a member's line has room for both quantiles and its command
WIDE = 120  # columns without a terminal
KEYS = (
    "q ends · s sorts by the next column · r turns the order · m members · space pauses · + - interval",
    "q ends · s sorts · r turns · m members · space · + -",  # where the terminal is narrow
    "q ends · s sorts · r turns · m members",
)


Line = list[output.Part]


@dataclass
class View:
    """The state of the screen, which keys change."""

    sort: str = "messages"
    turned: bool = False
    members: bool = False
    paused: bool = False
    every: float = 1.0
    ended: bool = False
    rates: list[Rate] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    deadlocks: int = 0

    def press(self, key: str) -> None:
        """Handles a key. Other keys do nothing."""
        names = list(SORTS)
        if key in ("q", "\x1b", "\x03", "\x04"):
            self.ended = True
        elif key == "s":
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key == "r":
            self.turned = not self.turned
        elif key == "m":
            self.members = not self.members
        elif key == " ":
            self.paused = not self.paused
        elif key in ("+", "="):
            self.every = max(FASTEST, self.every / 2)
        elif key == "-":
            self.every = min(SLOWEST, self.every * 2)

    def ordered(self) -> list[Rate]:
        """The rates in the chosen order; equal ones by name."""
        by_name = sorted(self.rates, key=lambda rate: rate.status.channel)
        return sorted(by_name, key=SORTS[self.sort], reverse=self.turned)


def draw(view: View, width: int, height: int | None = None) -> list[Line]:
    """The lines of a screen of that size. height: None for all lines that there are."""
    rates = view.ordered()
    lines = [_drop_parts(_summary(view, rates), width)]
    if not rates:
        lines += [[""], ["no channels"]]
        return [_clip(line, width) for line in [*lines, *_counted(view, width)]]
    columns, name_width, spark_width = _fit(rates, width)
    lines.append(_titles(view, columns, name_width, spark_width, rates))
    widths = [_width(column, rates) for column in columns]
    names = shortened([rate.status.channel for rate in rates], name_width)
    for rate in rates:
        line: Line = [(names[rate.status.channel].ljust(name_width), "bold" if rate.messages else "")]
        if spark_width:
            line.append((" " * GAP + sparkline((one.messages for one in rate.history), spark_width), "cyan"))
        for column, room in zip(columns, widths, strict=True):
            line.append((" " * GAP + column.cell(rate).rjust(room), column.style(rate)))
        lines.append(line)
        problems = () if rate.status.network is None else rate.status.network.problems
        lines += [[(cut(f"  {problem}", width), "yellow")] for problem in problems if not view.members]
        if view.members:
            lines += [*_members(rate, width), *_peers(rate, width)]
    lines += _counted(view, width)
    if height is not None and len(lines) > height:
        hidden = len(lines) - height + 1
        lines = [*lines[: height - 1], [(f"… {output.many(hidden, 'line')} more", "dim")]]
    return [_clip(line, width) for line in lines]


def _summary(view: View, rates: Sequence[Rate]) -> Line:
    total, size = sum(rate.messages for rate in rates), sum(rate.bytes for rate in rates)
    state = "paused" if view.paused else f"every {view.every:g} s"
    return [
        (f"{output.many(len(rates), 'channel')}  ", "bold"),
        f"{output.count(total)} messages/s  {output.size(size)}/s  ",
        (f"by {view.sort}{' (turned)' if view.turned else ''}, {state}", "dim"),
        (f"  {output.many(view.deadlocks, 'deadlock')}: penstock why" if view.deadlocks else "", "bold red"),
    ]


def _drop_parts(line: Line, width: int) -> Line:
    """A line without its last parts, if it is too long; a deadlock is said in any width."""
    while len(screen.join_line(line)) > width and len(line) > 2:
        line = [*line[:-2], line[-1]]
    return line


def _width(column: Column, rates: Sequence[Rate]) -> int:
    return max(len(column.title), NARROWEST, *(len(column.cell(rate)) for rate in rates))


def _fit(rates: Sequence[Rate], width: int) -> tuple[list[Column], int, int]:
    """The columns that fit, the width of the names and that of the sparklines."""
    networks = any(rate.status.network is not None for rate in rates)
    columns = [column for column in COLUMNS if networks or not column.networks]
    longest = max(len("channel"), *(len(rate.status.channel) for rate in rates))

    def left(name: int) -> int:
        return width - name - sum(_width(column, rates) + GAP for column in columns)

    while left(min(longest, 20)) < 8 + GAP and any(column.goes > LAST for column in columns):
        columns.remove(max((column for column in columns if column.goes > LAST), key=lambda column: column.goes))
    while left(min(longest, 16)) < 0 and any(column.goes for column in columns):  # without a sparkline
        columns.remove(max((column for column in columns if column.goes), key=lambda column: column.goes))
    room = left(0)
    name = max(8, min(longest, room if room < min(longest, 20) + 8 + GAP else room - 8 - GAP))
    spark = min(left(name) - GAP, 40)
    return columns, name, spark if spark >= 4 else 0


def _titles(view: View, columns: Sequence[Column], name: int, spark: int, rates: Sequence[Rate]) -> Line:
    def title(text: str) -> output.Part:
        return text, "bold underline" if text.strip().removesuffix("/s") == view.sort else "bold"

    line = [title("channel"), " " * (name - len("channel"))]
    if spark:
        line += [" " * GAP, ("lately".rjust(spark)[:spark], "dim")]
    for column in columns:
        line += [" " * (GAP + _width(column, rates) - len(column.title)), title(column.title)]
    return line


def _members(rate: Rate, width: int) -> list[Line]:
    lines: list[Line] = []
    for one in rate.members:
        member = one.member
        words = [f"  {member.role:12}", f"pid {member.pid:<7}", f"{output.count(one.messages):>8}/s"]
        words.append(f"lag {output.size(one.behind)}" if one.behind is not None else "")
        if one.latency is not None and one.latency.measured:
            p50, p99 = (output.duration(one.latency.quantile_ns(share)) for share in (0.5, 0.99))
            words += [f"p50 {p50}"] if width >= ROOMY else []
            words.append(f"p99 {p99}")
        words += ["dropped"] if member.dropped else []
        words += [wait_text(wait) for wait in rate.waits if wait.pid == member.pid][:1]
        drawn = (member.name or "").startswith(f"{member.pid}-")  # a peer that was given no name
        words += ["" if drawn else member.name or "", member_command(member.pid, member.joined_ns)]
        lines.append([(cut("  ".join(word for word in words if word), width), "dim")])
    return lines


def _peers(rate: Rate, width: int) -> list[Line]:
    """The sessions and the receivers of a network."""
    network = rate.status.network
    if network is None:
        return []
    styled = [(peer_text(one), "yellow" if one.problem else "dim") for one in network.peers]
    return [[(cut(f"  {text}", width), style)] for text, style in styled]


def _counted(view: View, width: int) -> list[Line]:
    """The counters of the programs' own."""
    if not view.counts:
        return []
    name, room = (
        max(len(text(one)) for one in view.counts) for text in (lambda c: c.counter, lambda c: f"{c.value:,}")
    )
    name = min(name, max(8, width // 2))
    titles: list[Line] = [[""], [(f"{'counter':{name}}{'count':>{room + GAP}}{'/s':>{NARROWEST + GAP}}", "bold")]]
    shown = shortened([one.counter for one in view.counts], name)
    return titles + [
        [f"{shown[one.counter]:{name}}{one.value:>{room + GAP},}{output.count(one.per_s):>{NARROWEST + GAP}}"]
        for one in view.counts
    ]


def sparkline(values: Iterable[float], width: int) -> str:
    """The newest values as blocks, from 0 to the largest of them; a value above 0 is never blank."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    steps = len(BLOCKS) - 1
    drawn = "".join(BLOCKS[max(1, round(value / top * steps))] if value > 0 else BLOCKS[0] for value in shown)
    return drawn.rjust(max(0, width))


def _clip(line: Line, width: int) -> Line:
    """A line of at most that width. A terminal would wrap a longer line."""
    made: Line = []
    for part in line:
        text, style = (part, "") if isinstance(part, str) else part
        made.append((output.printable(text)[:width], style))
        width -= len(made[-1][0])
    return made


def top(
    channels: Annotated[
        list[str] | None,
        typer.Argument(help="Channels such as log:imu, and patterns such as 'robot/*'. Without any: all."),
    ] = None,
    every: Annotated[float, typer.Option("--every", "-d", help="Seconds between two refreshes, at least 0.1.")] = 1.0,
    count: Annotated[int | None, typer.Option("--count", "-n", help="End after this many refreshes.")] = None,
    sort: Annotated[str, typer.Option(help=f"One of: {', '.join(SORTS)}.")] = "messages",
    members: Annotated[bool, typer.Option("--members", "-m", help="Show each channel's members.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per channel, counter and refresh, for programs.")
    ] = False,
) -> None:
    """Shows channels live: rates, lag, losses, members. Keys: q ends, s sorts, r turns, m members, space pauses, + - interval."""
    if not FASTEST <= every <= SLOWEST:
        raise penstock.Invalid(f"--every is {every}: it must be from {FASTEST:g} to {SLOWEST:g} seconds")
    if count is not None and count < 1:
        raise penstock.Invalid(f"--count is {count}: it must be a number of refreshes from 1 on")
    if sort not in SORTS:
        raise penstock.Invalid(f"--sort is {sort!r}: it must be one of {', '.join(SORTS)}")
    if json:
        arguments.refuse_others("--json", "its rows have the members", members=members)
    view = View(sort=sort, members=members, every=every)
    rates, counts = Rates(time.monotonic), Counts(time.monotonic)

    def look() -> None:
        found = penstock.list_channels(channels or "*")
        if not view.rates and (absent := missing(channels or (), found)):
            raise penstock.NotFound(f"there is no channel {absent[0]}")
        seen = penstock.why()
        view.rates, view.deadlocks = rates.update(found, seen.waits, held_seconds), len(seen.deadlocks)
        view.counts = [] if channels else counts.update()

    look()
    if json:
        _stream(
            view,
            look,
            count,
            lambda: [
                output.as_json({"time_ns": time.time_ns(), **row})
                for row in (*map(_as_row, view.ordered()), *map(asdict, view.counts))
            ],
        )
        return
    if screen.is_live():
        with screen.take_over_terminal() as terminal:
            _refresh(view, look, count, terminal)
        return
    width = shutil.get_terminal_size((WIDE, 1)).columns
    _stream(view, look, count, lambda: [*map(screen.join_line, draw(view, width)), ""])


def _as_row(rate: Rate) -> dict[str, Any]:
    return {**as_row(rate), "held_s": rate.held_s}


def _stream(view: View, look: Callable[[], None], count: int | None, lines: Callable[[], list[str]]) -> None:
    number = 0
    while count is None or number < count:
        time.sleep(view.every)
        look()
        for line in lines():
            print(line)
        sys.stdout.flush()
        output.check_reader()
        number += 1


def _refresh(view: View, look: Callable[[], None], count: int | None, terminal: screen.Screen) -> None:
    number, due = 0, time.monotonic()
    while not view.ended:
        width, height = terminal.size()
        terminal.show(
            [
                *draw(view, width, height - 1),
                [(cut(next((keys for keys in KEYS if len(keys) <= width), KEYS[-1]), width), "dim")],
            ]
        )
        key = terminal.key(max(0.0, due - time.monotonic()))
        if key:
            before = view.every
            view.press(key)
            due += view.every - before
        if time.monotonic() >= due:
            if number == count:
                return
            if not view.paused:
                look()
                number += 1
            due = time.monotonic() + view.every


def add_commands(app: typer.Typer) -> None:
    """Adds the command to the app."""
    app.command("top")(top)
