"""Shared by questions about channels between processes: channels of their own, throughput, round trips."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import penstock
from bench.processes import Flow, bursts, flow, round_trips
from bench.report import Report
from evidence.bounded import Failed, bounded, child, join

COUNTS = {64: 600_000, 1024: 200_000, 65536: 12_000, 1 << 20: 1_000}
# ModuleTypes that would take too long get fewer messages.
SLOW = {
    "mp_queue": 20,
    "mp_pipe": 8,
    "iceoryx2": 20,
    "faster_fifo": 10,
    "faster_fifo_many": 4,
    "pyzmq": 4,
    "zmq_pub": 4,
    "zenoh_shm": 20,
    "shm_by_hand": 4,
    "dora": 20,
}
COPIES = "memcpy in + out, shared memory"
PRIVATE = "memcpy in + out, private memory"
ZEROED = "memset, memcpy in + out, shared memory"
WAKES = "two bare wakes (eventfd)"
NOTHING, CLOCK, NEW_BYTES = "a method that does nothing", "the clock", "64 new bytes"
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


def tried(report: Report, who: str, case: str, what: str, measure: Any, *args: Any, **options: Any) -> Any:
    """The result of a bounded run of `measure` returns; None, noted in the report, where there is no result."""
    if not report.tries(who, case):
        return None
    try:
        return bounded(report.limit, what, measure, *args, **options)
    except Failed as error:
        report.failed(who, case, error)
        return None


def cpu_ns(call: Callable[[], Any], count: int) -> float:
    """CPU time of a call of no argument, with the loop around it."""
    begun = time.process_time_ns()
    for _ in range(count):
        call()
    return (time.process_time_ns() - begun) / count


def bare_calls(report: Report) -> None:
    """The least that a call from Python costs: of a C method that does nothing, that reads the clock, that returns 64 new bytes."""
    count, rounds = (500, 2) if report.quick else (5_000, 60)
    calls = {NOTHING: (0).conjugate, CLOCK: time.time_ns, NEW_BYTES: memoryview(bytes(64)).tobytes}
    found: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            found[who].append(cpu_ns(call, count))
    for who, values in found.items():
        report.add("a bare call", who, "CPU per call", values, "ns")


def call_aims(report: Report) -> None:
    """What a send and a receive of 64 bytes may cost, by calls that do less."""
    for name, bare, aim in (("send", CLOCK, 1.1), ("receive", NOTHING, 1.4), ("receive", NEW_BYTES, 1.1)):
        ours = report.get("64 B, one process", f"penstock {name}", "CPU per message")
        least = report.get("a bare call", bare, "CPU per call")
        ratio = ours / least if ours and least else None
        report.at_most("64 B, one by one", f"CPU per {name}, of a bare call: {bare}", aim, "×", ratio)


def in_one_process(report: Report, channel: str, **options: Any) -> None:
    """CPU time of a call where nobody disturbs: one thread sends a burst, then receives it."""
    count, rounds = (500, 2) if report.quick else (5_000, 60)
    data, found = os.urandom(64), {"send": [], "receive": [], "offer_many": [], "poll_arrow": []}
    with penstock.publish(channel, **options) as pub, penstock.subscribe(channel) as sub:
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


def last_values(report: Report) -> None:
    """CPU time of a send of JSON to a log without and with last values, in turn."""
    count, rounds = (500, 2) if report.quick else (5_000, 60)
    message = {"name": "gain", "value": 3, "filler": "x" * 24}
    ways: dict[str, dict[str, Any]] = {"plain": {}, "last": {"last": "name"}}
    with contextlib.ExitStack() as opened:
        pubs = {
            way: opened.enter_context(penstock.publish(f"log:{way}", codec="json", **options))
            for way, options in ways.items()
        }
        found: dict[str, list[float]] = {way: [] for way in pubs}
        for _ in range(rounds):
            for way, pub in pubs.items():
                found[way].append(cpu_ns(lambda pub=pub: pub.send(message), count))
    for way, who in (("plain", "penstock send"), ("last", "penstock send, last values")):
        report.add("JSON, 60 B, one process", who, "CPU per message", found[way], "ns")


def one_by_one(report: Report, who: str, rival: ModuleType) -> None:
    """The same for a rival; only the calling thread's time counts, for a driver may run beside it."""
    case, count, rounds = "64 B, one process", report.sized(2_000, quick=200), report.sized(40, quick=2)
    if not report.tries(who, case):
        return
    try:
        found = bursts(report.limit, rival, 64, count, rounds)
    except Failed as error:
        report.failed(who, case, error)
        return
    for name, values in zip(("send", "receive"), zip(*found, strict=True), strict=True):
        report.add(case, f"{who} {name}", "CPU per message", list(values), "ns")


