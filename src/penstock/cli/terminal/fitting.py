"""Text that fits a width: names cut in the middle, so that no two look the same, and tables without some of their columns. Knows no terminal."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence

CONTROL = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
GAP = 2
READABLE = 24  # letters of a name for which other columns are left out


def printable(text: str) -> str:
    """A text without control characters: a newline as \\n, an escape as \\x1b."""
    if text.isprintable():
        return text
    return re.sub(CONTROL, lambda found: found[0].encode("unicode_escape").decode(), text)


def cut(text: str, width: int) -> str:
    """The beginning of a text that is longer, with a mark."""
    shown = printable(text)
    return shown if len(shown) <= width else shown[: max(0, width - 1)] + "…"


def wrap(line: str, width: int) -> list[str]:
    """A line as lines of at most that width, broken between words; the others begin below its first word, and a bit to the right."""
    if len(line) <= width:
        return [line]
    below = " " * (len(line) - len(line.lstrip()) + GAP)
    return textwrap.wrap(
        line, max(width, 2 * len(below)), subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def shortened(names: Sequence[str], width: int) -> dict[str, str]:
    """Each name as text of at most that width, from 8 on; two names never give the same text.

    A name that is too long loses its middle. If two would look the same, each is shown from where it differs, or numbered.
    """
    found: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(_elide_middle(name, width), []).append(name)
    taken = {shown for shown, group in alike.items() if len(group) == 1}
    for shown, group in alike.items():
        if len(group) == 1:
            found[group[0]] = shown
            continue
        low, high = min(group), max(group)
        same = next((at for at, one in enumerate(low) if one != high[at]), len(low) - 1)
        for name in sorted(group):
            numbered = (f"{cut(shown, width - 4)}~{number}"[:width] for number in itertools.count(1))
            text = next(
                text for text in (cut(f"…{name[same:]}", width), *itertools.islice(numbered, 999)) if text not in taken
            )
            taken.add(text)
            found[name] = text
    return found


def _elide_middle(text: str, width: int) -> str:
    shown = printable(text)
    head = min(max(shown.find(":") + 1, (width - 1) * 2 // 5), width - 2)
    return shown if len(shown) <= width else f"{shown[:head]}…{shown[len(shown) - (width - 1 - head) :]}"


def table_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The width of a table."""
    widths = (max([len(column), *(len(row[number]) for row in rows)]) for number, column in enumerate(columns))
    return sum(widths) + GAP * (len(columns) - 1)


def fit_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, leaves: Sequence[str], name: str
) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a table that is at most so wide, if that can be had.

    leaves: columns that may be left out, the first one first. name: the column whose texts lose their middle, if the others leave less
    room for them than they need; none are left out for more than 24 letters of it.
    """
    widths = {at: max([len(column), *(len(row[at]) for row in rows)]) for at, column in enumerate(columns)}
    named = columns.index(name) if name else -1
    longest = widths.get(named, 0)
    if name:
        widths[named] = min(longest, READABLE)
    for column in leaves:
        if sum(widths.values()) + GAP * (len(widths) - 1) <= width:
            break
        if column in columns:
            widths.pop(columns.index(column), None)
    made = [[row[number] for number in widths] for row in rows]
    if name:
        room = width - sum(widths[number] + GAP for number in widths if number != named)
        at = list(widths).index(named)
        names = shortened([row[at] for row in made], min(longest, max(8, room)))
        made = [[*row[:at], names[row[at]], *row[at + 1 :]] for row in made]
    return [columns[number] for number in widths], made
