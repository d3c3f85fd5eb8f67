"""Draws the rows that a query gave, the first column of which is a time: lines of dots in a terminal, or a PNG or SVG file.

Knows no engine and no stream.
"""

from __future__ import annotations

import itertools
import math
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.cli.terminal import output
from penstock.util.extras import explain_missing

TALL = 20  # lines of a picture that is printed
ENDINGS = (".png", ".svg")
STYLES = ("cyan", "yellow", "magenta", "green", "red", "blue")
COLORS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2")
DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of a braille letter, by row and column
SECOND = 1_000_000  # times are microseconds
STEPS = [unit * 10**power for power in range(6) for unit in (1, 2, 5)] + [
    SECOND * seconds
    for seconds in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200)
]
DAY = 86400 * SECOND
HUGE = 1e300  # what is larger, or infinite, is not drawn


@dataclass(frozen=True)
class Lines:
    """What is drawn. times: microseconds since 1970, ascending; values: by column, NaN where there is none."""

    name: str
    times: np.ndarray
    values: dict[str, np.ndarray]


def lines_of(found: Any) -> Lines:
    """Of a query's rows. `Invalid` if the first column is no time, or no other is a number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.columns.values import is_far

    first, *others = found.schema
    if not (pa.types.is_timestamp(first.type) or pa.types.is_date(first.type)):
        raise penstock.Invalid(
            f"the query's first column {first.name} is no time, but {first.type}: write select time, … for a picture"
        )
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    drawn = [number for number, field in enumerate(others, 1) if any(is_kind(field.type) for is_kind in kinds)]
    if not drawn:
        raise penstock.Invalid("no column behind the query's first one is a number: there is nothing to draw")
    found = found.filter(pc.is_valid(found.column(0)))
    if is_far(found.column(0)):
        raise penstock.Invalid(f"{first.name} has times outside of the years 1 to 9999: leave them out by a condition")
    times = found.column(0).cast(
        pa.timestamp("us", first.type.tz if pa.types.is_timestamp(first.type) else None), False
    )
    times = times.cast(pa.int64()).to_numpy()
    order = np.argsort(times, kind="stable")
    values: dict[str, np.ndarray] = {}
    for number in drawn:
        column = found.column(number).cast(pa.float64(), False).to_numpy()[order]
        values[found.column_names[number]] = np.where(np.abs(column) < HUGE, column, np.nan)
    return Lines(first.name, times[order], values)


# ---- in a terminal ----


def show(found: Any) -> None:
    """Prints a picture."""
    size = shutil.get_terminal_size()
    for line in draw(found, size.columns, min(TALL, size.lines - 1)):
        output.say(*line)


def draw(found: Any, width: int, height: int) -> list[list[output.Part]]:
    """A picture of at most so many columns and lines."""
    lines = lines_of(found)
    legend: list[output.Part] = []
    for (name, values), style in zip(lines.values.items(), itertools.cycle(STYLES)):
        there = values[~np.isnan(values)]
        legend += [("━━ ", style), f"{output.printable(name)} {_text(there[-1]) if len(there) else '–'}   "]
    low, high = _span(list(lines.values.values()))
    rows = max(1, height - 4)
    levels = _levels(low, high, max(2, rows // 3))
    labels = dict.fromkeys(range(rows), "")
    for level, text in zip(levels, _texts(levels), strict=True):
        labels[round((high - level) / (high - low) * (rows - 1))] = text
    left = max(map(len, labels.values()))
    columns = max(10, width - left - 3)
    drawn = _dots(lines, (low, high), columns, rows)
    made: list[list[output.Part]] = [legend]
    for row in range(rows):
        edge = "┤" if labels[row] else "│"
        made.append([(f"{labels[row].rjust(left)} {edge}", "dim"), *drawn[row]])
    marks, below, day = _below(lines.times, columns)
    made.append([(" " * left + " └" + marks, "dim")])
    made.append([(" " * (left + 2) + below, "dim")])
    made.append([(" " * (left + 2) + day, "dim")])
    return [_crop(line, width) for line in made]


def _crop(parts: list[output.Part], width: int) -> list[output.Part]:
    kept: list[output.Part] = []
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        kept.append((text[:width], style))
        width -= len(text)
        if width <= 0:
            break
    return kept


def _dots(lines: Lines, span: tuple[float, float], columns: int, rows: int) -> list[list[output.Part]]:
    """The lines, each in its style. Where two meet, the later one is on top."""
    dots = np.zeros((rows, columns), int)
    owner = np.zeros((rows, columns), int)
    wide, tall = columns * 2, rows * 4
    start, end = _ends(lines.times)
    across = (lines.times - start) / (end - start) * (wide - 1)
    for number, values in enumerate(lines.values.values()):
        down = (span[1] - values) / (span[1] - span[0]) * (tall - 1)
        for column, (top, bottom) in _runs(across, down, wide).items():
            for y in range(round(top), round(bottom) + 1):
                dots[y // 4, column // 2] |= DOTS[y % 4, column % 2]
                owner[y // 4, column // 2] = number
    made: list[list[output.Part]] = []
    for row in range(rows):
        parts: list[output.Part] = []
        cells = zip(dots[row].tolist(), owner[row].tolist(), strict=True)
        for number, some in itertools.groupby(cells, key=lambda cell: cell[1]):
            text = "".join(chr(0x2800 + dot) if dot else " " for dot, _ in some)
            parts.append((text, STYLES[number % len(STYLES)]))
        made.append(parts)
    return made


def _runs(across: np.ndarray, down: np.ndarray, wide: int) -> dict[int, tuple[float, float]]:
    """For each column of dots the line's highest and lowest place there. A value that is not there ends a line."""
    found: dict[int, tuple[float, float]] = {}

    def reach(column: int, *places: float) -> None:
        top, bottom = found.get(column, (places[0], places[0]))
        found[column] = min(top, *places), max(bottom, *places)

    there = ~np.isnan(down)
    column = np.round(across).astype(int)
    top, bottom = np.full(wide, np.inf), np.full(wide, -np.inf)
    np.minimum.at(top, column[there], down[there])
    np.maximum.at(bottom, column[there], down[there])
    for at in np.flatnonzero(bottom >= top).tolist():
        reach(at, top[at], bottom[at])
    for at in np.flatnonzero((np.diff(column) > 0) & there[1:] & there[:-1]).tolist():
        first, last, slope = column[at], column[at + 1], (down[at + 1] - down[at]) / (column[at + 1] - column[at])
        for one in range(first, last + 1):
            edges = (max(one - 0.5, first), min(one + 0.5, last))
            reach(one, *(down[at] + slope * (edge - first) for edge in edges))
    return found


