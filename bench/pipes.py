"""How fast do pipes share work out and carry questions? Push and pull, request and reply, handovers between threads."""

from __future__ import annotations

import json
import math
import os
import queue
import statistics
import subprocess
import threading
import time
from types import ModuleType
from typing import Any

import penstock
from bench import rivals
from bench.ipc import copies, of_two_copies, own_channels, throughput
from bench.processes import _child, context
from bench.report import Report
from bench.rivals import pipe, pipe_batch
from evidence.build import build

NAMES = ("pyzmq", "mp_queue", "mp_pipe", "faster_fifo")
TIMEOUT = 60


def run(report: Report) -> None:
    """All of it, everyone in turn, several times, medians."""
    found, report.missing = rivals.load(NAMES)
    rpc, missing = rivals.load(("zmq_rpc",))
    report.missing |= missing
    everyone = {"penstock": pipe, "penstock batches": pipe_batch, **found}
    with own_channels():
        for size in (64,) if report.quick else (64, 1024, 65536, 1 << 20):
            throughput(report, everyone, size, 1)
        if not report.quick:
            large = pipe.options(1 << 20)
            with penstock.publish("pipe:copies", **large) as pub, penstock.subscribe("pipe:copies") as sub:
                copies(report, pub, sub)
        for workers in (1, 2, 4, 8):
            shared(report, workers)
        for way, spin in (("spinning", math.inf), ("sleeping", 0.0)):
            questions(report, f"penstock {way}", pipe, spin=spin)
        for who, rival in rpc.items():
            questions(report, who, rival)
        wakes(report)
        threads(report)
    core(report)
    aims(report)


def _worker(name: str, ready: Any, results: Any) -> None:
    with penstock.subscribe(f"pipe:{name}", **pipe.options(64)) as pull:
        ready.release()
        count = 0
        while len(pull.recv()) != 0:
            count += 1
        results.put(count)


def shared(report: Report, workers: int) -> None:
    """One who pushes, so many who pull one by one: messages done per second by all of them."""
    count = 4_000 if report.quick else 400_000
    rates = []
    for _ in range(1 if report.quick else 5):
        name = f"shared-{workers}-{time.monotonic_ns()}"
        ready, results = context.Semaphore(0), context.SimpleQueue()
        children = [_child(_worker, name, ready, results) for _ in range(workers)]
        for _ in children:
            ready.acquire(timeout=TIMEOUT)
        with penstock.publish(f"pipe:{name}", **pipe.options(64)) as push:
            push.wait_for_readers(workers, timeout=TIMEOUT)
            data = os.urandom(64)
            begun = time.perf_counter_ns()
            for _ in range(count):
                push.send(data)
            while push.waiting > 0:
                time.sleep(0.0002)
            rates.append(count / ((time.perf_counter_ns() - begun) / 1e9))
            for _ in children:
                push.send(b"")
            assert sum(results.get() for _ in children) == count
            for child in children:
                child.join(10)
        penstock.remove(f"pipe:{name}")
    report.add("64 B, one pushes", f"{workers} worker{'s' if workers > 1 else ''}", "done by all", rates, "messages/s")


def _serve(rival: ModuleType, name: str, count: int, ready: Any, options: dict[str, Any], done: Any) -> None:
    server = rival.replier(name, **options)
    ready.release()
    server.serve(lambda body: body, count)
    done.wait(10)
    server.close()


def questions(report: Report, who: str, rival: ModuleType, **options: Any) -> None:
    """Requests of 64 bytes, one at a time, to a server that gives them back."""
    count = 300 if report.quick else 20_000
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    ready, done = context.Semaphore(0), context.Event()
    child = _child(_serve, rival, name, count, ready, options, done)
    ready.acquire(timeout=TIMEOUT)
    asks = rival.requester(name, **options)
    time.sleep(getattr(rival, "SETTLE", 0.05))
    data, times = os.urandom(64), []
    for _ in range(count):
        begun = time.perf_counter_ns()
        asks.request(data)
        times.append(time.perf_counter_ns() - begun)
    done.set()
    asks.close()
    child.join(10)
    _answered(report, who, times)


