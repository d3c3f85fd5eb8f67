"""What does `import penstock` cost a program? CPU time and memory of fresh processes, beside pyzmq and Python alone."""

from __future__ import annotations

import importlib.util
import json
import sys

from bench.report import Report
from evidence.bounded import Failed, program

CASE, CPU, MEMORY, GROWN = "a fresh process", "CPU of the import", "memory of the process", "of it by the import"
ALONE = "Python alone"
FIRST = "penstock, and a first message"
WAYS = {  # name → program
    ALONE: "pass",
    "penstock": "import penstock",
    FIRST: """import penstock
with penstock.publish("log:first") as pub, penstock.subscribe("log:first") as sub:
    pub.send(b"x")
    sub.recv(timeout=60)""",
    "pyzmq": "import zmq",
    "multiprocessing": "import multiprocessing.connection",
}
PROGRAM = """
import time
def now():
    with open("/proc/self/smaps_rollup") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("Rss:"))
    return time.process_time(), kib
now()
before = now()
{what}
after = now()
import json
print(json.dumps([(after[0] - before[0]) * 1e3, after[1] / 1024, (after[1] - before[1]) / 1024]))
"""


def run(report: Report) -> None:
    """A process for each way, in turn, several times, medians. The first round reads what the others find in memory."""
    found: dict[str, list[list[float]]] = {}
    for number in range(report.sized(21, quick=1, short=11) + 1):
        for who, what in WAYS.items():
            if who == "pyzmq" and importlib.util.find_spec("zmq") is None:
                report.missing[who] = "not installed: zmq"
                continue
            if not report.tries(who, CASE):
                continue
            try:
                said = program(report.limit, "its import", [sys.executable, "-c", PROGRAM.format(what=what)])
            except Failed as error:
                report.failed(who, CASE, error)
                continue
            if number:
                found.setdefault(who, []).append(json.loads(said))
    for who, rounds in found.items():
        for at, (metric, unit) in enumerate(((CPU, "ms"), (MEMORY, "MB"), (GROWN, "MB"))):
            report.add(CASE, who, metric, [one[at] for one in rounds], unit)
    aims(report)


def aims(report: Report) -> None:
    """A program that imports the library starts about as soon as one that imports a socket library."""
    report.at_most(CASE, CPU, 80, "ms", report.get(CASE, "penstock", CPU))
    report.at_most(CASE, MEMORY, 25, "MB", report.get(CASE, "penstock", MEMORY))
