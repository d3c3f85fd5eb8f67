"""The command `top`: channels with their rates, refreshed in place. Draws lines; `screen` shows them and reads keys."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

import penstock
from penstock._native.core import command_of
from penstock.channels.uri.wildcards import is_pattern
from penstock.cli.terminal import output, screen
from penstock.watch.rates import Rate, Rates, as_row

BLOCKS = " ▁▂▃▄▅▆▇█"
FASTEST, SLOWEST = 0.1, 3600.0
GAP = 2
NARROWEST = 7  # columns would be hard to read if their width changed with each refresh
ROOMY = 100  # columns from which a member's line has room for both quantiles and its command
WIDE = 120  # columns without a terminal
KEYS = "q ends · s sorts by the next column · r turns the order · m members · space pauses · + - interval"

Line = list[output.Part]


@dataclass(frozen=True)
class Column:
    """A column: its title, its text, its sort key, and how soon it is dropped if the terminal is narrow (0: never)."""

    title: str
    cell: Callable[[Rate], str]
    order: Callable[[Rate], Any]
    goes: int = 0
    style: Callable[[Rate], str] = lambda rate: ""


def lost(rate: Rate) -> str:
    """Losses in messages, or in bytes if the kind counts only bytes."""
    if not rate.lost:
        return "–" if rate.lost is None else "0"
    return output.size(rate.lost) if rate.loses_bytes else output.count(rate.lost)


def quantile(share: float) -> Callable[[Rate], float | None]:
    """The latency since the last refresh that this share of the messages did not exceed. None without messages."""
    return lambda rate: None if rate.latency is None else rate.latency.quantile_ns(share)


P50, P99 = quantile(0.5), quantile(0.99)
COLUMNS = (
    Column("codec", lambda r: r.status.codec or "(open)", lambda r: r.status.codec or "", 7),
    Column("messages/s", lambda r: output.count(r.messages), lambda r: -r.messages),
    Column("bytes/s", lambda r: output.size(r.bytes), lambda r: -r.bytes),
    Column("writers", lambda r: str(r.status.writers), lambda r: -r.status.writers, 3),
    Column("readers", lambda r: str(r.status.readers), lambda r: -r.status.readers, 3),
    Column("lag", lambda r: output.size(r.status.lag), lambda r: -r.status.lag),
    Column("p50", lambda r: output.duration(P50(r)), lambda r: -(P50(r) or 0), 5),
    Column("p99", lambda r: output.duration(P99(r)), lambda r: -(P99(r) or 0), 1),
    Column("lost/s", lost, lambda r: -(r.lost or 0), 0, lambda r: "bold red" if r.lost else ""),
    Column(
        "refused/s", lambda r: output.count(r.refused), lambda r: -r.refused, 4, lambda r: "yellow" if r.refused else ""
    ),
    Column("sent", lambda r: output.count(r.status.totals.messages_sent), lambda r: -r.status.totals.messages_sent, 6),
    Column("memory", lambda r: output.size(r.status.size), lambda r: -r.status.size, 2),
)
SORTS: dict[str, Callable[[Rate], Any]] = {
    "channel": lambda rate: rate.status.channel,
    **{column.title.removesuffix("/s"): column.order for column in COLUMNS},
}


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
    lines = [_summary(view, rates)]
    if not rates:
        return [_clip(lines[0], width), [""], ["no channels"]]
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
        if view.members:
            lines += _members(rate, width)
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
    ]


def _width(column: Column, rates: Sequence[Rate]) -> int:
    return max(len(column.title), NARROWEST, *(len(column.cell(rate)) for rate in rates))


def _fit(rates: Sequence[Rate], width: int) -> tuple[list[Column], int, int]:
    """The columns that fit, the width of the names and that of the sparklines."""
    columns = list(COLUMNS)
    longest = max(len("channel"), *(len(rate.status.channel) for rate in rates))

    def left(name: int) -> int:
        return width - name - sum(_width(column, rates) + GAP for column in columns)

    while left(min(longest, 20)) < 8 + GAP and any(column.goes for column in columns):
        columns.remove(max((column for column in columns if column.goes), key=lambda column: column.goes))
    name = max(8, min(longest, width - sum(_width(column, rates) + GAP for column in columns) - 8 - GAP))
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
        drawn = (member.name or "").startswith(f"{member.pid}-")  # a peer that was given no name
        words += ["" if drawn else member.name or "", command_of(member.pid)]
        lines.append([(_cut("  ".join(word for word in words if word), width), "dim")])
    return lines


def _cut(text: str, width: int) -> str:
    shown = output.printable(text)
    return shown if len(shown) <= width else shown[: max(0, width - 1)] + "…"


def shortened(names: Sequence[str], width: int) -> dict[str, str]:
    """Each name as text of at most that width, from 8 on; two names never give the same text.

    A name that is too long loses its middle. If two would look the same, each is shown from where it differs, or numbered.
    """
    found: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(_elide_middle(name, width), []).append(name)
    taken = {shown for shown, group in alike.items() if len(group) == 1}
    for shown, group in alike.items():
        if len(group) == 1:
            found[group[0]] = shown
            continue
        low, high = min(group), max(group)
        same = next((at for at, one in enumerate(low) if one != high[at]), len(low) - 1)
        for name in sorted(group):
            numbered = (f"{_cut(shown, width - 4)}~{number}"[:width] for number in itertools.count(1))
            text = next(
                text for text in (_cut(f"…{name[same:]}", width), *itertools.islice(numbered, 999)) if text not in taken
            )
            taken.add(text)
            found[name] = text
    return found


def sparkline(values: Iterable[float], width: int) -> str:
    """The newest values as blocks, from 0 to the largest of them; a value above 0 is never blank."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    steps = len(BLOCKS) - 1
    drawn = "".join(BLOCKS[max(1, round(value / top * steps))] if value > 0 else BLOCKS[0] for value in shown)
    return drawn.rjust(max(0, width))


