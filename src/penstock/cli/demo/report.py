"""The demo's report: one self-contained page with plots. Knows tables and matplotlib; measures nothing."""

from __future__ import annotations

import datetime
import html
import io
import platform
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.cli.output import count, duration, size

COLORS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#db2777", "#4b5563", "#65a30d")

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock: {title}</title>
<style>
:root {{ --ink: #111827; --soft: #6b7280; --line: #e5e7eb; --paper: #ffffff; --ground: #f3f4f6; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }}
main {{ max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }}
h1 {{ font-size: 30px; margin: 0 0 4px; letter-spacing: -0.02em; }}
h2 {{ font-size: 17px; margin: 0 0 2px; }}
p {{ margin: 0; color: var(--soft); }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 28px 0; }}
.card, section {{ background: var(--paper); border: 1px solid var(--line); border-radius: 10px; }}
.card {{ padding: 14px 18px; }}
.card b {{ display: block; font-size: 25px; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }}
.card span {{ color: var(--soft); font-size: 13px; }}
section {{ padding: 20px 22px; margin-bottom: 16px; overflow-x: auto; }}
section svg {{ width: 100%; height: auto; margin-top: 10px; }}
.two {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); gap: 16px; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin-top: 10px; }}
th, td {{ text-align: right; padding: 7px 12px; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th {{ color: var(--soft); font-weight: 500; font-size: 13px; }}
th:first-child, td:first-child {{ text-align: left; }}
.dot {{ display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 8px; }}
footer {{ color: var(--soft); font-size: 13px; margin-top: 24px; }}
</style></head><body><main>
<h1>{headline}</h1>
<p>{subtitle}</p>
<div class="cards">{cards}</div>
<section><h2>Streams</h2><p>Latency is from the send's time stamp to a subscriber's read, over all subscribers.</p>{table}</section>
<section><h2>Rate over time</h2><p>Messages a second and stream, in windows of {window}. Log scale.</p>{rates}</section>
<div class="two">
<section><h2>Latency</h2><p>Share of messages read within this time. Log scale.</p>{latency}</section>
<section><h2>Sizes</h2><p>Payload bytes per stream; log scale.</p>{sizes}</section>
</div>
<section><h2>Gaps</h2><p>{gap_text}</p>{gaps}</section>
<footer>{footer}</footer>
</main></body></html>
"""


def write(path: Path, rows: list[dict[str, Any]], measured: dict[str, Any], tables: Path, what: str) -> None:
    """Writes the page. `rows` as in the demo's summary."""
    import matplotlib as mpl

    mpl.use("Agg")
    style = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#9ca3af",
        "axes.grid": True,
        "grid.color": "#eef0f3",
        "xtick.color": "#6b7280",
        "ytick.color": "#6b7280",
        "svg.hashsalt": "penstock",
    }
    frame = _messages(tables)
    begun = min((times[0] for times in frame.values() if len(times)), default=0)
    ended = max((times[-1] for times in frame.values() if len(times)), default=0)
    width = max((ended - begun) / 1e9 / 60, 1e-3)
    lost = sum(row["lost"] for row in rows)
    with mpl.rc_context(style):
        plots = {
            "rates": _rates(rows, frame, begun, width),
            "latency": _latency(rows, measured),
            "sizes": _sizes(rows),
            "gaps": _gaps(rows, frame, begun),
        }
    total = sum(row["messages"] for row in rows)
    latency = np.concatenate([r[row["stream"]]["latency_ns"] for r in measured["subscribers"] for row in rows])
    cards = [
        (count(total), "messages sent"),
        (str(len(rows)), "streams"),
        (size(sum(row["bytes"] for row in rows)), "payload"),
        (f"{(ended - begun) / 1e9:.1f} s", "of traffic"),
        (duration(float(np.median(latency))) if len(latency) else "–", "median latency"),
        (count(lost), "lost, over all readers" if lost else "lost"),
    ]
    gap_text = (
        "Longest silence in each stream, and when it was. Nothing was lost."
        if not lost
        else f"{lost:,} messages were lost."
    )
    now = datetime.datetime.now().astimezone()
    path.write_text(
        PAGE.format(
            title=html.escape(what),
            headline="Every message, got or counted as lost" if lost else "Every message, end to end",
            subtitle=f"Published from {html.escape(what)}, read by {len(measured['subscribers'])} processes, recorded, and turned into tables by Spark.",
            cards="".join(f'<div class="card"><b>{value}</b><span>{name}</span></div>' for value, name in cards),
            table=_table(rows),
            window=duration(width * 1e9),
            gap_text=gap_text,
            footer=html.escape(
                f"Penstock {penstock.__version__}, Python {platform.python_version()}, {platform.machine()}, {now:%Y-%m-%d %H:%M %Z}"
            ),
            **plots,
        ),
        encoding="utf-8",
    )


def _messages(tables: Path) -> dict[str, Any]:
    """Send times per stream, in order, from the table *messages*."""
    import pyarrow.parquet as pq

    from penstock.spark.tables import Manifest

    found: dict[str, list[Any]] = {}
    for row in Manifest.load(tables).files["messages"]:
        times = pq.read_table(tables / row["path"], columns=["timestamp_ns"])["timestamp_ns"].to_numpy()
        found.setdefault(row["stream"], []).append(times)
    return {stream: np.sort(np.concatenate(parts)) for stream, parts in found.items()}


def _name(stream: str) -> str:
    return stream.split(":", 1)[1].removeprefix("demo.").removeprefix("drive.")


def _svg(figure: Any) -> str:
    import matplotlib.pyplot as plt

    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _axes(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(width, height))
    axes.set_axisbelow(True)
    return figure, axes


def _rates(rows: list[dict[str, Any]], frame: dict[str, Any], begun: int, width: float) -> str:
    figure, axes = _axes(11, 3.6)
    for row, color in zip(rows, COLORS * 4, strict=False):
        times = frame.get(row["stream"])
        if times is None or not len(times):
            continue
        bins = ((times - begun) / 1e9 / width).astype(int)
        counts = np.bincount(bins, minlength=60)[:60] / width
        axes.step(
            np.arange(len(counts)) * width,
            np.where(counts > 0, counts, np.nan),
            where="post",
            color=color,
            lw=1.6,
            label=_name(row["stream"]),
        )
    axes.set_yscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("messages/s")
    axes.legend(frameon=False, ncol=5, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=9)
    return _svg(figure)


def _latency(rows: list[dict[str, Any]], measured: dict[str, Any]) -> str:
    figure, axes = _axes(5.6, 3.6)
    for row, color in zip(rows, COLORS * 4, strict=False):
        values = np.sort(np.concatenate([result[row["stream"]]["latency_ns"] for result in measured["subscribers"]]))
        if not len(values):
            continue
        at = np.unique(np.linspace(0, len(values) - 1, 300).astype(int))
        axes.plot(np.maximum(values[at], 1) / 1e3, (at + 1) / len(values) * 100, color=color, lw=1.6)
    axes.set_xscale("log")
    axes.set_xlabel("µs")
    axes.set_ylabel("% of messages")
    axes.axhline(50, color="#9ca3af", lw=0.8, ls=":")
    axes.axhline(99, color="#9ca3af", lw=0.8, ls=":")
    return _svg(figure)


def _sizes(rows: list[dict[str, Any]]) -> str:
    figure, axes = _axes(5.6, 3.6)
    shown = list(zip(rows, COLORS * 4, strict=False))[::-1]
    values = [max(row["bytes"], 1) for row, _ in shown]
    axes.barh([_name(row["stream"]) for row, _ in shown], values, color=[color for _, color in shown], height=0.62)
    for place, (value, (row, _)) in enumerate(zip(values, shown, strict=True)):
        axes.text(
            value * 1.15,
            place,
            f"{size(value)}  ({size(row['bytes'] / max(row['messages'], 1))} each)",
            va="center",
            fontsize=8.5,
            color="#374151",
        )
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 3, max(values) * 60)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("bytes")
    return _svg(figure)


