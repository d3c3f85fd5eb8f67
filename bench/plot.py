"""Draws the results of one question with matplotlib: bars of everyone in a case, or lines where something grows. Measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

OURS, OTHERS = "#2563eb", "#9ca3af"
BATCHES = (" batches", "_many")  # ends of the names of those that hand over many messages a call

Row = dict[str, Any]
Panel = tuple[str, list[Row]]  # a title, and the results below it


def bars(results: list[Row], wanted: tuple[tuple[str, str], ...]) -> list[Panel]:
    """A panel for each of these cases and metrics; for each case's first metric, where none are wanted."""
    first: dict[str, str] = {}
    for row in results:
        first.setdefault(row["case"], row["metric"])
    return [
        (f"{case}: {metric}", [row for row in results if (row["case"], row["metric"]) == (case, metric)])
        for case, metric in wanted or tuple(first.items())
    ]


def lines(results: list[Row]) -> list[Panel]:
    """A panel for each case, whose names are what grows."""
    cases = dict.fromkeys(row["case"] for row in results)
    return [(case, [row for row in results if row["case"] == case]) for case in cases]


def draw(content: dict[str, Any], to: Path, wanted: tuple[tuple[str, str], ...] = (), *, grows: bool = False) -> None:
    """Draws what `Report.as_json` gives. wanted: the bars' cases and metrics. grows: lines instead."""
    found = lines(content["results"]) if grows else bars(content["results"], wanted)
    panels = [(title, rows) for title, rows in found if rows]
    columns = min(3 if grows else 2, max(len(panels), 1))
    chunks = [panels[at : at + columns] for at in range(0, len(panels), columns)]
    heights = [2.4 if grows else 0.8 + 0.26 * max(len(rows) for _, rows in chunk) for chunk in chunks] or [1.0]
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(4.2 * columns if grows else 5 * columns, sum(heights) + 0.3), layout="constrained")
        grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
        for axes, panel in zip(grid.flat, panels, strict=False):
            (_lines if grows else _bars)(axes, *panel)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        said = f"{content['measured']}, {content['machine']}; python -m bench {content['question']}"
        figure.supxlabel(f"{said} --quick" if content["quick"] else said, fontsize=7, color="gray")
        figure.savefig(to, metadata={"Date": None} if to.suffix == ".svg" else None)


def _bars(axes: Any, title: str, rows: list[Row]) -> None:
    """The longest on top, ours in blue; batches are hatched."""
    scale, unit = (1e6, "million ") if max(row["value"] for row in rows) >= 1e6 else (1, "")
    for row in sorted(rows, key=lambda row: float(row["value"])):
        value, who = row["value"] / scale, row["who"]
        drawn = axes.barh(
            [who],
            [value],
            color=OURS if who.startswith("penstock") else OTHERS,
            hatch="///" if who.endswith(BATCHES) else None,
            edgecolor="white",
        )
        axes.bar_label(drawn, [f"{value:,.0f}" if value >= 100 else f"{value:.3g}"], padding=3)
    axes.set_title(f"{title}, {unit}{rows[0]['unit']}", loc="left", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.14)


def _lines(axes: Any, title: str, rows: list[Row]) -> None:
    """Values that grow a hundredfold are drawn on a logarithmic axis, others from 0."""
    for metric in dict.fromkeys(row["metric"] for row in rows):
        mine = [row for row in rows if row["metric"] == metric]
        axes.plot([row["who"] for row in mine], [row["value"] for row in mine], marker=".", label=metric)
    values = [row["value"] for row in rows]
    if max(values) > 100 * min(values):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(values) * 1.35)
    axes.set_title(f"{title}, {rows[0]['unit']}", loc="left", fontsize=8)
    axes.tick_params(axis="x", labelrotation=30, labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)
