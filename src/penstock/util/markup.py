"""Values as HTML for notebooks, and numbers as people read them. Text is escaped. Knows no channel."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

RIGHT = "text-align:right;font-variant-numeric:tabular-nums"


def count(value: float) -> str:
    """12,345."""
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes as 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(ns: float | None) -> str:
    """A length of time as 1.2 ms. A dash for None."""
    if ns is None:
        return "–"
    value = float(ns)
    for unit in ("ns", "µs", "ms"):
        if abs(value) < 999.5:
            return f"{value:.1f} {unit}" if abs(value) < 9.95 and unit != "ns" else f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:,.1f} s"


def moment(ns: int) -> str:
    """Nanoseconds since the epoch as a time in UTC, to the second. Empty for 0."""
    return f"{datetime.datetime.fromtimestamp(ns // 10**9, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC" if ns else ""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (), caption: str = "") -> str:
    """A table. right: titles of columns of numbers. It takes its colours from the notebook, so it follows a dark theme."""
    from html import escape  # only notebooks need it

    numbers = set(right)

    def cell(tag: str, title: str, text: str) -> str:
        return f'<{tag} style="{RIGHT if title in numbers else "text-align:left"}">{escape(text)}</{tag}>'

    head = "".join(cell("th", title, title) for title in titles)
    body = "".join(
        f"<tr>{''.join(cell('td', title, text) for title, text in zip(titles, row, strict=True))}</tr>" for row in rows
    )
    about = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{about}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