def _gaps(rows: list[dict[str, Any]], frame: dict[str, Any], begun: int) -> str:
    figure, axes = _axes(11, 0.45 + 0.34 * len(rows))
    shown = list(zip(rows, COLORS * 4, strict=False))[::-1]
    for place, (row, color) in enumerate(shown):
        times = frame.get(row["stream"])
        if times is None or len(times) < 2:
            continue
        seconds = (times - begun) / 1e9
        axes.barh(place, seconds[-1] - seconds[0], left=seconds[0], color=color, alpha=0.18, height=0.55)
        waits = np.diff(seconds)
        longest = int(np.argmax(waits))
        axes.barh(place, waits[longest], left=seconds[longest], color=color, height=0.55)
        axes.text(
            seconds[-1], place, f"  {duration(float(waits[longest]) * 1e9)}", va="center", fontsize=8.5, color="#374151"
        )
    axes.set_yticks(range(len(shown)), [_name(row["stream"]) for row, _ in shown])
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds")
    axes.margins(x=0.06)
    return _svg(figure)


def _table(rows: list[dict[str, Any]]) -> str:
    head = "<tr><th>stream</th><th>messages</th><th>rate/s</th><th>bytes</th><th>latency p50</th><th>p99</th><th>lost</th></tr>"
    body = "".join(
        f'<tr><td><span class="dot" style="background:{color}"></span>{html.escape(_name(row["stream"]))}</td>'
        f"<td>{count(row['messages'])}</td><td>{count(row['rate'])}</td><td>{size(row['bytes'])}</td>"
        f"<td>{duration(row['latency_p50_ns'])}</td><td>{duration(row['latency_p99_ns'])}</td><td>{count(row['lost'])}</td></tr>"
        for row, color in zip(rows, COLORS * 4, strict=False)
    )
    return f"<table>{head}{body}</table>"
