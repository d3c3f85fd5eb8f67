"""What does it cost to ask how many readers live? A log's count of its readers, beside a bare loop that asks the kernel for the same locks."""

from __future__ import annotations

import json

from bench.report import Report
from evidence.bounded import Failed, program
from evidence.build import build

BARE, TIME, LEAST = "bare loop of fcntl", "time of a count, median", "time of a count, least"


def run(report: Report) -> None:
    """One program for all numbers of members."""
    try:
        path = build("plain", ("living_bench",)) / "tests" / "living_bench"
        passes = str(report.sized(100_000, quick=100, short=20_000))
        text = program(report.limit, f"{passes} counts", [path, passes])
    except (OSError, SystemExit, Failed) as error:
        report.failed("penstock", "counts", error)
        return
    for found in map(json.loads, text.splitlines()):
        case = f"{found['members']} members"
        for who, key in (("penstock", "penstock"), (BARE, "bare")):
            report.add(case, who, TIME, found[key] / 1e3, "µs")
            report.add(case, who, LEAST, found[f"{key} least"] / 1e3, "µs")
    aims(report)


def aims(report: Report) -> None:
    """A program may ask before every batch of work. The kernel's answers are nearly all of the cost."""
    case = "64 members"
    ours, bare = (report.get(case, who, TIME) for who in ("penstock", BARE))
    report.at_most(case, TIME, 20, "µs", ours)
    report.at_most(case, "of the bare loop's", 1.25, "×", ours / bare if ours and bare else None)
