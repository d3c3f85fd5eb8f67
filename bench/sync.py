"""How fast is a sync queue from Python? Throughput to one and to three members, round trips, against pysyncq and fan-out by hand."""

from __future__ import annotations

from types import ModuleType

from bench import rivals
from bench.bounded import Failed
from bench.ipc import latency, own_channels, throughput
from bench.processes import mesh
from bench.report import Report
from bench.rivals import sync, sync_batch

NAMES = ("pysyncq", "mp_queue", "pyzmq")
# pysyncq's values on a busy two-core machine of this kind.
PYSYNCQ = {"one": 61e3, "three": 28e3, "large": 3.2e3}


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load(NAMES)
    everyone = {"penstock": sync, "penstock batches": sync_batch, **found}
    with own_channels():
        for size in (64,) if report.quick else (64, 1024, 1 << 20):
            for readers in (1, 3):
                throughput(report, everyone, size, readers)
        latency(report, {"penstock": sync, **found}, 64, ours=sync)
        for members in (2, 4, 8):
            conversation(report, {"penstock": sync, **found}, members)
    aims(report)


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
            runs = [mesh(report.limit, rival, members, 64, count) for _ in range(1 if report.quick else 3)]
        except Failed as error:
            report.failed(who, case, error)
            continue
        report.add(case, who, "received by all", [rate for rate, _ in runs], "messages/s")
        report.add(case, who, "CPU per message received", [cpu for _, cpu in runs], "ns")


def aims(report: Report) -> None:
    """The aims of the queue: pysyncq here if it is installed, else its values measured elsewhere."""

    def times(who: str, case: str, key: str) -> float | None:
        mine, theirs = report.get(case, who, "throughput"), report.get(case, "pysyncq", "throughput") or PYSYNCQ[key]
        return mine / theirs if mine else None

    alone = report.get("64 B, 1 subscriber", "penstock", "throughput")
    report.at_least("64 B, 1 subscriber", "one by one", 5e6, "messages/s", alone)
    for case, key in (("64 B, 1 subscriber", "one"), ("64 B, 3 subscribers", "three")):
        report.at_least(case, "one by one, times pysyncq", 40, "×", times("penstock", case, key))
        report.at_least(case, "in batches, times pysyncq", 200, "×", times("penstock batches", case, key))
    report.at_least("1 MiB, 1 subscriber", "times pysyncq", 4, "×", times("penstock", "1 MiB, 1 subscriber", "large"))
    for way, aim in (("spinning", 2.0), ("sleeping", 12.0)):
        report.at_most(
            "64 B, round trip", f"{way}, p50", aim, "µs", report.get("64 B, round trip", f"penstock {way}", "p50")
        )
