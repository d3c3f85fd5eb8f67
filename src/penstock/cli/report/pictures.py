"""A report's pictures of the data: columns over time, one panel per unit; the first rows of a table without a time."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cli.report import drawing
from penstock.cli.report.sources import Part
from penstock.cli.terminal.output import count

COLORS = drawing.COLORS[:6]
TIMES = ("time_s", "time", "t", "window_start", "timestamp")
OURS = (
    "epoch",
    "position",
    "recording",
    "session",
    "timestamp_ns",
    "recorded_ns",
    "ingested_at",
)  # of the table of a stream
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
PARTS = 8  # of a vector, at most; a longer one is an array, not a few numbers
APART = 100.0  # parts of a vector whose sizes differ by this factor are not drawn in one panel


def sections(parts: Iterable[Part]) -> str:
    """A section of the page for each stream that has decoded numbers, and for each of the user's tables."""
    return "".join(map(_section, parts))


def _section(part: Part) -> str:
    found = part.rows
    shown = found.drop_columns([name for name in OURS if part.decoded and name in found.column_names])
    time = _time(shown)
    drawn, vectors = (shown, {}) if time is None else _spread(shown)
    lines = [] if time is None else _lines(drawn, vectors)
    if part.decoded and not lines:
        return ""
    body = _plot(drawn, time, lines) if time is not None and lines else _first_rows(shown)
    rows = f"{html.escape(part.caption)}{count(found.num_rows)} rows."
    return f"<section><h2>{html.escape(part.name)}</h2><p>{rows}</p>{body}</section>"


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


def _spread(found: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """The table with a column for each number of its vectors and structs, and the vector of each such column.

    A vector is a list with the same few numbers in every row. Of a vector of one number, the column has its name.
    """
    columns: dict[str, Any] = {}
    of: dict[str, str] = {}
    flat = found.flatten()
    for name, column in zip(flat.column_names, flat.columns, strict=True):
        parts = _parts(column)
        for number in range(parts):
            part = f"{name}[{number}]" if parts > 1 else name
            columns[part] = pc.list_element(column, number)
            of[part] = name
        if not parts:
            columns[name] = column
    return pa.table(columns), of


def _parts(column: pa.ChunkedArray) -> int:
    """How many numbers a vector has in every row; 0 if the column holds no such vectors."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return 0
    lengths = pc.min_max(pc.list_value_length(column)).as_py()
    same = lengths["min"] == lengths["max"] and lengths["min"] is not None
    return lengths["min"] if same and lengths["min"] <= PARTS and _is_number(kind.value_type) else 0


def _lines(found: pa.Table, vectors: dict[str, str]) -> list[tuple[str, list[str]]]:
    """(unit, columns) of each panel. Columns of one unit share a panel, and so do the parts of a vector; others have their own."""
    panels: dict[str, list[str]] = {}
    for field in found.schema:
        if field.name not in TIMES and _is_number(field.type) and _has_values(found[field.name]):
            name = vectors.get(field.name, field.name)
            unit = next((unit for unit in UNITS if name.endswith(f"_{unit}")), "")
            panels.setdefault(unit or name, []).append(field.name)
    lines = [(unit if unit in UNITS else "", names) for unit, names in panels.items()]
    apart = [(unit, [one]) for unit, names in lines if _are_apart(found, names) for one in names]
    together = [(unit, names) for unit, names in lines if not _are_apart(found, names)]
    return (together + apart)[:PANELS]


def _has_values(column: pa.ChunkedArray) -> bool:
    """Whether it has a number that can be drawn: no null, and not nan."""
    return bool(pc.any(pc.is_finite(column.cast(pa.float64(), safe=False))).as_py())


def _are_apart(found: pa.Table, names: Sequence[str]) -> bool:
    """Whether one panel would show some of these columns as a line at 0."""
    if len(names) < 2 or "[" not in names[0]:
        return False
    sizes = [pc.max(pc.abs(found[name].cast(pa.float64(), safe=False))).as_py() or 0.0 for name in names]
    seen = [size for size in sizes if size > 0]
    return bool(seen) and max(seen) > APART * min(seen)


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
        for number, (name, color) in enumerate(zip(names, COLORS * 4, strict=False)):
            label = (name.removesuffix(f"_{unit}") if unit else name).replace("_", " ")
            values = found[name].cast(pa.float64(), safe=False).to_numpy()
            # The first of several is broad and pale: an equal curve is drawn on top, and both are visible. Parts of a vector do not.
            pale = number == 0 and len(names) > 1 and "[" not in name
            axes.plot(seconds, values, color=color, lw=3.2 if pale else 1.3, alpha=0.35 if pale else 1, label=label)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.13g}")
        axes.set_ylabel(UNITS.get(unit, ""), rotation=0, ha="right", va="center")
        columns = 6 if inches > drawing.HALF else 3
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 0.98), ncols=columns, frameon=False, fontsize=9, borderaxespad=0
        )
        axes.margins(x=0.005)
    drawing.over_seconds(all_axes[-1, 0])
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
