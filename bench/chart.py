"""Draws results: `python -m bench.chart FILE`. Of `log_ipc` the README's chart, docs/log_ipc.svg; of `udp` docs/udp.svg; of
`growth` docs/pictures/growth_KIND.svg."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.growth import COPIES, KINDS, MESSAGE, RECORDED, number

DOCS = Path(__file__).parent.parent / "docs"
NAMES = {  # a call for each message
    "penstock": "Penstock",
    "pyaeron": "pyaeron (polls up to 256)",
    "pyzmq": "pyzmq",
    "mp_pipe": "multiprocessing.Pipe",
    "mp_queue": "multiprocessing.Queue",
    "faster_fifo": "faster-fifo",
    "iceoryx2": "iceoryx2",
    "pyaeron udp": "pyaeron, UDP",
    "pyzmq tcp": "pyzmq, TCP",
    "raw Python UDP": "a Python socket, UDP",
}
BATCHES = {  # a call for many
    "penstock batches": "Penstock, in batches",
    "faster_fifo_many": "faster-fifo, in batches",
}
COLORS = {
    "send": "#2563eb",
    "receive": "#d97706",
    COPIES: "#9ca3af",
    "open": "#2563eb",
    "list": "#d97706",
    "plan": "#059669",
}
BY_REFERENCE = {kind.name for kind in KINDS if kind.by_reference}


def log_ipc(content: dict[str, Any], plot: Any) -> list[Path]:
    """Between processes of one machine."""
    return [throughput(content, plot, "64 B, 1 subscriber", "process to process, from Python", "log_ipc.svg")]


def udp(content: dict[str, Any], plot: Any) -> list[Path]:
    """Over the network's loopback."""
    return [throughput(content, plot, "64 B", "over loopback, from Python", "udp.svg")]


def throughput(content: dict[str, Any], plot: Any, case: str, way: str, name: str) -> Path:
    """Messages a second to one subscriber, one bar each: calls for one message together, and calls for many together, each group with an
    axis of its own."""
    found = [r for r in content["results"] if r["case"] == case and r["metric"] == "throughput"]
    groups = [
        (group, sorted((r for r in found if r["who"] in group), key=lambda r: r["value"])) for group in (NAMES, BATCHES)
    ]
    groups = [(names, rows) for names, rows in groups if rows]
    heights = [len(rows) for _, rows in groups]
    figure, panels = plot.subplots(
        len(groups),
        figsize=(7.6, 1.1 * len(groups) + 0.34 * sum(heights)),
        gridspec_kw={"height_ratios": [height + 0.4 for height in heights]},
        squeeze=False,
    )
    for axes, (names, rows) in zip(panels[:, 0], groups, strict=True):
        colors = ["#2563eb" if r["who"].startswith("penstock") else "#9ca3af" for r in rows]
        axes.barh([names[r["who"]] for r in rows], [r["value"] / 1e6 for r in rows], color=colors, height=0.66)
        for place, row in enumerate(rows):
            axes.text(row["value"] / 1e6, place, f"  {row['value'] / 1e6:.2g}", va="center", fontsize=9)
        axes.set_title(
            "a call for each message" if names is NAMES else "a call for many messages", loc="left", fontsize=10
        )
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        axes.margins(x=0.1)
    panels[-1, 0].set_xlabel(f"million 64-byte messages per second, {way}")
    figure.tight_layout()
    said = f"{content['measured']}, {content['machine']}; python -m bench {content['question']}"
    figure.text(0.01, -0.02, said, fontsize=7.5, color="#6b7280", va="top")
    return save(figure, DOCS / name)


def growth(content: dict[str, Any], plot: Any) -> list[Path]:
    """A figure for each kind, with a panel for each thing that grows."""
    cases = list(dict.fromkeys(row["case"] for row in content["results"]))
    drawn = []
    for kind in dict.fromkeys(case.partition(", by ")[0] for case in cases):
        mine = [case for case in cases if case.startswith(f"{kind}, by ")]
        figure, panels = plot.subplots(1, len(mine), figsize=(3.3 * max(len(mine), 2), 2.9), squeeze=False)
        for axes, case in zip(panels[0], mine, strict=True):
            panel(axes, kind, case.partition(", by ")[2], [row for row in content["results"] if row["case"] == case])
        unit = "archive, CPU time of a call" if kind == "archive" else f"{kind}, CPU time of a call in one process"
        said = f"{unit}; {content['measured']}, {content['machine']}; python -m bench growth"
        figure.text(0.01, -0.02, said, fontsize=7.5, color="#6b7280", va="top")
        figure.tight_layout()
        drawn.append(save(figure, DOCS / "pictures" / f"growth_{kind}.svg"))
        plot.close(figure)
    return drawn


def panel(axes: Any, kind: str, grows: str, rows: list[dict[str, Any]]) -> None:
    """A line for each metric. Flat promises are drawn from 0; linear ones with two logarithmic axes."""
    linear = grows == RECORDED or (grows == MESSAGE and kind not in BY_REFERENCE)
    for metric in dict.fromkeys(row["metric"] for row in rows):
        points = sorted((number(row["who"]), row["value"]) for row in rows if row["metric"] == metric)
        style = {"linestyle": "--"} if metric == COPIES else {"marker": "o", "markersize": 3.5}
        axes.plot(*zip(*points, strict=True), color=COLORS[metric], label=metric, linewidth=1.5, **style)
    axes.set_xscale("log", base=10 if grows == RECORDED else 2)
    labels = {number(row["who"]): row["who"] for row in rows}
    every = sorted(labels)
    shown = every if len(every) <= 4 else every[:: 3 if len(every) > 7 else 2]
    axes.set_xticks(shown, [labels[at] for at in shown], fontsize=8)
    axes.minorticks_off()
    if linear:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(row["value"] for row in rows) * 1.35)
    axes.set_xlabel(grows, fontsize=9)
    axes.set_ylabel(f"{rows[0]['unit']}{', logarithmic' if linear else ''}", fontsize=9)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=1 if linear else 2)


def save(figure: Any, to: Path) -> Path:
    """Writes it without the date, so that the same result gives the same file."""
    figure.savefig(to, bbox_inches="tight", metadata={"Date": None})
    return to


CHARTS = {"log_ipc": log_ipc, "udp": udp, "growth": growth}


def main(source: Path) -> None:
    """Draws what the result's question has."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "penstock", "font.size": 10})
    import matplotlib.pyplot as plt

    content = json.loads(source.read_text())
    draws = CHARTS.get(content["question"])
    if draws is None:
        raise SystemExit(
            f"{source}: there is no chart of {content['question']}; there are charts of {', '.join(CHARTS)}"
        )
    if content["quick"]:
        raise SystemExit(f"{source} is of a --quick run: its inputs are too small to compare")
    for path in draws(content, plt):
        print(f"{path} drawn from {source}, measured on {content['machine']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
