"""Why an aim is missed: texts made of numbers that the same run measured. Knows results and no library."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from bench.report import Report

CALLS = "a bare call"


def cores() -> int:
    """Cores on which this process may run."""
    return len(os.sched_getaffinity(0))


def cpu_ns(call: Callable[[], Any], count: int) -> float:
    """CPU time of a call of no argument, with the loop around it."""
    begun = time.process_time_ns()
    for _ in range(count):
        call()
    return (time.process_time_ns() - begun) / count


def calls(report: Report) -> None:
    """The least that a call from Python costs: one of a C method that does nothing, and one that reads the clock."""
    count, rounds = (500, 2) if report.quick else (5_000, 60)
    found: dict[str, list[float]] = {"a method that does nothing": [], "the clock": []}
    for _ in range(rounds):
        for values, call in zip(found.values(), ((0).conjugate, time.time_ns), strict=True):
            values.append(cpu_ns(call, count))
    for who, values in found.items():
        report.add(CALLS, who, "CPU per call", values, "ns")


def of_calls(report: Report) -> str:
    """For an aim of one call."""
    bare, clock = (report.get(CALLS, who, "CPU per call") for who in ("a method that does nothing", "the clock"))
    if not bare or not clock:
        return ""
    return f"a call of a C method that does nothing takes {bare:.0f} ns in this run, and one that reads the clock {clock:.0f} ns"


def of_cores(report: Report, case: str, who: str, receivers: int, rated: str = "throughput") -> str:
    """For an aim of throughput: how much CPU a message takes on each side, and what all cores could do with that."""
    rate, send, receive = (report.get(case, who, metric) for metric in (rated, "CPU per send", "CPU per receive"))
    if not rate or not send or not receive:
        return ""
    slowest = max(send, receive, (send + receivers * receive) / cores())
    return (
        f"with its waits a message takes {send:.0f} ns of CPU to send and {receive:.0f} ns to receive, {receivers} receiver"
        f"{'s' if receivers > 1 else ''} on {cores()} cores: at most {1e3 / slowest:.2f} M/s, of which the run has {rate * slowest / 1e9:.0%}"
    )


def of_trips(report: Report, case: str, who: str) -> str:
    """For a round trip of spinning processes, which has two sends and two receives."""
    parts = [report.get("64 B, one process", f"penstock {name}", "CPU per message") for name in ("send", "receive")]
    trip = report.get(case, who, "p50")
    if not trip or not all(parts):
        return ""
    calls_us = 2 * sum(part for part in parts if part) / 1e3
    return f"two sends and two receives take {calls_us:.2f} µs of it in one process; the rest passes between the two processes"


def of_wakes(report: Report, case: str) -> str:
    """For a round trip of sleeping processes: what the kernel alone takes for the two wakes."""
    bare = report.get(case, "two bare wakes (eventfd)", "p50")
    return f"the kernel's two wakes alone (eventfd, no messages) take {bare:.1f} µs in this run" if bare else ""
