"""How fast is a ring from Python? Throughput without loss, CPU per message, round trips, and the cost of idle readers."""

from __future__ import annotations

import contextlib
import os
import statistics
import time

import penstock
from bench import reasons, rivals
from bench.ipc import COUNTS, in_one_process, latency, own_channels, throughput
from bench.report import Report
from bench.rivals import ring, ring_batch

NAMES = ("msgq", "zmq_pub", "iceoryx2", "zenoh_shm", "shm_by_hand")
IDLE = (0, 1, 16, 64)
# msgq's values on a busy two-core machine of this kind, for machines where it cannot be installed.
MSGQ = {"one": 383e3, "three": 147e3, "round trip": 5.3}


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load(NAMES)
    everyone = {"penstock": ring, "penstock batches": ring_batch, **found}
    if ring.crowded(3):
        report.note(
            f"three readers and a writer share {reasons.cores()} cores: the ring's readers yield their core for up to "
            f"{ring.PATIENCE * 1e3:.0f} ms before they sleep, and its writer yields while it waits for them"
        )
    with own_channels():
        reasons.calls(report)
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
    """The aims of the ring: msgq itself where it is installed, else its values measured elsewhere."""
    one, three, cpu = "64 B, 1 subscriber", "64 B, 3 subscribers", "CPU per message"
    here = "msgq" in {r.who for r in report.results}

    def times(case: str, key: str) -> float | None:
        mine = report.get(case, "penstock", "throughput")
        theirs = report.get(case, "msgq", "throughput") if here else MSGQ[key]
        return mine / theirs if mine and theirs else None

    note = "" if here else " (383 k/s, 147 k/s, 5.3 µs elsewhere)"
    for case, key, aim, readers in ((one, "one", 15, 1), (three, "three", 40, 3)):
        why = reasons.of_cores(report, case, "penstock", readers)
        report.at_least(case, f"throughput, times msgq{note}", aim, "×", times(case, key), why)
    trip = report.get("64 B, round trip", "penstock spinning", "p50")
    theirs = report.get("64 B, round trip", "msgq", "p50") if here else MSGQ["round trip"]
    why = reasons.of_trips(report, "64 B, round trip", "penstock spinning")
    ratio = trip / theirs if trip and theirs else None
    report.at_most("64 B", f"round trip p50, of msgq's{note}", 0.2, "×", ratio, why)
    for name, limit in (("send", 60), ("receive", 50)):
        value = report.get("64 B, one process", f"penstock {name}", cpu)
        report.at_most("64 B, one by one", f"CPU per {name}", limit, "ns", value, reasons.of_calls(report))
    batch = [report.get("64 B, one process", f"penstock {name}", cpu) for name in ("offer_many", "poll_arrow")]
    for name, value in zip(("send", "receive"), batch, strict=True):
        alone = report.get("64 B, one process", f"penstock {name}", cpu)
        why = (
            f"one by one, with a call and a look at the clock for each, a {name} takes {alone:.0f} ns in this run"
            if alone
            else ""
        )
        report.at_most("64 B, in batches", f"CPU per {name}", 20, "ns", value, why)
    costs = [report.get("64 B, idle subscriptions", f"penstock, {readers}", "CPU per send") for readers in IDLE[1:]]
    known = [cost for cost in costs if cost]
    spread = (max(known) - min(known)) / statistics.median(known) if known else None
    each = ", ".join(f"{cost:.0f}" for cost in known)
    why = f"a send takes {each} ns with {', '.join(map(str, IDLE[1:]))} idle subscriptions, medians of rounds in turn"
    report.at_most("64 B", "spread of a send's cost from 1 to 64 idle subscriptions", 0.1, "", spread, why)
