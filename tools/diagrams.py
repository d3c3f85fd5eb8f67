"""Draws docs/pictures/KIND.svg, one picture for each kind of channel. `--check` compares only."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2937 } .small { font-size: 11px; fill: #6b7280 } .mono { font-family: monospace }
rect { fill: #f3f4f6; stroke: #9ca3af } .message { fill: #2563eb; stroke: none } .gone { fill: none; stroke: #9ca3af; stroke-dasharray: 3 3 }
path { stroke: #6b7280; fill: none; stroke-width: 1.5 } .head { fill: #6b7280; stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #e5e7eb } .small { fill: #9ca3af } rect { fill: #1f2937; stroke: #6b7280 } .message { fill: #60a5fa }
path { stroke: #9ca3af } .head { fill: #9ca3af } }
</style>"""
WIDTH, ROW, BOX = 680, 44, 150


@dataclass
class Picture:
    """Processes on the left, the channel in the middle, processes on the right. cells: m is a message, . is free room."""

    name: str
    writers: tuple[str, ...]
    readers: tuple[tuple[str, str], ...]
    cells: str
    below: str


PICTURES = (
    Picture(
        "log",
        ("writer", "writer"),
        (("reader", "has read all"), ("late reader", "starts in the past"), ("slow reader", "writers wait for it")),
        "mmmmmmm...",
        "one order for all; the past stays for a while",
    ),
    Picture(
        "ring",
        ("writer, never waits",),
        (("reader", "has read all"), ("slow reader", "skips, counts its loss")),
        "mmmmmmmmmm",
        "the newest messages overwrite the oldest",
    ),
    Picture(
        "sync",
        ("member A", "member B", "member C"),
        (("member A", "reads B and C"), ("member B", "reads A and C"), ("member C", "reads A and B")),
        "mmmmm.....",
        "a message stays until every member has read it",
    ),
    Picture(
        "pipe",
        ("writer", "writer"),
        (("worker 1", "messages 1, 4 …"), ("worker 2", "messages 2, 5 …"), ("worker 3", "messages 3, 6 …")),
        "mmmmmm....",
        "each message to one worker; again if it dies",
    ),
    Picture(
        "frames",
        ("camera",),
        (("reader", "leases a buffer"), ("reader", "leases the same one")),
        "mmm.",
        "buffers of one size; nothing is copied",
    ),
    Picture(
        "udp",
        ("machine A", "machine B"),
        (("reader", "on machine C"), ("reader", "shares the socket")),
        "mm.mmm....",
        "lost datagrams are sent again",
    ),
    Picture(
        "zmq",
        ("PUB, any language",),
        (("SUB", "has read all"), ("slow SUB", "ZeroMQ drops for it")),
        "mmmm",
        "ZeroMQ's sockets behind the same handles",
    ),
    Picture(
        "fake",
        ("your program",),
        (("your program", "recv waits"), ("your test", "delivers step by step")),
        "mmm.......",
        "within one process; the test is the clock",
    ),
)


def arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    middle = (x0 + x1) / 2
    return (
        f'<path d="M{x0:g} {y0:g} C{middle:g} {y0:g} {middle:g} {y1:g} {x1 - 6:g} {y1:g}"/>'
        f'<path class="head" d="M{x1:g} {y1:g} l-8 -4 v8 z"/>'
    )


def process(x: float, y: float, title: str, note: str) -> str:
    lines = [f'<rect x="{x:g}" y="{y - 17:g}" width="{BOX}" height="34" rx="6"/>']
    lines.append(
        f'<text x="{x + BOX / 2:g}" y="{y - 2 if note else y + 4:g}" text-anchor="middle">{escape(title)}</text>'
    )
    if note:
        lines.append(
            f'<text class="small" x="{x + BOX / 2:g}" y="{y + 12:g}" text-anchor="middle">{escape(note)}</text>'
        )
    return "".join(lines)


def draw(picture: Picture) -> str:
    """The whole file."""
    rows = max(len(picture.writers), len(picture.readers))
    height = rows * ROW + 36
    middle = rows * ROW / 2 + 8
    left, right = 225.0, 455.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{picture.name}: {escape(picture.below)}</title>",
        STYLE,
    ]
    for names, x in ((tuple((name, "") for name in picture.writers), 8.0), (picture.readers, WIDTH - BOX - 8.0)):
        for place, (title, note) in enumerate(names):
            y = middle + (place - (len(names) - 1) / 2) * ROW
            parts.append(process(x, y, title, note))
            parts.append(arrow(x + BOX, y, left - 3, middle) if x < left else arrow(right + 2, middle, x, y))
    cell = (right - left) / len(picture.cells)
    for place, what in enumerate(picture.cells):
        kind = "message" if what == "m" else "gone"
        parts.append(
            f'<rect class="{kind}" x="{left + place * cell + 2:g}" y="{middle - 13:g}" width="{cell - 4:g}" height="26" rx="3"/>'
        )
    centre = (left + right) / 2
    parts.append(f'<text class="mono" x="{centre:g}" y="{middle - 22:g}" text-anchor="middle">{picture.name}:</text>')
    parts.append(
        f'<text class="small" x="{centre:g}" y="{height - 6:g}" text-anchor="middle">{escape(picture.below)}</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        path = FOLDER / f"{picture.name}.svg"
        if "--check" in sys.argv and (not path.exists() or path.read_text() != draw(picture)):
            sys.exit(f"docs/pictures/{path.name} is old: run `python tools/diagrams.py`")
        path.write_text(draw(picture))


if __name__ == "__main__":
    main()