def _span(values: list[np.ndarray]) -> tuple[float, float]:
    there = np.concatenate([one[~np.isnan(one)] for one in values])
    low, high = (float(there.min()), float(there.max())) if len(there) else (0.0, 1.0)
    wider = 0.0 if high - low > max(abs(low), abs(high)) * 1e-14 + 1 / HUGE else abs(low) / 10 or 1.0
    return low - wider, high + wider


def _ends(times: np.ndarray) -> tuple[int, int]:
    start, end = (int(times[0]), int(times[-1])) if len(times) else (0, 0)
    return (start, end) if end > start else (start - SECOND // 2, end + SECOND // 2)


def _levels(low: float, high: float, most: int) -> list[float]:
    """Round numbers among the values."""
    power = math.floor(math.log10((high - low) / most))
    steps = (unit * 10.0**more for more in (power, power + 1) for unit in (1, 2, 5))
    step = next(step for step in steps if (high - low) / step <= most)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _texts(levels: list[float]) -> list[str]:
    """As short as they can be, and all different."""
    return next(
        made for digits in range(3, 18) if len(set(made := [f"{one:.{digits}g}" for one in levels])) == len(made)
    )


def _text(value: float) -> str:
    return f"{value:.6g}"


def _below(times: np.ndarray, columns: int) -> tuple[str, str, str]:
    """The axis of times: its line, its labels, and the days."""
    if not len(times):
        return "─" * columns, "", "no rows"
    start, end = _ends(times)
    days = [DAY * count for count in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]
    step = next((one for one in [*STEPS, *days] if (end - start) / one * 16 <= columns), end - start)
    marks, below = ["─"] * columns, [" "] * columns
    for at in range(-(-start // step) * step, end + 1, step):
        column = round((at - start) / (end - start) * (columns - 1))
        label = _time(at, step)
        place = min(max(0, column - len(label) // 2), columns - len(label))
        marks[column] = "┬"
        if not "".join(below[max(0, place - 1) : place + len(label)]).strip():
            below[place : place + len(label)] = label
    first, last = (f"{_utc(one):%Y-%m-%d}" for one in (start, end))
    day = f"{first} UTC" if first == last else f"{first} to {last} UTC"
    return "".join(marks), "".join(below), f"{day}, {output.many(len(times), 'row')}"


def _utc(time: int) -> datetime:
    return datetime.fromtimestamp(time // SECOND, UTC).replace(microsecond=time % SECOND)


def _time(time: int, step: int) -> str:
    if step >= 100 * DAY:
        return f"{_utc(time):%Y-%m}"
    if step >= DAY:
        return f"{_utc(time):%m-%d}"
    if step >= 60 * SECOND:
        return f"{_utc(time):%H:%M}"
    text = f"{_utc(time):%H:%M:%S.%f}"
    return text[:8] if step >= SECOND else text[: -min(5, len(str(step)) - 1)] if step >= 10 else text


# ---- a file ----


def check_file(path: Path) -> None:
    """`Invalid` for another ending than those of the pictures that can be written; `MissingPackage` without matplotlib."""
    if path.suffix.lower() not in ENDINGS:
        raise penstock.Invalid(f"--plot {output.path(path)}: the name of a picture ends in {' or '.join(ENDINGS)}")
    with explain_missing("--plot"):
        import matplotlib  # noqa: F401


def write(found: Any, path: Path) -> None:
    """The picture as a file, whole or not at all. `SystemFailure` if it cannot be written."""
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    from penstock.cli.tables.answers import writing

    lines = lines_of(found)
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 10, "axes.prop_cycle": cycler(color=COLORS)}):
        figure = Figure(figsize=(10, 4.5), layout="constrained")
        axes = figure.subplots()
        alone = len(lines.times) < 60
        for name, values in lines.values.items():
            axes.plot(lines.times.astype("datetime64[us]"), values, label=name, lw=1.4, marker="." if alone else None)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#eef0f3")
        axes.set_axisbelow(True)
        axes.set_xlabel(f"{lines.name} (UTC)", color="#6b7280")
        locator = AutoDateLocator()
        formats = ["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"]
        days = ["", "%Y", "%Y", "%Y-%m-%d", "%Y-%m-%d", "%Y-%m-%d"]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(
            ConciseDateFormatter(locator, formats=formats, zero_formats=formats, offset_formats=days)
        )
        axes.ticklabel_format(axis="y", useOffset=False)
        if len(lines.values) == 1:
            axes.set_ylabel(next(iter(lines.values)), color="#6b7280")
        else:
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        with writing(path) as made:
            ending = path.suffix[1:].lower()
            figure.savefig(made, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)
