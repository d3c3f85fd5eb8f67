"""How fast is a log between processes, from Python? Throughput without loss, CPU time per message, round trips."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import penstock
from bench import rivals
from bench.processes import flow, round_trips
from bench.report import Report
from bench.rivals import ours, ours_batch, ours_inplace
from evidence.build import build

COUNTS = {64: 600_000, 1024: 200_000, 65536: 12_000, 1 << 20: 1_000}
SLOW = {"mp_queue": 20, "mp_pipe": 8, "iceoryx2": 20, "faster_fifo": 10, "pyzmq": 4}
NAMES = {64: "64 B", 1024: "1 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}


@contextlib.contextmanager
def own_channels():
    """Channels in a folder of their own."""
    folder = tempfile.mkdtemp(prefix="penstock-bench-", dir="/dev/shm")
    os.environ["PENSTOCK_DIR"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder)
        del os.environ["PENSTOCK_DIR"]


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load()
    everyone = {"penstock": ours, "penstock batches": ours_batch, "penstock in place": ours_inplace, **found}
    sizes = (64,) if report.quick else tuple(COUNTS)
    with own_channels():
        in_one_process(report)
        native(report)
        for size in sizes:
            for readers in (1, 3):
                throughput(report, everyone, size, readers)
        for size in sizes[:1]:
            latency(report, {"penstock": ours, **found}, size)
        if not report.quick:
            copies(report)
    aims(report)


def in_one_process(report: Report) -> None:
    """CPU time of a call where nobody disturbs: one thread sends a burst, then receives it."""
    count, rounds = (2_000, 2) if report.quick else (5_000, 60)
    data, found = os.urandom(64), {"send": [], "receive": [], "offer_many": [], "poll_arrow": []}
    with penstock.publish("log:one", term_length=1 << 20) as pub, penstock.subscribe("log:one") as sub:
        batch = [data] * count
        sub.poll_arrow()
        for _ in range(rounds):
            times = [time.process_time_ns()]
            for _ in range(count):
                pub.send(data)
            times.append(time.process_time_ns())
            for _ in range(count):
                sub.recv()
            times.append(time.process_time_ns())
            assert pub.offer_many(batch) == count
            times.append(time.process_time_ns())
            assert sub.poll_arrow(count).num_rows == count
            times.append(time.process_time_ns())
            for name, begun, ended in zip(found, times, times[1:], strict=False):
                found[name].append((ended - begun) / count)
    for name, values in found.items():
        report.add("64 B, one process", f"penstock {name}", "CPU per message", values, "ns")


def native(report: Report) -> None:
    """The C++ core alone, if cmake and a compiler are here."""
    try:
        program = build("plain", ("log_bench",)) / "tests" / "log_bench"
    except (OSError, SystemExit) as error:
        report.missing["C++ core"] = str(error)
        return
    count = "500000" if report.quick else "10000000"
    runs = [
        json.loads(subprocess.run([program, "--count", count], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    for kind in ("shared", "exclusive"):
        report.add(
            "64 B, C++ core", f"penstock {kind}", "CPU per message, both sides", [run[kind] for run in runs], "ns"
        )


def throughput(report: Report, everyone: dict, size: int, readers: int) -> None:
    """Messages per second at the slowest receiver; the order of who runs is turned each round."""
    case = f"{NAMES[size]}, {readers} subscriber{'s' if readers > 1 else ''}"
    rounds = 1 if report.quick else 3
    found: dict[str, list] = {}
    for _ in range(rounds):
        for who, rival in everyone.items():
            if who == "penstock in place" and size < 65536:
                continue
            count = 2_000 if report.quick else max(COUNTS[size] // SLOW.get(who, 1), 200)
            if who == "penstock batches" and not report.quick and size == 64:
                count *= 8
            if f"{who}, {case}" in report.missing:
                continue
            try:
                found.setdefault(who, []).append(flow(rival, size, count, readers))
            except (RuntimeError, OSError) as error:
                report.missing[f"{who}, {case}"] = str(error)
    for who, flows in found.items():
        if not flows:
            continue
        report.add(case, who, "throughput", [f.rate for f in flows], "messages/s")
        report.add(case, who, "CPU per send", [f.send_ns for f in flows], "ns")
        report.add(case, who, "CPU per receive", [f.receive_ns for f in flows], "ns")


def latency(report: Report, everyone: dict, size: int) -> None:
    """Round trips, one at a time."""
    count = 300 if report.quick else 20_000
    for who, rival in everyone.items():
        ways = {"spinning": {"spin": math.inf}, "sleeping": {"spin": 0.0}} if rival is ours else {"default": {}}
        for way, options in ways.items():
            times = round_trips(rival, size, count // (10 if who == "mp_queue" else 1), **options)
            name = f"{who} {way}" if rival is ours else who
            report.add(f"{NAMES[size]}, round trip", name, "p50", statistics.median(times) / 1e3, "µs")
            report.add(f"{NAMES[size]}, round trip", name, "p99", times[int(len(times) * 0.99)] / 1e3, "µs")


def copies(report: Report) -> None:
    """1 MiB in one process: a send and a receive against the two memory copies that they are."""
    import numpy as np

    size, rounds = 1 << 20, 200
    data = np.random.default_rng(0).integers(0, 255, size, dtype="u1").tobytes()
    shared = np.zeros(48 << 20, dtype="u1")
    source = np.frombuffer(data, dtype="u1")
    with penstock.publish("log:copies", term_length=1 << 24) as pub, penstock.subscribe("log:copies") as sub:
        ours_s, copies_s = [], []
        for i in range(rounds):
            begun = time.perf_counter()
            pub.send(data)
            sub.recv()
            middle = time.perf_counter()
            at = i % 47 << 20
            shared[at : at + size] = source
            shared[at : at + size].tobytes()
            ours_s.append(middle - begun)
            copies_s.append(time.perf_counter() - middle)
    report.add("1 MiB, one process", "penstock send + recv", "rate", 1 / statistics.median(ours_s[20:]), "messages/s")
    report.add("1 MiB, one process", "memcpy in + out", "rate", 1 / statistics.median(copies_s[20:]), "messages/s")


def aims(report: Report) -> None:
    """What the log is meant to reach on a calm machine of this kind."""
    one, three = "64 B, 1 subscriber", "64 B, 3 subscribers"
    cpu = "CPU per message"
    report.at_most(
        "64 B, one by one",
        "CPU per send, time stamp included",
        80,
        "ns",
        report.get("64 B, one process", "penstock send", cpu),
    )
    report.at_most(
        "64 B, one by one", "CPU per receive", 60, "ns", report.get("64 B, one process", "penstock receive", cpu)
    )
    report.at_least(one, "throughput, times pyaeron", 2.5, "×", report.ratio(one, "throughput", "penstock", "pyaeron"))
    report.at_least(one, "throughput, times pyzmq", 12, "×", report.ratio(one, "throughput", "penstock", "pyzmq"))
    report.at_least(three, "throughput, times pyzmq", 12, "×", report.ratio(three, "throughput", "penstock", "pyzmq"))
    report.at_least(one, "throughput in batches", 30e6, "messages/s", report.get(one, "penstock batches", "throughput"))
    report.at_most(
        "64 B", "round trip p50, spinning", 0.8, "µs", report.get("64 B, round trip", "penstock spinning", "p50")
    )
    report.at_most(
        "64 B", "round trip p50, sleeping", 10, "µs", report.get("64 B, round trip", "penstock sleeping", "p50")
    )
    value = report.get("64 B, C++ core", "penstock shared", "CPU per message, both sides")
    report.at_most("64 B, C++ core", "CPU per message, both sides", 30, "ns", value)
    if not report.quick:
        ours_rate = report.get("1 MiB, one process", "penstock send + recv", "rate")
        copy_rate = report.get("1 MiB, one process", "memcpy in + out", "rate")
        ratio = ours_rate / copy_rate if ours_rate and copy_rate else None
        report.at_least("1 MiB", "rate, of one memcpy in and one out", 0.85, "×", ratio)
