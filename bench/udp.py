"""How fast is the network log over loopback? CPU of both sides for each message, round trips, loss, idleness, against Aeron, ZeroMQ, and
bare sockets in C++ and in Python."""

from __future__ import annotations

import contextlib
import json
import math
import resource
import statistics
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import penstock
from bench import rivals, udp_gaps
from bench.ipc import NAMES, own_channels, tried
from bench.processes import Flow, flow, round_trips
from bench.report import Report
from bench.rivals import loopback, udp_ours, udp_ours_batch, udp_ours_sealed
from evidence.bounded import Failed, Results, child, context, program, until
from evidence.build import build

AERON = "pyaeron udp"
WHO = {"udp_zmq": "pyzmq tcp", "udp_raw": "raw Python UDP", "udp_pyaeron": AERON}
PLOT = (("64 B", "throughput"), ("1 KiB", "throughput"))  # the bars of --plot: case, metric
COUNTS = {64: 300_000, 1024: 60_000, 65536: 3_000}
SLOW = {"raw Python UDP": 4}
BOTH = "CPU both sides"
TRIP = "64 B, round trip"
CORE_WHO = {"bare": "bare", "network log": "C++"}
SPIN_S = 20e-6
BATCHED_MAX = 1376  # one frame: batches take no message in fragments
PLAIN, DATAGRAM = "plain Aeron peer", "CPU for each datagram"
BARE_HALVES = {"sender": "bare GSO send", "receiver": "bare recvmmsg"}
LOG_HALVES = {"sender": "publishing, beside sending", "receiver": "reading, beside receiving"}
WINDOWS = (128 << 10, 2 << 20)
WAKES = "wakes"
RECEIVER_ERRORS = ("InErrors", "RcvbufErrors")


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load(tuple(WHO))
    everyone: dict[str, ModuleType] = {
        "penstock": udp_ours,
        "penstock batches": udp_ours_batch,
        "penstock, a key": udp_ours_sealed,
    }
    everyone |= {WHO[name]: module for name, module in found.items()}
    core(report)
    halves(report)
    seals(report)
    core_trips(report)
    with own_channels():
        for size in (64,) if report.quick else tuple(COUNTS):
            one_way(report, everyone, size)
        trips(
            report,
            {who: rival for who, rival in everyone.items() if who not in ("penstock batches", "penstock, a key")},
        )
        idle(report)
        drops(report)
        loss(report)
        udp_gaps.run(report)
    aims(report)


def core(report: Report) -> None:
    """C++ alone: bare sockets, and the network log from publish to read, in one thread over cold memory."""
    for name, metrics in (("udp_bare", {"send_ns": "send", "receive_ns": "receive"}), ("udp_bench", {"ns": "both"})):
        for row in printed(report, name):
            case, who = f"{row['case']}, C++", row["way"]
            if name == "udp_bare":
                who = f"bare {who}"
                report.add(case, who, "both", row["send_ns"] + row["receive_ns"], "ns")
            for key, metric in metrics.items():
                report.add(case, who, metric, row[key], "ns")


def printed(report: Report, name: str) -> list[dict[str, Any]]:
    """The measurements of a program in C++; no rows where it cannot be built, or fails."""
    try:
        path = build("plain", (name,)) / "tests" / name
        said = program(report.limit * 2, "its measurements", [path, *(["--quick"] if report.quick else [])])
    except (OSError, SystemExit) as error:
        report.missing[name] = str(error)
        return []
    except Failed as error:
        report.failed(name, "C++", error)
        return []
    return [json.loads(line) for line in said.splitlines()]


