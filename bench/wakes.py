"""How long does a sleeping reader take to wake, and how often does an idle one? Round trips of two processes, by where they run, against a bare
futex in the same place; and readers to whom nobody sends.

On a virtual machine a core that sleeps is woken through the host, which takes 20 to 50 µs. Two processes on one core hand it to each
other in a few. So one number says nothing, and each placement has its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import statistics
import threading
import time
from typing import Any

import penstock
from bench.report import Report
from evidence.bounded import Failed, Results, bounded, child, context, join, program, until, watched
from evidence.build import build

# Placement → the cores of the two sides and of those that keep a core busy; None: wherever the kernel puts it.
PLACES: dict[str, tuple[int | None, int | None, tuple[int, ...]]] = {
    "apart": (0, 1, ()),
    "one core": (0, 0, ()),
    "one core busy": (None, None, (1,)),
    "both busy": (None, None, (0, 1)),
}
WAYS: dict[str, dict[str, Any]] = {
    "penstock sleeping": {"spin": 0.0},
    "penstock, as it comes": {},
    "penstock spinning": {"spin": math.inf},
}
BARE, NOTED = "bare futex, C++", "bare futex with the note of a wait, C++"
NOTE = "the note alone"
CPU, TOGETHER = "CPU of one side", "both on one core"
IDLE = "an idle reader"
IDLE_WAYS = ("log:idle", "sync:idle", "ring:idle", "pipe:idle", "udp://127.0.0.1:24517/7")
TRIPS = 10  # one in so many is made once more, to say where both sides are


def run(report: Report) -> None:
    """Each placement, everyone in turn, several rounds."""
    try:
        bare = build("plain", ("wake_bench",)) / "tests" / "wake_bench"
    except (OSError, SystemExit) as error:
        report.failed(BARE, "all", error)
        return
    count, rounds = (300, 1) if report.quick else (4_000, report.sized(5, quick=1, short=3))
    for place, (first, second, busy) in PLACES.items():
        if max((first or 0, second or 0, *busy)) >= (os.cpu_count() or 1):
            report.missing[place] = "this machine has one core"
            continue
        case = f"64 B, round trip, {place}"
        found: dict[str, list[dict[str, float]]] = {}
        for _ in range(rounds):
            for who in (BARE, NOTED, *WAYS):
                if place in ("one core", "both busy") and WAYS.get(who, {}).get("spin") == math.inf:
                    continue  # the spinner would keep the other off its core for whole time slices
                if not report.tries(who, case):
                    continue
                try:
                    one = bounded(report.limit, f"{count:,} round trips", measure, bare, who, place, count)
                except Failed as error:
                    report.failed(who, case, error)
                    continue
                found.setdefault(who, []).append(one)
        for who, runs in found.items():
            for metric in ("p50", "p99", CPU):
                report.add(case, who, metric, [one[metric] for one in runs], "µs")
            if who == NOTED:
                report.add(case, who, NOTE, [one[NOTE] for one in runs], "ns")
            report.add(case, who, TOGETHER, [one[TOGETHER] for one in runs], "% of trips")
    idle(report)
    aims(report)


def idle(report: Report) -> None:
    """Readers that fell asleep a while ago, to whom nobody sends."""
    seconds = 1.0 if report.quick else 10.0
    for uri in IDLE_WAYS:
        kind = uri.partition(":")[0] + ":"
        try:
            rest, cpu = bounded(report.limit, f"{seconds:.0f} s of rest", _rest, uri, seconds)
        except Failed as error:
            report.failed(kind, IDLE, error)
            continue
        report.add(IDLE, kind, "wake-ups", rest, "a second")
        report.add(IDLE, kind, "CPU", cpu * 1e6, "µs a second")


def _rest(uri: str, seconds: float) -> tuple[float, float]:
    """Wake-ups and seconds of CPU time of a process with one idle reader, each per second."""
    results = Results()
    with penstock.publish(uri):
        other = child("the reader", _idler, uri, seconds, results)
        found: tuple[float, float] = results.get([other])
        results.done.set()
        join([other])
    return found


def _idler(uri: str, seconds: float, results: Results) -> None:
    with penstock.subscribe(uri) as sub:
        reader = threading.Thread(target=_receive, args=(sub, seconds + 3))
        reader.start()
        time.sleep(2.0)  # its first slices are short
        before = resource.getrusage(resource.RUSAGE_SELF)
        begun = time.monotonic()
        time.sleep(seconds)
        after, passed = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begun
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        results.put(
            ((after.ru_nvcsw - before.ru_nvcsw - 1) / passed, used / passed)
        )  # one sleep is this function's own
        reader.join()
        results.wait()


def _receive(sub: Any, seconds: float) -> None:
    with contextlib.suppress(penstock.TimedOut):
        sub.recv(timeout=seconds)


def measure(bare: Any, who: str, place: str, count: int) -> dict[str, float]:
    """One run, beside what keeps cores busy."""
    first, second, busy = PLACES[place]
    everyone = [child("what keeps a core busy", _hog, core) for core in busy]
    if who in (BARE, NOTED):
        cores = [str(0 if core is None else core + 1) for core in (first, second)]
        found = json.loads(
            program(
                30,
                "its round trips",
                [bare, "--count", count, "--first", cores[0], "--second", cores[1], "--note", str(int(who == NOTED))],
            )
        )
        in_us = {metric: found[key] / 1e3 for metric, key in (("p50", "p50"), ("p99", "p99"), (CPU, "cpu"))}
        return {**in_us, TOGETHER: 100 * found["together"] / count, NOTE: found["note"]}
    return _trips(everyone, first, second, count, WAYS[who])


def _hog(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        pass


def _run_on(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})


def _echo(core: int | None, count: int, options: dict[str, Any], ready: Any, done: Results) -> None:
    _run_on(core)
    with penstock.subscribe("log:there", **options) as sub, penstock.publish("log:back") as pub:
        ready.release()
        recv, send = sub.recv, pub.send
        for _ in range(count):
            send(recv())
        where = ctypes.CDLL(None).sched_getcpu
        for _ in range(count // TRIPS):
            recv()
            send(b"%d" % where())
        done.wait()


def _trips(
    everyone: list[Any], first: int | None, second: int | None, count: int, options: dict[str, Any]
) -> dict[str, float]:
    ready, done = context.Semaphore(0), Results()
    with penstock.publish("log:there", term_length=1 << 20) as pub:
        penstock.publish("log:back", term_length=1 << 20).close()
        with penstock.subscribe("log:back", **options) as sub:
            other = child("the echo", _echo, second, count, options, ready, done)
            _run_on(first)
            until(ready, [*everyone, other])
            data, times, send, recv = os.urandom(64), [], pub.send, sub.recv
            cpu = time.process_time_ns()
            with watched([*everyone, other]):
                for _ in range(count):
                    begun = time.perf_counter_ns()
                    send(data)
                    recv()
                    times.append(time.perf_counter_ns() - begun)
                cpu = time.process_time_ns() - cpu
                where, together = ctypes.CDLL(None).sched_getcpu, 0
                for _ in range(count // TRIPS):
                    send(data)
                    together += recv() == b"%d" % where()
            done.done.set()
            join([other])
    kept = sorted(times[count // 10 :])
    return {
        "p50": statistics.median(kept) / 1e3,
        "p99": kept[len(kept) * 99 // 100] / 1e3,
        CPU: cpu / count / 1e3,
        TOGETHER: 100 * together / (count // TRIPS),
    }


def aims(report: Report) -> None:
    """Sleeping as fast as the kernel wakes; spinning only where it pays; rest where nothing happens."""
    for kind in ("log:", "sync:", "ring:", "pipe:"):
        report.at_most(IDLE, f"wake-ups of {kind}", 1.5, "a second", report.get(IDLE, kind, "wake-ups"))
    for place in PLACES:
        case = f"64 B, round trip, {place}"
        asleep, comes, _ = WAYS
        report.at_most(case, "sleeping, times a bare futex", 1.25, "×", report.ratio(case, "p50", asleep, BARE))
        trip, note = report.get(case, BARE, "p50"), report.get(case, NOTED, NOTE)
        share = None if trip is None or note is None else 100 * note / (1000 * trip / 2)
        report.at_most(case, "the note, of a bare wake-up", 1.0, "%", share)
        if place == "apart":
            report.at_most(case, "as it comes", 1.5, "µs", report.get(case, comes, "p50"))
        else:
            report.at_most(
                case, "as it comes, times without a spin", 1.3, "×", report.ratio(case, "p50", comes, asleep)
            )
