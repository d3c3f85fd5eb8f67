"""A suite's report, and the table of all suites."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

WORKERS = max(2, len(os.sched_getaffinity(0)))  # for suites that run at the same time
WHOLE = (0, 1)  # the part of a suite that is all of it

Thing = TypeVar("Thing")


def sliced(things: Sequence[Thing], part: tuple[int, int]) -> list[Thing]:
    """part: (k, n) takes every n-th of the things, from the k-th on, counted round."""
    k, n = part
    return list(things[k % n :: n])


@dataclass
class Row:
    """One line of the table. `count` says how many of what; `failure` reproduces the first failure."""

    suite: str
    what: str
    count: int
    failures: int = 0
    seconds: float = 0.0
    failure: str = ""
    skipped: str = ""
    details: dict[str, object] = field(default_factory=dict)


def show(rows: list[Row]) -> None:
    """Prints the table, and what failed once more below it: the end is what is read first."""
    print(f"\n{'suite':10} {'what':52} {'count':>15} {'failures':>8} {'seconds':>8}")
    for row in rows:
        if row.skipped:
            print(f"{row.suite:10} {row.what:52} {'skipped':>15} {'':8} {'':8}  {row.skipped}")
            continue
        print(f"{row.suite:10} {row.what:52} {row.count:15,} {row.failures:8,} {row.seconds:8.1f}")
    total = sum(row.failures for row in rows)
    print(f"{'':10} {'all suites':52} {'':15} {total:8,} {sum(row.seconds for row in rows):8.1f}")
    for row in (row for row in rows if row.failures):
        print(f"\n{row.suite}: {row.failures:,} of {row.count:,} {row.what}\nreproduce: {row.failure}")
        for which, wrong in list(row.details.items())[:5]:
            print(f"  {which}: {str(wrong)[:300]}")


def save(rows: list[Row], path: Path) -> None:
    """Writes the rows as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