def core_trips(report: Report) -> None:
    """C++ alone: round trips of the network log and of bare sockets, in turn, in each placement."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in printed(report, "udp_trips"):
        found.setdefault(f"{CORE_WHO[row['who']]}, {row['way']}, {row['placement']}", []).append(row)
    for who, rows in found.items():
        for key, metric in (("p50_ns", "p50"), ("p99_ns", "p99"), ("cpu_ns", "CPU")):
            report.add(TRIP, who, metric, [row[key] / 1e3 for row in rows], "µs")


def halves(report: Report) -> None:
    """C++ alone: each half against a plain peer, as Aeron's driver is one; the bare loop over the same datagrams in turn with it."""
    for row in printed(report, "udp_halves"):
        case, half = f"{row['case']}, {PLAIN}, C++", row["half"]
        report.add(case, half, DATAGRAM, row["ns"], "ns")
        report.add(case, BARE_HALVES[half], DATAGRAM, row["bare_ns"], "ns")
        report.add(case, LOG_HALVES[half], DATAGRAM, row["log_ns"], "ns")


def seals(report: Report) -> None:
    """C++ alone: what a key costs for each datagram, beside the bare cipher over the same bytes."""
    for row in printed(report, "seal_bench"):
        for what in ("seal", "open"):
            report.add(f"{row['case']}, a key, C++", "network log", what, row[f"{what}_ns"], "ns")
            report.add(f"{row['case']}, a key, C++", "bare AES-256-GCM", what, row[f"bare_{what}_ns"], "ns")


def one_way(report: Report, everyone: dict[str, ModuleType], size: int) -> None:
    """A stream of messages to one receiver; the order of who runs is turned each round."""
    case = NAMES[size]
    found: dict[str, list[Flow]] = {}
    for _ in range(report.sized(3, quick=1, short=2)):
        for who, rival in everyone.items():
            count = 2_000 if report.quick else COUNTS[size] // SLOW.get(who, 1)
            if who == "penstock batches" and not report.quick and size == 64:
                count *= 4
            if who == "penstock batches" and size > BATCHED_MAX:
                continue
            if not report.tries(who, case):
                continue
            try:
                result = flow(report.limit, rival, size, count, 1)
            except Failed as error:
                report.failed(who, case, error)
            else:
                found.setdefault(who, []).append(result)
    for who, flows in found.items():
        report.add(case, who, BOTH, [(f.send_ns + f.receive_ns) / 1e3 for f in flows], "µs")
        report.add(case, who, "CPU per send", [f.send_ns / 1e3 for f in flows], "µs")
        report.add(case, who, "CPU per receive", [f.receive_ns / 1e3 for f in flows], "µs")
        report.add(case, who, "throughput", [f.rate for f in flows], "messages/s")


def trips(report: Report, everyone: dict[str, ModuleType]) -> None:
    """Round trips, one at a time. A sleeping pair's depends on the cores that the system puts it on."""
    ways: list[tuple[str, Any, dict[str, float]]] = []
    for who, rival in everyone.items():
        if who == "penstock":
            ways += [
                (f"{who}, spinning", rival, {"spin": math.inf}),
                (f"{who}, spinning 20 µs", rival, {"spin": SPIN_S}),
            ]
            ways.append((f"{who}, asleep", rival, {"spin": 0.0}))
        elif who == WHO["udp_raw"]:
            ways += [(f"{who}, spinning", rival, {"spin": 1.0}), (f"{who}, asleep", rival, {})]
        else:
            ways.append((who, rival, {}))
    count = 300 if report.quick else 10_000
    for who, rival, options in ways:
        if not report.tries(who, TRIP):
            continue
        try:
            times = round_trips(report.limit, rival, 64, count, **options)
        except Failed as error:
            report.failed(who, TRIP, error)
            continue
        report.add(TRIP, who, "p50", statistics.median(times) / 1e3, "µs")
        report.add(TRIP, who, "p99", times[int(len(times) * 0.99)] / 1e3, "µs")


# ---- what the network log alone is asked ----


def _resting(name: str, ready: Any, go: Any, seconds: float, results: Results) -> None:
    with penstock.subscribe(udp_ours.uri(name)) as sub:
        ready.release()
        sub.recv(timeout=udp_ours.BEGIN_S)
        go.wait()
        before = _used()
        with contextlib.suppress(penstock.TimedOut):
            sub.recv(timeout=seconds)
        results.put(_rates(before, seconds))
        results.wait()


