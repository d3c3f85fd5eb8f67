"""How fast do pipes share work out and carry questions? Push and pull, request and reply, handovers between threads."""

from __future__ import annotations

import json
import math
import os
import queue
import threading
import time
from types import ModuleType
from typing import Any

import penstock
from bench import rivals
from bench.ipc import WAKES, add_trips, copies, of_two_copies, own_channels, throughput, tried, wakes
from bench.processes import round_trips
from bench.report import Report
from bench.rivals import ours, pipe, pipe_batch
from evidence.bounded import Failed, Results, child, context, join, program, until, watched
from evidence.build import build

PUSHES = "penstock push and pull, spinning"
LOG = "penstock log, there and back, spinning"
WORDS = "two bare words, spinning, C++"
NAMES = ("pyzmq", "mp_queue", "mp_pipe", "faster_fifo")


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
        wakes(report, "64 B, request and reply")
        there_and_back(report)
        words(report)
        threads(report)
    core(report)
    aims(report)


def _worker(name: str, ready: Any, results: Results) -> None:
    with penstock.subscribe(f"pipe:{name}", **pipe.options(64)) as pull:
        ready.release()
        count = 0
        while len(pull.recv()) != 0:
            count += 1
        results.put(count)


def shared(report: Report, workers: int) -> None:
    """One pusher and so many pullers that take one message at a time: messages done per second by all of them."""
    count = 4_000 if report.quick else 400_000
    case, who, what = "64 B, one pushes", f"{workers} worker{'s' if workers > 1 else ''}", f"{count:,} messages"
    runs = [tried(report, who, case, what, _shared, workers, count) for _ in range(report.sized(5, quick=1, short=3))]
    if rates := [rate for rate in runs if rate is not None]:
        report.add(case, who, "done by all", rates, "messages/s")


def _shared(workers: int, count: int) -> float:
    name = f"shared-{workers}"
    ready, results = context.Semaphore(0), Results()
    children = [child(f"worker {i}", _worker, name, ready, results) for i in range(workers)]
    for _ in children:
        until(ready, children)
    with penstock.publish(f"pipe:{name}", **pipe.options(64)) as push:
        push.wait_for_readers(workers)
        data = os.urandom(64)
        begun = time.perf_counter_ns()
        for _ in range(count):
            push.send(data)
        while push.unread_messages > 0:
            time.sleep(0.0002)
        rate = count / ((time.perf_counter_ns() - begun) / 1e9)
        for _ in children:
            push.send(b"")
        assert sum(results.get(children) for _ in children) == count
        join(children)
    return rate


def _serve(rival: ModuleType, name: str, count: int, ready: Any, options: dict[str, Any], done: Any) -> None:
    server = rival.replier(name, **options)
    ready.release()
    server.serve(lambda body: body, count)
    done.wait(10)
    server.close()


def questions(report: Report, who: str, rival: ModuleType, **options: Any) -> None:
    """Requests of 64 bytes, one at a time, to a server that gives them back."""
    count = 300 if report.quick else 20_000
    _answered(report, who, f"{count:,} requests", _questions, rival, count, options)


def _questions(rival: ModuleType, count: int, options: dict[str, Any]) -> list[int]:
    name, ready, done = f"bench-{os.getpid()}", context.Semaphore(0), context.Event()
    server = child("the server", _serve, rival, name, count, ready, options, done)
    until(ready, [server])
    asks = rival.requester(name, **options)
    time.sleep(getattr(rival, "SETTLE", 0.05))
    data, times = os.urandom(64), []
    with watched([server]):
        for _ in range(count):
            begun = time.perf_counter_ns()
            asks.request(data)
            times.append(time.perf_counter_ns() - begun)
    done.set()
    asks.close()
    join([server])
    return times