def throughput(report: Report, everyone: dict[str, ModuleType], size: int, readers: int) -> None:
    """Messages per second at the slowest receiver; the order of who runs is turned each round."""
    case = f"{NAMES[size]}, {readers} subscriber{'s' if readers > 1 else ''}"
    small = size == 64  # which feel most what else the machine does
    rounds = report.sized(7 if small else 3, quick=1, short=3 if small else 2)
    found: dict[str, list] = {}
    for _ in range(rounds):
        for who, rival in everyone.items():
            if who == "penstock in place" and size < 65536:
                continue
            count = 2_000 if report.quick else max(COUNTS[size] // SLOW.get(who, 1), 200)
            if who == "penstock batches" and not report.quick and size == 64:
                count *= 8
            if not report.tries(who, case):
                continue
            try:
                found.setdefault(who, []).append(flow(report.limit, rival, size, count, readers))
            except Failed as error:
                report.failed(who, case, error)
    for who, flows in found.items():
        if not flows:
            continue
        report.add(case, who, "throughput", [f.rate for f in flows], "messages/s")
        report.add(case, who, "CPU per send", [f.send_ns for f in flows], "ns")
        report.add(case, who, "CPU per receive", [f.receive_ns for f in flows], "ns")
        note_lost(report, who, case, flows)


def note_lost(report: Report, who: str, case: str, flows: list[Flow]) -> None:
    """Says how many messages a rival lost, where it sent as many again."""
    if any(one.lost for one in flows):
        report.note(f"{who}, {case}: lost and sent again in each run: {', '.join(str(one.lost) for one in flows)}")


def latency(report: Report, everyone: dict[str, ModuleType], size: int, *, ours: ModuleType) -> None:
    """Round trips, one at a time; ours both spinning and sleeping."""
    case = f"{NAMES[size]}, round trip"
    count = 300 if report.quick else 20_000 if size == 64 else 1_000
    for who, rival in everyone.items():
        ways = {"spinning": {"spin": math.inf}, "sleeping": {"spin": 0.0}} if rival is ours else {"default": {}}
        for way, options in ways.items():
            name = f"{who} {way}" if rival is ours else who
            if not report.tries(who, case):
                continue
            try:
                times = round_trips(
                    report.limit,
                    rival,
                    size,
                    count // (10 if who in ("mp_queue", "dora") and size == 64 else 1),
                    **options,
                )
            except Failed as error:
                report.failed(who, case, error)
                continue
            add_trips(report, case, name, times)
    if size == 64:
        wakes(report, case)


def add_trips(report: Report, case: str, who: str, times: list[float]) -> None:
    """Median and tail of sorted round trips in ns."""
    report.add(case, who, "p50", statistics.median(times) / 1e3, "µs")
    report.add(case, who, "p99", times[int(len(times) * 0.99)] / 1e3, "µs")


def wakes(report: Report, case: str) -> None:
    """The time in which the kernel wakes one process and then the other, without messages."""
    count = 300 if report.quick else 20_000
    who = WAKES
    times = tried(report, who, case, f"{count:,} wakes", _wakes, count)
    if times is not None:
        add_trips(report, case, who, times)


def _wakes(count: int) -> list[int]:
    there, back, times = os.eventfd(0), os.eventfd(0), []
    other = child("the echo", _echo_wakes, there, back, count)
    for _ in range(count):
        begun = time.perf_counter_ns()
        os.eventfd_write(there, 1)
        os.eventfd_read(back)
        times.append(time.perf_counter_ns() - begun)
    join([other])
    return sorted(times[count // 10 :])


def _echo_wakes(there: int, back: int, count: int) -> None:
    for _ in range(count):
        os.eventfd_read(there)
        os.eventfd_write(back, 1)


def copies(report: Report, pub: Any, sub: Any) -> None:
    """1 MiB in one process: a send and a receive against the two memory copies that they are, and against one that zeroes first.

    A channel's memory is shared, so the copies go through shared memory, too. Private memory may have larger pages.
    """
    import numpy as np

    size, rounds, room = 1 << 20, 200, 48
    data = np.random.default_rng(0).integers(0, 255, size, dtype="u1").tobytes()
    source = np.frombuffer(data, dtype="u1")
    private = np.zeros(room << 20, dtype="u1")
    shared = np.frombuffer(mmap.mmap(-1, room << 20), dtype="u1")
    shared[:] = private[:] = 0
    times: dict[str, list[float]] = {"penstock send + recv": [], COPIES: [], PRIVATE: [], ZEROED: []}

    def through(place: Any, i: int, zeroes: bool = False) -> None:
        at = i % (room - 1) << 20
        if zeroes:
            place[at : at + size] = 0
        place[at : at + size] = source
        place[at : at + size].tobytes()

    def ours() -> None:
        pub.send(data)
        sub.recv()

    for i in range(rounds):
        for who, one in (
            ("penstock send + recv", ours),
            (COPIES, partial(through, shared, i)),
            (PRIVATE, partial(through, private, i)),
            (ZEROED, partial(through, shared, 7 * i + 3, zeroes=True)),  # elsewhere: these bytes are in no cache either
        ):
            begun = time.perf_counter()
            one()
            times[who].append(time.perf_counter() - begun)
    for who, values in times.items():
        report.add("1 MiB, one process", who, "rate", 1 / statistics.median(values[20:]), "messages/s")


def of_two_copies(report: Report) -> float | None:
    """The rate of `copies`, in that of the copies alone."""
    ours, bare = (report.get("1 MiB, one process", who, "rate") for who in ("penstock send + recv", COPIES))
    return ours / bare if ours and bare else None