def _used() -> tuple[float, int]:
    """CPU seconds of this process, and how often it has slept."""
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _rates(before: tuple[float, int], seconds: float) -> tuple[float, float]:
    return tuple((now - then) / seconds for now, then in zip(_used(), before, strict=True))  # type: ignore[return-value]


def _idle(seconds: float) -> tuple[tuple[float, float], tuple[float, float]]:
    ready, go, results, name = context.Semaphore(0), context.Event(), Results(), "idle"
    loopback.prepare(name, 1, 64)
    other = child("the receiver", _resting, name, ready, go, seconds, results)
    until(ready, [other])
    with penstock.publish(udp_ours.uri(name)) as pub:
        pub.wait_for_readers(1, timeout=udp_ours.BEGIN_S)
        pub.send(b"x")
        go.set()
        before = _used()
        time.sleep(seconds)
        mine = _rates(before, seconds)
        found = results.get([other])
        results.done.set()
    return mine, found


def idle(report: Report) -> None:
    """The CPU time of a connected pair that has nothing to say."""
    seconds = 0.5 if report.quick else 5.0
    shares = tried(report, "penstock", "idle pair", "a rest", _idle, seconds)
    if shares is not None:
        for who, (share, wakes) in zip(("publisher", "subscriber"), shares, strict=True):
            report.add("idle pair", who, "share of a core", share * 100, "%")
            report.add("idle pair", who, WAKES, wakes, "a second")


def _receiver_errors() -> int:
    """Datagrams that this machine's kernel dropped at full receive buffers, since it started."""
    names, values = [
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Udp:")
    ]
    return sum(int(values[names.index(name)]) for name in RECEIVER_ERRORS)


def drops(report: Report) -> None:
    """Datagrams that find a full receive buffer while messages stream. The counter is the machine's."""
    for window in WINDOWS:
        case, before = "receive-buffer drops", _receiver_errors()
        udp_ours.options.update(window=window)
        found, count = None, 2_000 if report.quick else 600_000
        if report.tries(f"window {window >> 10} KiB", case):
            try:
                found = flow(report.limit, udp_ours_batch, 64, count, 1)
            except Failed as error:
                report.failed(f"window {window >> 10} KiB", case, error)
        udp_ours.options.clear()
        if found is not None:
            report.add(case, f"window {window >> 10} KiB", "dropped", _receiver_errors() - before, "datagrams")
            report.add(case, f"window {window >> 10} KiB", "of messages", count, "messages")


def loss(report: Report) -> None:
    """10,000 messages through a relay, without loss and with 5 % of the datagrams lost in either direction."""
    count = 1_000 if report.quick else 10_000
    for who, share in (("no loss", 0.0), ("5 % lost both ways", 0.05)):
        times = [
            tried(report, who, "through a relay", f"{count:,} messages", _lossy, count, share)
            for _ in range(report.sized(3, quick=1))
        ]
        if known := [one for one in times if one is not None]:
            report.add("through a relay", who, "time", known, "s")


def _lossy(count: int, share: float) -> float:
    ready, results = context.Semaphore(0), Results()
    with udp_gaps.relay(share), penstock.subscribe(udp_ours.uri("there")) as sub:
        other = child("the sender", _send_lossy, count, ready, results)
        ready.release()
        sub.recv(timeout=udp_ours.BEGIN_S)
        begun = time.perf_counter()
        for _ in range(count - 1):
            sub.recv(timeout=udp_ours.BEGIN_S)
        found = time.perf_counter() - begun
        results.done.set()
        other.join()
    return found


def _send_lossy(count: int, ready: Any, results: Results) -> None:
    ready.acquire()
    with penstock.publish(udp_ours.uri("here")) as pub:
        pub.wait_for_readers(1, timeout=udp_ours.BEGIN_S)
        for _ in range(count):
            pub.send(bytes(1000))
        results.wait()