def _answered(report: Report, who: str, what: str, measure: Any, *args: Any) -> None:
    """Median and tail of round trips in ns, without the first tenth."""
    case = "64 B, request and reply"
    times = tried(report, who, case, what, measure, *args)
    if times is None:
        return
    add_trips(report, case, who, sorted(times[len(times) // 10 :]))


KINDS: dict[str, Any] = {
    "penstock.threads.Pipe": penstock.threads.Pipe,
    "penstock.threads.Mailbox": penstock.threads.Mailbox,
    "queue.SimpleQueue": queue.SimpleQueue,
}


def threads(report: Report) -> None:
    """Handovers between two threads of one process: one way, and there and back."""
    count, case = 5_000 if report.quick else 200_000, "objects between threads"
    for who, kind in KINDS.items():
        runs = [
            tried(report, who, case, f"{count:,} objects", _threads, kind, count)
            for _ in range(1 if report.quick else 3)
        ]
        if found := [run for run in runs if run is not None]:
            report.add(case, who, "throughput", [rate for rate, _ in found], "objects/s")
            report.add(case, who, "round trip", [trip for _, trip in found], "µs")


def _threads(kind: Any, count: int) -> tuple[float, float]:
    there, back = kind(), kind()
    reader = threading.Thread(target=lambda: [there.get() for _ in range(count)])
    reader.start()
    begun, put = time.perf_counter_ns(), there.put
    for i in range(count):
        put(i)
    reader.join()
    rate = count / ((time.perf_counter_ns() - begun) / 1e9)
    echo = threading.Thread(target=lambda: [back.put(there.get()) for _ in range(count // 10)])
    echo.start()
    begun = time.perf_counter_ns()
    for i in range(count // 10):
        there.put(i)
        back.get()
    trip = (time.perf_counter_ns() - begun) / (count // 10) / 1e3
    echo.join()
    return rate, trip


CORE = {  # output of the C++ programs → rival, metric
    "ypipe write + flush + read, flushing every 1": ("ypipe", "write + flush + read"),
    "ypipe write + flush + read, flushing every 16": ("ypipe, flushing every 16", "write + flush + read"),
    "mailbox send": ("mailbox", "send"),
    "mailbox round trip between threads": ("mailbox", "round trip between threads"),
}


def core(report: Report) -> None:
    """The structures within a process, C++ alone."""
    if report.quick:
        return
    try:
        programs = build("plain", ("pipe_stress",)) / "tests"
    except (OSError, SystemExit) as error:
        report.missing["C++ core"] = str(error)
        return
    try:
        runs = [program(report.limit, "its measurements", [programs / "pipe_stress", "--bench"]) for _ in range(3)]
    except Failed as error:
        report.failed("pipe_stress", "within a process, C++ core", error)
        return
    found: dict[str, list[float]] = {}
    for line in "".join(runs).splitlines():
        row = json.loads(line)
        found.setdefault(row["what"], []).append(row["ns"])
    for what, values in found.items():
        who, metric = CORE[what]
        report.add("within a process, C++ core", who, metric, values, "ns")


def there_and_back(report: Report) -> None:
    """Round trips without questions: a push, a pull, a push, a pull; and the same through two logs."""
    case, count = "64 B, request and reply", 300 if report.quick else 20_000
    for who, kind in ((PUSHES, pipe), (LOG, ours)):
        if not report.tries(who, case):
            continue
        try:
            add_trips(report, case, who, round_trips(report.limit, kind, 64, count, spin=math.inf))
        except Failed as error:
            report.failed(who, case, error)


def words(report: Report) -> None:
    """The bare exchange: each side adds to a word of its own cache line, and looks at the other's until it has changed."""
    case = "64 B, request and reply"
    try:
        bare = build("plain", ("wake_bench",)) / "tests" / "wake_bench"
        runs = [json.loads(program(report.limit, "its round trips", [bare, "--spin", "1"])) for _ in range(3)]
    except (OSError, SystemExit, Failed) as error:
        report.failed(WORDS, case, error)
        return
    for metric in ("p50", "p99"):
        report.add(case, WORDS, metric, [run[metric] / 1e3 for run in runs], "µs")


def aims(report: Report) -> None:
    """The aims of pipes, by the rivals of the same run."""
    case, large, asked = "64 B, 1 subscriber", "1 MiB, 1 subscriber", "64 B, request and reply"

    def times(who: str, rival: str, where: str = case) -> float | None:
        return report.ratio(where, "throughput", who, rival)

    report.at_least(case, "one by one, times pyzmq", 12, "×", times("penstock", "pyzmq"))
    report.at_least(case, "in batches, times pyzmq", 40, "×", times("penstock batches", "pyzmq"))
    report.at_least(case, "one by one, times multiprocessing.Queue", 30, "×", times("penstock", "mp_queue"))
    report.at_least(large, "times pyzmq", 1, "×", times("penstock", "pyzmq", large))
    if not report.quick:
        report.at_least("1 MiB", "rate, of one memcpy in and one out", 0.9, "×", of_two_copies(report))
    report.at_most(
        asked, "sleeping, times two bare wakes", 1.2, "×", report.ratio(asked, "p50", "penstock sleeping", WAKES)
    )
    times_bare = report.ratio(asked, "p50", "penstock spinning", WORDS)
    report.at_most(asked, "spinning, times two bare words", 2.5, "×", times_bare)
    if not report.quick:  # measured for libzmq's own
        inside = "within a process, C++ core"
        for who, metric, aim in (
            ("ypipe", "write + flush + read", 20),
            ("ypipe, flushing every 16", "write + flush + read", 4.4),
            ("mailbox", "send", 70),
        ):
            report.at_most(inside, f"{who}, {metric}", aim, "ns", report.get(inside, who, metric))
        trip, bare = report.get(inside, "mailbox", "round trip between threads"), report.get(asked, WAKES, "p50")
        ratio = trip / 1e3 / bare if trip and bare else None
        report.at_most(inside, "mailbox, round trip between threads, times two bare wakes", 1.3, "×", ratio)
    ratio = report.ratio("64 B, one pushes", "done by all", "8 workers", "1 worker")
    report.at_least("64 B, one pushes", "8 workers, times 1", 0.9, "×", ratio)
