"""What does a time stamp cost, and how far may it be wrong? The library's clock against `clock_gettime`, in threads that move between cores."""

from __future__ import annotations

import json

from bench.report import Report
from evidence.bounded import Failed, program
from evidence.build import build

CASE, READINGS = "CPU of a reading", "against the system's clock"
COSTS = {
    "wall clock": "penstock",
    "clock_gettime": "clock_gettime",
    "coarse": "CLOCK_REALTIME_COARSE",
    "rdtsc": "rdtsc",
}


def run(report: Report) -> None:
    """One run: costs are medians, errors the worst of all readings."""
    seconds = report.sized(30, quick=1, short=15)
    try:
        path = build("plain", ("clock_bench",)) / "tests" / "clock_bench"
        found = json.loads(program(report.limit + seconds, f"{seconds} s", [path, "--seconds", str(seconds)]))
    except (OSError, SystemExit, Failed) as error:
        report.failed("penstock", CASE, error)
        return
    for key, who in COSTS.items():
        if key in found:
            report.add(CASE, who, "CPU", found[key], "ns")
    report.add(READINGS, "penstock", "readings", found["readings"], "readings")
    report.add(READINGS, "penstock", "worst error", abs(found["worst error"]), "ns")
    report.add(READINGS, "penstock", "wrong by more than 1 µs", found["above 1 us"], "readings")
    if "drift without another look" in found:
        drift = abs(found["drift without another look"]) / (found["seconds"] + 1)
        report.add(READINGS, "a counter that is compared once", "drift", drift, "ns a second")
    report.at_most(READINGS, "worst error", 1000, "ns", abs(found["worst error"]))
    gained = found["wall clock"] / found["clock_gettime"]
    report.at_most(CASE, "of clock_gettime's", 0.7, "×", gained)