def aims(report: Report) -> None:
    """The aims of the network log: ratios to what ran beside it."""

    def core_of(case: str, way: str, limit: float, who: str = "network log") -> None:
        ratio = report.ratio(f"{case}, C++", "both", who, f"bare {way}")
        report.at_most(f"{case}, C++", f"{who}, of bare {way}", limit, "×", ratio)

    for case, limit in (("64 B", 2.5), ("1 KiB", 2.0), ("64 KiB", 2.0)):
        core_of(case, "GSO + GRO", limit)
        if case != "64 KiB":
            core_of(case, "GSO + GRO", 1.8, "network log, batches")
    core_of("mixed", "sendmmsg + recvmmsg", 1.25)

    for size in ("64 B", "1 KiB"):
        for half, rival in BARE_HALVES.items():
            case = f"{size}, {PLAIN}, C++"
            ratio = report.ratio(case, DATAGRAM, half, rival)
            report.at_most(case, f"{half}, {DATAGRAM}, of {rival}", 1.4, "×", ratio)

    for size in ("64 B", "1344 B", "8 KiB"):
        for what in ("seal", "open"):
            ratio = report.ratio(f"{size}, a key, C++", what, "network log", "bare AES-256-GCM")
            report.at_most(f"{size}, a key, C++", f"{what}, of the bare cipher", 1.15, "×", ratio)

    def cpu(case: str, who: str, rival: str, limit: float) -> None:
        report.at_most(case, f"{who}, {BOTH}, of {rival}", limit, "×", report.ratio(case, BOTH, who, rival))

    cpu("64 B", "penstock", AERON, 0.45)
    cpu("64 B", "penstock", WHO["udp_zmq"], 0.35)
    cpu("64 B", "penstock batches", AERON, 0.15)
    ratio = report.ratio("64 B", "throughput", "penstock batches", AERON)
    report.at_least("64 B", f"penstock batches, messages/s, times {AERON}", 5, "×", ratio)
    cpu("1 KiB", "penstock", AERON, 0.10)
    cpu("64 KiB", "penstock", AERON, 0.20)
    cpu("64 KiB", "penstock", WHO["udp_zmq"], 0.8)
    for way, rival, limit in (
        ("spinning 20 µs, apart", "spinning, apart", 1.3),
        ("asleep, apart", "asleep, apart", 1.25),
        ("asleep, free", "asleep, free", 1.25),
        ("asleep, one core", "asleep, one core", 1.25),
    ):
        ratio = report.ratio(TRIP, "p50", f"C++, {way}", f"bare, {rival}")
        report.at_most(TRIP, f"C++, {way}, p50, of bare sockets, {rival}", limit, "×", ratio)
    for way in ("spinning", "spinning 20 µs"):
        for rival, limit in ((f"{WHO['udp_raw']}, spinning", 1.2), (AERON, 0.12)):
            ratio = report.ratio(TRIP, "p50", f"penstock, {way}", rival)
            report.at_most(TRIP, f"{way}, p50, of {rival}", limit, "×", ratio)
    ratio = report.ratio(TRIP, "p50", "penstock, asleep", "bare, asleep, free")
    report.at_most(TRIP, "asleep, p50, of bare blocking sockets", 1.25, "×", ratio)
    for who in ("publisher", "subscriber"):
        share = report.get("idle pair", who, "share of a core")
        report.at_most("idle pair", f"{who}, share of a core", 0.2, "%", share)
    for window in WINDOWS:
        who = f"window {window >> 10} KiB"
        dropped = report.get("receive-buffer drops", who, "dropped")
        report.at_most("receive-buffer drops", who, 0, "datagrams", dropped)
    ratio = report.ratio("through a relay", "time", "5 % lost both ways", "no loss")
    report.at_most("through a relay", "5 % lost both ways, of the lossless time", 2, "×", ratio)
    udp_gaps.aim(report)
