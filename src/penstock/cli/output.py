"""How commands print: numbers for people, JSON for programs. Knows rich; knows no channel."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

console = Console(soft_wrap=True)
errors = Console(stderr=True, soft_wrap=True)


def as_json(value: Any) -> str:
    """Dataclasses, paths and bytes as JSON."""

    def plain(item: Any) -> Any:
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            return dataclasses.asdict(item)
        if isinstance(item, Path):
            return str(item)
        if hasattr(item, "summary"):  # a frame: what is said of it
            return item.summary()
        if isinstance(item, bytes | memoryview):
            return bytes(item).decode("utf-8", "backslashreplace")
        if hasattr(item, "tolist"):
            return item.tolist()
        raise TypeError(f"{type(item).__name__} is not JSON")

    return json.dumps(value, default=plain)


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
    """Nanoseconds as 12.3 µs."""
    if ns is None:
        return "–"
    for limit, unit, scale in ((1e3, "ns", 1), (1e6, "µs", 1e3), (1e9, "ms", 1e6)):
        if abs(ns) < limit:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


def table(title: str | None, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table with some columns to the right."""
    made = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made