def _answered(report: Report, who: str, times: list[int]) -> None:
    """Median and tail of round trips in ns, without the first tenth."""
    kept = sorted(times[len(times) // 10 :])
    report.add("64 B, request and reply", who, "p50", statistics.median(kept) / 1e3, "µs")
    report.add("64 B, request and reply", who, "p99", kept[int(len(kept) * 0.99)] / 1e3, "µs")


def _echo_wakes(there: int, back: int, count: int) -> None:
    for _ in range(count):
        os.eventfd_read(there)
        os.eventfd_write(back, 1)


def wakes(report: Report) -> None:
    """What the kernel takes to wake one process and then the other, and nothing else: no sleeping round trip is shorter."""
    count = 300 if report.quick else 20_000
    there, back = os.eventfd(0), os.eventfd(0)
    child, times = _child(_echo_wakes, there, back, count), []
    for _ in range(count):
        begun = time.perf_counter_ns()
        os.eventfd_write(there, 1)
        os.eventfd_read(back)
        times.append(time.perf_counter_ns() - begun)
    child.join(10)
    _answered(report, "two bare wakes (eventfd)", times)
    os.close(there)
    os.close(back)


def threads(report: Report) -> None:
    """Handovers between two threads of one process: one way, and there and back."""
    count = 5_000 if report.quick else 200_000
    kinds: dict[str, Any] = {
        "penstock.Pipe": penstock.Pipe,
        "penstock.Mailbox": penstock.Mailbox,
        "queue.SimpleQueue": queue.SimpleQueue,
    }
    for who, kind in kinds.items():
        rates, trips = [], []
        for _ in range(1 if report.quick else 3):
            there, back = kind(), kind()
            reader = threading.Thread(target=lambda there=there: [there.get() for _ in range(count)])
            reader.start()
            begun, put = time.perf_counter_ns(), there.put
            for i in range(count):
                put(i)
            reader.join()
            rates.append(count / ((time.perf_counter_ns() - begun) / 1e9))
            echo = threading.Thread(
                target=lambda there=there, back=back: [back.put(there.get()) for _ in range(count // 10)]
            )
            echo.start()
            begun = time.perf_counter_ns()
            for i in range(count // 10):
                there.put(i)
                back.get()
            trips.append((time.perf_counter_ns() - begun) / (count // 10) / 1e3)
            echo.join()
        report.add("objects between threads", who, "throughput", rates, "objects/s")
        report.add("objects between threads", who, "round trip", trips, "µs")


CORE = {  # what the C++ programs print → who, metric
    "ypipe write + flush + read, flushing every 1": ("ypipe", "write + flush + read"),
    "ypipe write + flush + read, flushing every 16": ("ypipe, flushing every 16", "write + flush + read"),
    "mailbox send": ("mailbox", "send"),
    "mailbox round trip between threads": ("mailbox", "round trip between threads"),
    "command there and back between two io threads": ("io threads", "command there and back"),
}


def core(report: Report) -> None:
    """The structures within a process, C++ alone."""
    if report.quick:
        return
    try:
        programs = build("plain", ("pipe_stress", "io_stress")) / "tests"
    except (OSError, SystemExit) as error:
        report.missing["C++ core"] = str(error)
        return
    for name in ("pipe_stress", "io_stress"):
        runs = [
            subprocess.run([programs / name, "--bench"], capture_output=True, check=True, text=True).stdout
            for _ in range(3)
        ]
        found: dict[str, list[float]] = {}
        for line in "".join(runs).splitlines():
            row = json.loads(line)
            found.setdefault(row["what"], []).append(row["ns"])
        for what, values in found.items():
            who, metric = CORE[what]
            report.add("within a process, C++ core", who, metric, values, "ns")


def aims(report: Report) -> None:
    """What pipes are meant to reach, by the rivals of the same run."""
    case = "64 B, 1 subscriber"

    def times(who: str, rival: str, where: str = case) -> float | None:
        mine, theirs = report.get(where, who, "throughput"), report.get(where, rival, "throughput")
        return mine / theirs if mine and theirs else None

    report.at_least(case, "one by one, times pyzmq", 10, "×", times("penstock", "pyzmq"))
    report.at_least(case, "in batches, times pyzmq", 30, "×", times("penstock batches", "pyzmq"))
    report.at_least(case, "one by one, times multiprocessing.Queue", 30, "×", times("penstock", "mp_queue"))
    report.at_least("1 MiB, 1 subscriber", "times pyzmq", 1, "×", times("penstock", "pyzmq", "1 MiB, 1 subscriber"))
    if not report.quick:
        report.at_least("1 MiB", "rate, of one memcpy in and one out", 0.83, "×", of_two_copies(report))
    for way, aim in (("spinning", 1.5), ("sleeping", 12.0)):
        found = report.get("64 B, request and reply", f"penstock {way}", "p50")
        report.at_most("64 B, request and reply", f"{way}, p50", aim, "µs", found)
    if not report.quick:  # what libzmq's own were seen to take
        for who, metric, aim in (
            ("ypipe", "write + flush + read", 20),
            ("ypipe, flushing every 16", "write + flush + read", 4.4),
            ("mailbox", "send", 70),
            ("mailbox", "round trip between threads", 2300),
        ):
            found = report.get("within a process, C++ core", who, metric)
            report.at_most("within a process, C++ core", f"{who}, {metric}", aim, "ns", found)
    one, eight = (report.get("64 B, one pushes", who, "done by all") for who in ("1 worker", "8 workers"))
    report.at_least("64 B, one pushes", "8 workers, times 1", 0.8, "×", eight / one if one and eight else None)
