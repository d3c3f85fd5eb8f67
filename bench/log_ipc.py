"""How fast is a log between processes, from Python? Throughput without loss, CPU time per message, round trips."""

from __future__ import annotations

import json

import penstock
from bench import rivals
from bench.ipc import (
    COUNTS,
    bare_calls,
    call_aims,
    copies,
    in_one_process,
    last_values,
    latency,
    of_two_copies,
    one_by_one,
    own_channels,
    throughput,
)
from bench.report import Report
from bench.rivals import ours, ours_batch, ours_inplace, pipe
from evidence.bounded import Failed
from evidence.bounded import program as run_program
from evidence.build import build

PIPE = "penstock pipe"  # it zeroes nothing ahead
# The bars of --plot: case, metric.
PLOT = (("64 B, 1 subscriber", "throughput"), ("64 B, round trip", "p50"))


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load()
    everyone = {"penstock": ours, "penstock batches": ours_batch, "penstock in place": ours_inplace, **found}
    sizes = (64,) if report.quick else tuple(COUNTS)
    with own_channels():
        bare_calls(report)
        in_one_process(report, "log:one", term_length=1 << 20)
        last_values(report)
        if "pyaeron" in found:
            one_by_one(report, "pyaeron", found["pyaeron"])
        native(report)
        for size in sizes:
            throughput(report, everyone | ({PIPE: pipe} if size >= 65536 else {}), size, 1)
            throughput(report, everyone, size, 3)
        for size in (64,) if report.quick else (64, 1 << 20):
            latency(report, {"penstock": ours, **found}, size, ours=ours)
        if not report.quick:
            with penstock.publish("log:copies", term_length=1 << 24) as pub, penstock.subscribe("log:copies") as sub:
                copies(report, pub, sub)
    aims(report)


def native(report: Report) -> None:
    """The C++ core alone, if cmake and a compiler are here."""
    try:
        path = build("plain", ("log_bench",)) / "tests" / "log_bench"
    except (OSError, SystemExit) as error:
        report.missing["C++ core"] = str(error)
        return
    count = "500000" if report.quick else "10000000"
    try:
        runs = [json.loads(run_program(report.limit, f"{count} messages", [path, "--count", count])) for _ in range(3)]
    except Failed as error:
        report.failed("penstock", "64 B, C++ core", error)
        return
    for kind in ("shared", "exclusive"):
        report.add(
            "64 B, C++ core", f"penstock {kind}", "CPU per message, both sides", [run[kind] for run in runs], "ns"
        )


def aims(report: Report) -> None:
    """The aims of the log on a calm machine of this kind."""
    one, three = "64 B, 1 subscriber", "64 B, 3 subscribers"
    call_aims(report)
    for case, rival, aim in ((one, "pyaeron", 2.5), (one, "pyzmq", 12), (three, "pyzmq", 12)):
        ratio = report.ratio(case, "throughput", "penstock", rival)
        report.at_least(case, f"throughput, times {rival}", aim, "×", ratio)
    batches = report.get(one, "penstock batches", "throughput")
    report.at_least(one, "throughput in batches", 30e6, "messages/s", batches)
    spun, slept = (report.get("64 B, round trip", f"penstock {way}", "p50") for way in ("spinning", "sleeping"))
    report.at_most("64 B", "round trip p50, spinning", 0.8, "µs", spun)
    report.at_most("64 B", "round trip p50, sleeping", 10, "µs", slept)
    value = report.get("64 B, C++ core", "penstock shared", "CPU per message, both sides")
    report.at_most("64 B, C++ core", "CPU per message, both sides", 30, "ns", value)
    if not report.quick:
        large = "1 MiB, 1 subscriber"
        for who in ("penstock", PIPE):
            ratio = report.ratio(large, "throughput", who, "iceoryx2")
            report.at_least(large, f"{who}: throughput, times iceoryx2", 1, "×", ratio)
        report.at_least("1 MiB", "rate, of one memcpy in and one out", 0.9, "×", of_two_copies(report))
