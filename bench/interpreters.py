"""Does the library cost the same under each CPython? One program, run by every interpreter in turn; `--quick` runs this one alone.

The environments are those of `make test-pythons`, in which the library is as it is here. CPython 3.12 and later share one compiled
module, of the stable ABI; 3.11 has its own.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
from pathlib import Path

from bench.imports import NOW
from bench.ipc import own_channels
from bench.report import Report
from evidence.bounded import Failed, program

ROOT = Path(__file__).parents[1]
COMPILING = 1800  # seconds in which the environments are made
SLOWER = 1.3  # times the time under CPython 3.11
OLDEST = "CPython 3.11"
PROGRAM = (
    NOW
    + """
import importlib.util, json, sys
now()
before = now()
import penstock
after = now()
count, rounds = map(int, sys.argv[1:])
arrow = importlib.util.find_spec("pyarrow") is not None
found = {}

def add(case, metric, begun):
    found.setdefault((case, metric), []).append((time.process_time_ns() - begun) / count)

def bare(metric, call):
    begun = time.process_time_ns()
    for _ in range(count):
        call()
    add("a bare call", metric, begun)

def bursts(case, pub, sub):
    data = b"x" * 64
    batch = [data] * count
    pub.send(data)
    assert not arrow or sub.poll_arrow().num_rows == 1
    for _ in range(rounds):
        begun = time.process_time_ns()
        for _ in range(count):
            pub.send(data)
        add(case, "CPU per send", begun)
        begun = time.process_time_ns()
        for _ in range(count):
            sub.recv()
        add(case, "CPU per receive", begun)
        if arrow:
            begun = time.process_time_ns()
            assert pub.offer_many(batch) == count
            add(case, "CPU per message of offer_many", begun)
            begun = time.process_time_ns()
            assert sub.poll_arrow(count).num_rows == count
            add(case, "CPU per message of poll_arrow", begun)

for _ in range(rounds):
    bare("of a method that does nothing", (0).conjugate)
    bare("of one that reads the clock", time.time_ns)
for kind in ("log", "ring", "pipe"):
    with penstock.publish(kind + ":one") as pub, penstock.subscribe(kind + ":one") as sub:
        bursts(kind + ", 64 B", pub, sub)
rows = [[*name, sorted(values)[len(values) // 2], "ns"] for name, values in found.items()]
rows.append(["import penstock", "CPU of the import", (after[0] - before[0]) * 1e3, "ms"])
rows.append(["import penstock", "memory of the process", after[1] / 1024, "MB"])
print(json.dumps(rows))
"""
)


def run(report: Report) -> None:
    """Every interpreter in turn, several times, medians. The first round reads what the others find in memory."""
    pythons = {f"CPython {'.'.join(platform.python_version_tuple()[:2])}": sys.executable}
    if not report.quick:
        try:
            listed = program(COMPILING, "its environments", [sys.executable, ROOT / "tools/pythons.py", "--list"])
        except Failed as error:
            report.missing["other interpreters"] = str(error)
        else:
            pythons = {f"CPython {line.split()[0]}": line.split()[1] for line in listed.splitlines()}
    sizes = [str(report.sized(500, quick=100)), str(report.sized(40, quick=2))]
    found: dict[tuple[str, str, str, str], list[float]] = {}
    with own_channels():
        for number in range(report.sized(25, quick=0, short=5) + 1):
            for who, python in pythons.items():
                if not report.tries(who, "the program"):
                    continue
                try:
                    said = program(report.limit, "its program", [python, "-I", "-c", PROGRAM, *sizes])
                except Failed as error:
                    report.failed(who, "the program", error)
                    continue
                for case, metric, value, unit in json.loads(said):
                    if number or report.quick:
                        found.setdefault((case, who, metric, unit), []).append(value)
    for (case, who, metric, unit), values in found.items():
        report.add(case, who, metric, values, unit)
    aims(report, found)


def aims(report: Report, found: dict[tuple[str, str, str, str], list[float]]) -> None:
    """No interpreter makes a call of the library much dearer than the oldest one does in the same round."""
    for (case, who, metric, unit), values in found.items():
        oldest = found.get((case, OLDEST, metric, unit))
        if oldest and who != OLDEST and case != "a bare call":
            ratio = statistics.median(one / other for one, other in zip(values, oldest, strict=False))
            report.at_most(case, f"{metric}, {who}, times {OLDEST}", SLOWER, "×", ratio)
