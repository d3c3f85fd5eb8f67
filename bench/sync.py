"""How fast is a sync queue from Python? Throughput to one and to three members, round trips, against fan-out by hand."""

from __future__ import annotations

import os
from types import ModuleType

import penstock
from bench import rivals
from bench.ipc import cpu_ns, latency, own_channels, throughput
from bench.processes import mesh
from bench.report import Report
from bench.rivals import sync, sync_batch
from evidence.bounded import Failed

NAMES = ("mp_queue", "pyzmq")


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load(NAMES)
    everyone = {"penstock": sync, "penstock batches": sync_batch, **found}
    with own_channels():
        in_one_process(report)
        for size in (64,) if report.quick else (64, 1024, 1 << 20):
            for readers in (1, 3):
                throughput(report, everyone, size, readers)
        latency(report, {"penstock": sync, **found}, 64, ours=sync)
        for members in (2, 4, 8):
            conversation(report, {"penstock": sync, **found}, members)
    aims(report)


def in_one_process(report: Report) -> None:
    """CPU time of a member's calls where nobody disturbs: one thread sends a burst, then receives it."""
    count, rounds = (300, 2) if report.quick else (3_000, 40)
    data, found = os.urandom(64), {"send": [], "receive": []}
    with penstock.join("sync:one", name="a", capacity=1 << 20) as one, penstock.join("sync:one", name="b") as other:
        for _ in range(rounds):
            found["send"].append(cpu_ns(lambda: one.send(data), count))
            found["receive"].append(cpu_ns(other.recv, count))
    for name, values in found.items():
        report.add("64 B, one process", f"penstock {name}", "CPU per message", values, "ns")


def conversation(report: Report, everyone: dict[str, ModuleType], members: int) -> None:
    """Everybody writes, everybody reads everybody else."""
    case = f"64 B, {members} that all write and read"
    for who, rival in everyone.items():
        if not hasattr(rival, "member"):
            continue
        count = (200 if report.quick else 4_000 if who != "penstock" else 40_000) // members
        if not report.tries(who, case):
            continue
        try:
            runs = [mesh(report.limit, rival, members, 64, count) for _ in range(report.sized(3, quick=1))]
        except Failed as error:
            report.failed(who, case, error)
            continue
        report.add(case, who, "received by all", [rate for rate, _ in runs], "messages/s")
        report.add(case, who, "CPU per message received", [cpu for _, cpu in runs], "ns")


def aims(report: Report) -> None:
    """The aims of the queue."""
    alone = report.get("64 B, 1 subscriber", "penstock", "throughput")
    report.at_least("64 B, 1 subscriber", "one by one", 5e6, "messages/s", alone)
    trip = "64 B, round trip"
    for way, limit in (("spinning", 2.0), ("sleeping", 12.0)):
        report.at_most(trip, f"{way}, p50", limit, "µs", report.get(trip, f"penstock {way}", "p50"))
