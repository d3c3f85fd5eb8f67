"""A report's pictures of the data: columns over time, one panel per unit; the first rows of a table without a time."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.cli.output import count
from penstock.cli.report import drawing

COLORS = drawing.COLORS[:6]
TIMES = ("time_s", "time", "t", "window_start", "timestamp")
OURS = ("session", "position", "timestamp_ns", "recorded_ns")  # of the table of a stream
# How a column's name ends, and its unit.
UNITS = {
    "km_h": "km/h",
    "m_s": "m/s",
    "deg": "°",
    "percent": "%",
    "rpm": "1/min",
    "hz": "Hz",
    "bytes": "B",
    "ns": "ns",
    "ms": "ms",
    "s": "s",
    "m": "m",
}
POINTS, ROWS, PANELS = 1500, 10, 6


def sections(tables: Path, channels: Sequence[str], own: Sequence[str]) -> str:
    """A section of the page for each stream that has decoded numbers, and for each of the user's tables."""
    from penstock.spark.tables import open_table, read, streams

    known = streams(tables)
    decoded = [channel for channel in channels if channel in known]
    made = [_section(channel.partition(":")[2], "", read(tables, channel), data=True) for channel in decoded]
    for name in own:
        about = open_table(tables, name).description or ""
        made.append(
            _section(name, f"{about} " if not about or about.endswith(".") else f"{about}. ", read(tables, name))
        )
    return "".join(made)


def _section(name: str, told: str, found: pa.Table, data: bool = False) -> str:
    """data: of a stream, whose table has columns of Penstock's, and is left out where nothing else can be drawn."""
    shown = found.drop_columns([name for name in OURS if data and name in found.column_names])
    time = _time(shown)
    lines = [] if time is None else _lines(shown, time)
    if data and not lines:
        return ""
    body = _plot(shown, time, lines) if time is not None and lines else _first_rows(shown)
    return (
        f"<section><h2>{html.escape(name)}</h2><p>{html.escape(told)}{count(found.num_rows)} rows.</p>{body}</section>"
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _time(found: pa.Table) -> str | None:
    """The column that the others are drawn over."""
    for name in TIMES:
        if name in found.column_names:
            kind = found.schema.field(name).type
            if _is_number(kind) or pa.types.is_timestamp(kind):
                return name
    return None


def _lines(found: pa.Table, time: str) -> list[tuple[str, list[str]]]:
    """(unit, columns) of each panel. Columns of one unit share a panel; a column without one has its own."""
    panels: dict[str, list[str]] = {}
    for field in found.schema:
        if field.name not in TIMES and _is_number(field.type):
            unit = next((unit for unit in UNITS if field.name.endswith(f"_{unit}")), "")
            panels.setdefault(unit or field.name, []).append(field.name)
    return [(unit if unit in UNITS else "", names) for unit, names in panels.items()][:PANELS]


def _plot(found: pa.Table, time: str, panels: list[tuple[str, list[str]]]) -> str:
    found = found.sort_by(time)
    at = np.unique(np.linspace(0, found.num_rows - 1, min(POINTS, found.num_rows)).astype(int))
    found = found.take(pa.array(at))
    return drawing.both(lambda inches: _panels(found, _seconds(found[time]), panels, inches))


def _panels(found: pa.Table, seconds: Any, panels: list[tuple[str, list[str]]], inches: float) -> Any:
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(
        len(panels), 1, sharex=True, figsize=(inches, 0.5 + 1.55 * len(panels)), layout="constrained", squeeze=False
    )
    for axes, (unit, names) in zip(all_axes[:, 0], panels, strict=True):
        widths = [3.2, *[1.2] * (len(names) - 1)] if len(names) > 1 else [1.5]
        for number, (name, color, width) in enumerate(zip(names, COLORS * 4, widths, strict=False)):
            label = (name.removesuffix(f"_{unit}") if unit else name).replace("_", " ")
            values = found[name].cast(pa.float64(), safe=False).to_numpy()
            # The first of several is broad and pale: one that is equal lies on it, and both are seen.
            pale = number == 0 and len(names) > 1
            axes.plot(seconds, values, color=color, lw=width, alpha=0.35 if pale else 1, label=label)
        axes.set_ylabel(UNITS.get(unit, ""), rotation=0, ha="right", va="center")
        columns = 6 if inches > drawing.HALF else 3
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 0.98), ncols=columns, frameon=False, fontsize=9, borderaxespad=0
        )
        axes.margins(x=0.005)
    all_axes[-1, 0].set_xlabel("seconds")
    return figure


def _seconds(column: pa.ChunkedArray) -> Any:
    """Seconds since the first row."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        ticks = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        values = column.cast(pa.int64()).to_numpy() / ticks
    else:
        values = column.cast(pa.float64(), safe=False).to_numpy()
    return values - values[0] if len(values) else values


def _first_rows(found: pa.Table) -> str:
    """The first rows of a table, as one."""
    shown = [name for name in found.column_names if not pa.types.is_nested(found.schema.field(name).type)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in shown)
    rows = found.slice(0, ROWS).to_pylist()
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(_cell(row[name]))}</td>' for name in shown)}</tr>" for row in rows)
    more = f"<p>The first {ROWS} rows.</p>" if found.num_rows > ROWS else ""
    return f'<div class="wide-table"><table><tr>{head}</tr>{body}</table></div>{more}'


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, bytes):
        return value.hex(" ")
    return str(value)
