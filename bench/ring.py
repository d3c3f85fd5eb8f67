"""How fast is a ring from Python? Throughput without loss, CPU per message, round trips, and the cost of idle readers."""

from __future__ import annotations

import contextlib
import os
import statistics
import time

import penstock
from bench import rivals
from bench.ipc import COUNTS, bare_calls, call_aims, in_one_process, latency, own_channels, throughput
from bench.report import Report, cores
from bench.rivals import ring, ring_batch

NAMES = ("zmq_pub", "iceoryx2", "zenoh_shm", "shm_by_hand")
IDLE = (0, 1, 16, 64)


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load(NAMES)
    everyone = {"penstock": ring, "penstock batches": ring_batch, **found}
    if ring.crowded(3):
        report.note(
            f"three readers and a writer share {cores()} cores: the ring's readers yield their core for up to "
            f"{ring.PATIENCE * 1e3:.0f} ms before they sleep, and its writer yields while it waits for them"
        )
    with own_channels():
        bare_calls(report)
        in_one_process(report, "ring:one", capacity=1 << 20)
        idle_readers(report)
        for size in (64,) if report.quick else tuple(COUNTS):
            for readers in (1, 3):
                throughput(report, everyone, size, readers)
        latency(report, {"penstock": ring, **found}, 64, ours=ring)
    aims(report)


def idle_readers(report: Report) -> None:
    """CPU time of a send while so many subscriptions exist that read nothing. The order is turned in each round."""
    count, rounds = (200, 2) if report.quick else (20_000, 15)
    data = os.urandom(64)
    found: dict[int, list[float]] = {readers: [] for readers in IDLE}
    for _ in range(rounds):
        for readers in IDLE:
            with contextlib.ExitStack() as stack:
                pub = stack.enter_context(penstock.publish("ring:idle", capacity=1 << 20))
                for _ in range(readers):
                    stack.enter_context(penstock.subscribe("ring:idle"))
                for _ in range(2_000):
                    pub.send(data)
                begun = time.process_time_ns()
                for _ in range(count):
                    pub.send(data)
                found[readers].append((time.process_time_ns() - begun) / count)
            penstock.remove("ring:idle")
    for readers, values in found.items():
        report.add("64 B, idle subscriptions", f"penstock, {readers}", "CPU per send", values, "ns")


def aims(report: Report) -> None:
    """The aims of the ring."""
    alone, cpu = "64 B, one process", "CPU per message"
    call_aims(report)
    for name, way in (("send", "offer_many"), ("receive", "poll_arrow")):
        report.at_most("64 B, in batches", f"CPU per {name}", 20, "ns", report.get(alone, f"penstock {way}", cpu))
    costs = [report.get("64 B, idle subscriptions", f"penstock, {readers}", "CPU per send") for readers in IDLE[1:]]
    known = [cost for cost in costs if cost]
    spread = (max(known) - min(known)) / statistics.median(known) if known else None
    report.at_most("64 B", "spread of a send's cost from 1 to 64 idle subscriptions", 0.1, "", spread)
