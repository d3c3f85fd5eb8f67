"""What do 1 to 16 writers pay to claim room in a log? The log itself, its swap with and without a look before it, and get-and-add.

Measured here, with as many cores as the machine has, and counted in a model with a core for each writer.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from bench.report import Report
from evidence.bounded import Failed, program
from evidence.build import build

WAYS = {
    "log": "penstock, a whole send",
    "guess": "swap, tail guessed (penstock's claim)",
    "swap": "swap after a look",
    "add": "get-and-add",
}
MEASURED = {
    "wall_ns": ("time", "ns"),
    "cpu_ns": ("CPU", "ns"),
    "failed": ("swaps that failed", "per claim"),
    "operations": ("operations on the tail's line", "per claim"),
    "beyond": ("claims beyond the limit", "per million"),
}
COUNTED = {
    "transfers": ("moves of the tail's line", "per claim"),
    "failed": ("swaps that failed", "per claim"),
    "wall_ns": ("time", "ns"),
}


def run(report: Report) -> None:
    """The program several times, medians."""
    try:
        path = build("plain", ("claim_bench",)) / "tests" / "claim_bench"
        count = "200000" if report.quick else "6000000"
        runs = [
            program(report.limit, f"{count} claims", [path, "--count", count])
            for _ in range(report.sized(5, quick=1, short=3))
        ]
    except (OSError, SystemExit, Failed) as error:
        report.failed("penstock", "claims", error)
        return
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for text in runs:
        for row in map(json.loads, text.splitlines()):
            found.setdefault((row["case"], row["writers"], row["way"]), []).append(row)
    for (case, writers, way), rows in sorted(found.items(), key=lambda one: (one[0][0] == "model", one[0][1])):
        model = case == "model"
        title = f"{writers} writer{'s' if writers > 1 else ''}{', model of a core each' if model else ''}"
        for key, (metric, unit) in (COUNTED if model else MEASURED).items():
            if way == "log" and key not in ("wall_ns", "cpu_ns"):
                continue
            scale = 1e6 if key == "beyond" else 1
            report.add(title, WAYS[way], metric, statistics.median(row[key] for row in rows) * scale, unit)
    aims(report)


def aims(report: Report) -> None:
    """The swap stays while it costs about what get-and-add costs."""
    for writers in (2, 4, 8, 16):
        case = f"{writers} writers"
        ours, adding = (report.get(case, WAYS[way], "CPU") for way in ("guess", "add"))
        times = ours / adding if ours and adding else None
        report.at_most(case, "CPU of a claim, of get-and-add's", 1.25, "×", times)