def _elide_middle(text: str, width: int) -> str:
    shown = output.printable(text)
    head = min(max(shown.find(":") + 1, (width - 1) * 2 // 5), width - 2)
    return shown if len(shown) <= width else f"{shown[:head]}…{shown[len(shown) - (width - 1 - head) :]}"


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
        bool, typer.Option("--json", help="One JSON object per channel and refresh, for programs.")
    ] = False,
) -> None:
    """Shows channels live: rates, lag, losses, members. Keys: q ends, s sorts, r turns, m members, space pauses, + - interval."""
    if not FASTEST <= every <= SLOWEST:
        raise penstock.Invalid(f"--every is {every}: it must be from {FASTEST:g} to {SLOWEST:g} seconds")
    if count is not None and count < 1:
        raise penstock.Invalid(f"--count is {count}: it must be a number of refreshes from 1 on")
    if sort not in SORTS:
        raise penstock.Invalid(f"--sort is {sort!r}: it must be one of {', '.join(SORTS)}")
    named = {channel for channel in channels or () if not is_pattern(channel)}
    view, rates = View(sort=sort, members=members, every=every), Rates(time.monotonic)

    def look() -> None:
        found = penstock.list_channels(channels or "*")
        missing = sorted(named - {status.channel for status in found})
        if missing and not view.rates:
            raise penstock.NotFound(f"there is no channel {missing[0]}")
        view.rates = rates.update(found)

    look()
    if json:
        _stream(
            view,
            look,
            count,
            lambda: [output.as_json({"time_ns": time.time_ns(), **as_row(rate)}) for rate in view.ordered()],
        )
        return
    if screen.is_live():
        with screen.take_over_terminal() as terminal:
            _refresh(view, look, count, terminal)
        return
    width = shutil.get_terminal_size((WIDE, 1)).columns
    _stream(view, look, count, lambda: [*map(screen.join_line, draw(view, width)), ""])


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
        terminal.show([*draw(view, width, height - 1), [(_cut(KEYS, width), "dim")]])
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
