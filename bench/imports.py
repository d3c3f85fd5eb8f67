"""What do `import penstock` and the command's start cost? CPU time and memory of fresh processes, beside pyzmq and Python alone."""

from __future__ import annotations

import importlib.util
import json
import os
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
NOW = """
import time
def now():
    with open("/proc/self/smaps_rollup") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("Rss:"))
    return time.process_time(), kib
"""  # CPU time of a process in seconds, and its memory in KiB
PROGRAM = (
    NOW
    + """now()
before = now()
{what}
after = now()
import json
print(json.dumps([(after[0] - before[0]) * 1e3, after[1] / 1024, (after[1] - before[1]) / 1024]))
"""
)

COMMAND, WHOLE, PEAK = "a command, from start to end", "CPU of the process", "most memory"
PARSER, LS, SUB = "typer and penstock", "penstock ls", "penstock sub"
STARTS = {  # name → arguments of Python
    ALONE: ["-c", "pass"],
    "typer": ["-c", "import typer"],
    PARSER: ["-c", "import typer, penstock"],
    LS: ["-m", "penstock", "ls"],
    SUB: ["-m", "penstock", "sub", "log:start", "--start", "earliest", "--limit", "1"],  # to its first line
}
MAKE = "import penstock\npenstock.publish('log:start').send(b'x')"
LAUNCHER = """
import os, sys
def launch(*arguments):
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    _, status, used = os.wait4(os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=quiet), 0)
    assert not status, arguments
    return [(used.ru_utime + used.ru_stime) * 1e3, used.ru_maxrss / 1024]
launch("-c", sys.argv[1])
print(launch(*sys.argv[2:]))
"""


def run(report: Report) -> None:
    """A process for each way, in turn, several times, medians. The first round reads and compiles what the others find."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile each module anew
    rounds = report.sized(21, quick=1, short=11) + 1
    _imports(report, rounds)
    _commands(report, rounds)
    aims(report)


def _imports(report: Report, rounds: int) -> None:
    found: dict[str, list[list[float]]] = {}
    for number in range(rounds):
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
    for who, measured in found.items():
        for at, (metric, unit) in enumerate(((CPU, "ms"), (MEMORY, "MB"), (GROWN, "MB"))):
            report.add(CASE, who, metric, [one[at] for one in measured], unit)


def _commands(report: Report, rounds: int) -> None:
    """Each with a channel that has a message. A small process starts it, since a process counts its parent's memory until it is loaded."""
    found: dict[str, list[list[float]]] = {}
    for number in range(rounds):
        for who, arguments in STARTS.items():
            if not report.tries(who, COMMAND):
                continue
            try:
                said = program(report.limit, "its start", [sys.executable, "-c", LAUNCHER, MAKE, *arguments])
            except Failed as error:
                report.failed(who, COMMAND, error)
                continue
            if number:
                found.setdefault(who, []).append(json.loads(said))
    for who, measured in found.items():
        report.add(COMMAND, who, WHOLE, [cpu for cpu, _ in measured], "ms")
        report.add(COMMAND, who, PEAK, [memory for _, memory in measured], "MB")


def aims(report: Report) -> None:
    """A program that imports the library starts about as soon as one that imports a socket library. A command costs what its parser does."""
    report.at_most(CASE, CPU, 80, "ms", report.get(CASE, "penstock", CPU))
    report.at_most(CASE, MEMORY, 25, "MB", report.get(CASE, "penstock", MEMORY))
    for who in (LS, SUB):
        report.at_most(COMMAND, f"{who}: CPU, times {PARSER}", 1.3, "×", report.ratio(COMMAND, WHOLE, who, PARSER))
        report.at_most(COMMAND, f"{who}: CPU, times {ALONE}", 4, "×", report.ratio(COMMAND, WHOLE, who, ALONE))
        report.at_most(COMMAND, f"{who}: {PEAK}", 30, "MB", report.get(COMMAND, who, PEAK))
