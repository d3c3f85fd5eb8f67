"""A report's plots of the transport, as SVG: each in a wide form, and in a narrow form for phones. Knows matplotlib; reads no table.

Colours of text and lines are replaced by the page's style, which has a dark one.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from penstock.cli.report.streams import Stream
from penstock.cli.terminal.fitting import shortened
from penstock.cli.terminal.output import duration

COLORS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#db2777", "#6b7280", "#65a30d")
WIDE, HALF, NARROW = 11.0, 5.6, 4.6  # inches
LETTERS, LETTERS_NARROW = 32, 24  # of a name in a picture
WINDOWS = 60
FAR = 20  # rates that differ by this factor need a log scale
LINE, GRID, TEXT = "#9ca3af", "#eef0f3", "#6b7280"  # page.html names these, too
STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": TEXT,
    "text.color": TEXT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
}
_numbers = itertools.count()


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Draws without a screen, in the report's style."""
    mpl.use("Agg")
    with mpl.rc_context(STYLE):
        yield


def svg(figure: Any) -> str:
    """A figure as SVG. Its ids are its own: those of two figures on a page must differ."""
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": f"penstock-{next(_numbers)}"}):
        figure.savefig(out, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def both(draw: Callable[[float], Any], width: float = WIDE) -> str:
    """A figure drawn in its width and in a phone's."""
    return f'<div class="wide">{svg(draw(width))}</div><div class="narrow">{svg(draw(NARROW))}</div>'


def shorten(streams: Sequence[tuple[Stream, str]], letters: int) -> dict[str, str]:
    """Names that have room in a picture; two of them never look the same."""
    return shortened([stream.name for stream, _ in streams], letters)


def plots(streams: Sequence[Stream]) -> dict[str, str]:
    """The plots by their names in the page."""
    with_color = list(zip(streams, COLORS * (len(streams) // len(COLORS) + 1), strict=False))
    seen = [stream.times for stream in streams if len(stream.times)]
    begun, ended = (min(int(t[0]) for t in seen), max(int(t[-1]) for t in seen)) if seen else (0, 0)
    width = max((ended - begun) / 1e9 / WINDOWS, 1e-3)
    return {
        "rates": both(lambda inches: _rates(with_color, begun, width, inches)),
        "window": duration(width * 1e9),
        "latency": both(lambda inches: _latency(with_color, inches), HALF),
        "tail": both(lambda inches: _tail(with_color, inches), HALF),
        "gaps": both(lambda inches: _gaps(with_color, begun, inches)),
    }


def windows(times: Any, begun: int, width: float) -> tuple[Any, Any]:
    """(start of each window in seconds, messages per second in it), of the windows within the stream.

    A window that the stream's first or last message cuts would count too few: it is left out.
    """
    if len(times) < 2:
        return np.zeros(0), np.zeros(0)
    seconds = (times - begun) / 1e9
    first, last = int(np.ceil(seconds[0] / width)), int(np.floor(seconds[-1] / width))
    if last <= first:
        return np.zeros(0), np.zeros(0)
    counts = np.histogram(seconds, bins=np.arange(first, last + 1) * width)[0]
    return np.arange(first, last) * width, counts / width


def _rates(streams: list[tuple[Stream, str]], begun: int, width: float, inches: float) -> Any:
    figure, axes = plt.subplots(figsize=(inches, 3.6))
    names = shorten(streams, LETTERS if inches > HALF else LETTERS_NARROW)
    for stream, color in streams:
        at, rate = windows(stream.times, begun, width)
        if len(at):
            at, rate = np.append(at, at[-1] + width), np.append(rate, rate[-1])
            axes.step(at, np.where(rate > 0, rate, np.nan), where="post", color=color, lw=1.6, label=names[stream.name])
    shown = [rate for line in axes.lines for rate in line.get_ydata() if rate > 0]
    if shown and max(shown) > FAR * min(shown):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    over_seconds(axes)
    axes.set_ylabel("messages/s")
    if axes.lines:
        columns = max(1, min(5 if inches > HALF else 2, int(inches * 12 / max(map(len, names.values())))))
        axes.legend(frameon=False, ncol=columns, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=9)
    return figure


def _latency(streams: list[tuple[Stream, str]], inches: float) -> Any:
    figure, axes = plt.subplots(figsize=(inches, 3.6))
    for stream, color in streams:
        values = np.sort(stream.latencies)
        if len(values):
            at = np.unique(np.linspace(0, len(values) - 1, 300).astype(int))
            axes.plot(np.maximum(values[at], 1), (at + 1) / len(values) * 100, color=color, lw=1.6)
    _durations(axes, axes.xaxis, "x", 4 if inches < HALF else 5)
    axes.set_xlabel("latency")
    axes.set_ylabel("% of messages")
    return figure


def _tail(streams: list[tuple[Stream, str]], inches: float) -> Any:
    """Latency over the share of messages that took longer: each step to the right is ten times rarer."""
    figure, axes = plt.subplots(figsize=(inches, 3.6))
    most = 100
    for stream, color in streams:
        values = np.sort(stream.latencies)[::-1]
        if len(values):
            most = max(most, len(values))
            at = np.unique(np.geomspace(1, len(values), 200).astype(int))
            axes.plot(len(values) / at, np.maximum(values[at - 1], 1), color=color, lw=1.6)
    axes.set_xscale("log")
    _durations(axes, axes.yaxis, "y", 6)
    ticks = [(10.0**power, 100 - 100 / 10.0**power) for power in range(int(np.log10(most)) + 1)]
    axes.set_xticks([at for at, _ in ticks], ["min" if not share else f"p{share:.6g}" for _, share in ticks])
    axes.minorticks_off()
    axes.set_ylabel("latency")
    return figure


def over_seconds(axes: Any) -> None:
    """Names the axis of time: seconds, or milliseconds where all of it is shorter than half a second."""
    low, high = axes.get_xlim()
    if high - low < 0.5:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value * 1e3:.10g}")
    axes.set_xlabel("milliseconds" if high - low < 0.5 else "seconds")


def duration_ticks(low: float, high: float, most: int) -> list[float]:
    """Some round durations from low to high for a log scale: powers of ten, or finer steps if there are few of those."""
    powers = [10.0**power for power in range(int(np.ceil(np.log10(low))), int(np.floor(np.log10(high))) + 1)]
    if len(powers) >= 3:
        return powers[:: int(np.ceil(len(powers) / most))]
    if high >= 5 * low:
        steps = [
            10.0**power * step for power in range(int(np.log10(low)), int(np.log10(high)) + 1) for step in (1, 2, 5)
        ]
    else:
        steps = list(MaxNLocator(most - 1).tick_values(low, high))
    return [step for step in steps if low <= step <= high]


def _durations(axes: Any, axis: Any, side: str, most: int) -> None:
    """A log scale of nanoseconds, with ticks as people write durations."""
    axes.autoscale_view()
    getattr(axes, f"set_{side}scale")("log")
    low, high = getattr(axes, f"get_{side}lim")()
    axis.set_major_locator(FixedLocator(duration_ticks(max(low, 1.0), max(high, 10.0), most)))
    axis.set_major_formatter(lambda value, _: duration(value))
    axis.set_minor_locator(NullLocator())


def _gaps(streams: list[tuple[Stream, str]], begun: int, inches: float) -> Any:
    shown = streams[::-1]
    names = shorten(streams, LETTERS_NARROW if inches < HALF else LETTERS)
    narrow = inches < HALF  # names and times are above the bars, where a phone has room for them
    figure, axes = plt.subplots(figsize=(inches, 0.45 + (0.56 if narrow else 0.34) * max(len(shown), 1)))
    for place, (stream, color) in enumerate(shown):
        if len(stream.times) < 2:
            continue
        seconds = (stream.times - begun) / 1e9
        height = 0.3 if narrow else 0.55
        axes.barh(place, seconds[-1] - seconds[0], left=seconds[0], color=color, alpha=0.18, height=height)
        waits = np.diff(seconds)
        longest = int(np.argmax(waits))
        axes.barh(place, waits[longest], left=seconds[longest], color=color, height=height)
        usual = duration(float(np.median(waits)) * 1e9)
        text = f"{duration(float(waits[longest]) * 1e9)}, usual {usual}"
        if narrow:
            over = {"transform": axes.get_yaxis_transform(), "va": "bottom", "fontsize": 9}
            axes.text(0, place + 0.18, names[stream.name], **over)
            axes.text(1, place + 0.18, text, ha="right", **over)
        else:
            axes.text(seconds[-1], place, f"  {text}", va="center", fontsize=8.5)
    axes.set_yticks(range(len(shown)), ["" if narrow else names[stream.name] for stream, _ in shown])
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.06)
    axes.set_ylim(-0.6, len(shown) - 0.3)
    over_seconds(axes)
    return figure
