"""What does a message cost an end in C++, and what does it cost one in Python? CPU time on both sides, in the four ways to put them together."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import penstock
from bench.ipc import own_channels
from bench.report import Report
from evidence.bounded import Failed, Results, bounded, child, join
from evidence.build import build

KINDS = ("log", "ring", "pipe")
LIMIT = 60
SIZE = 64  # bytes


def run(report: Report) -> None:
    """All of it, each way in turn, medians."""
    try:
        program: Path | None = build("plain", ("front_bench",)) / "tests" / "front_bench"
    except (OSError, SystemExit) as error:
        report.missing["C++ ends"] = str(error)
        program = None
    languages = ("Python",) if program is None else ("Python", "C++")
    rounds, count = report.sized(5, quick=1, short=3), report.sized(1_000_000, quick=2_000, short=400_000)
    with own_channels():
        for kind in KINDS:
            found: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for _ in range(rounds):
                for ends in ((writer, reader) for writer in languages for reader in languages):
                    who, case = f"{ends[0]} to {ends[1]}", f"{kind}, {SIZE} B"
                    if not report.tries(who, case):
                        continue
                    try:
                        spent = bounded(report.limit, f"{count:,} messages", _both, program, ends, kind, count)
                        found.setdefault(ends, []).append(spent)
                    except Failed as error:
                        report.failed(who, case, error)
            for (writer, reader), spent in found.items():
                for side, values in zip(("send", "receive"), zip(*spent, strict=True), strict=True):
                    report.add(f"{kind}, {SIZE} B", f"{writer} to {reader}", f"CPU per {side}", list(values), "ns")


def _both(program: Path | None, languages: tuple[str, str], kind: str, count: int) -> tuple[float, float]:
    """CPU nanoseconds of a send and of a receive, in two processes."""
    uri, sent, received = f"{kind}:cpp", Results(), Results()
    ends = [
        child(f"the {what}er", _cpp if language == "C++" else _python, program, what, uri, count, results)
        for what, language, results in (("recv", languages[1], received), ("send", languages[0], sent))
    ]
    found = sent.get(ends), received.get(ends)
    sent.done.set()
    received.done.set()
    join(ends)
    return found


def _cpp(program: Path, what: str, uri: str, count: int, results: Results) -> None:
    done = subprocess.run([program, what, uri, str(count)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    results.put(float(done.stdout))


def _python(_: Any, what: str, uri: str, count: int, results: Results) -> None:
    results.put(_send(uri, count) if what == "send" else _receive(uri))


def _send(uri: str, count: int) -> float:
    message = bytes(SIZE)
    with penstock.publish(uri) as pub:
        pub.wait_for_readers(timeout=LIMIT)
        begun = time.process_time_ns()
        for _ in range(count):
            pub.send(message, LIMIT)
        return (time.process_time_ns() - begun) / count


def _receive(uri: str) -> float:
    """Messages that it was too slow for do not count."""
    got = 0
    with penstock.subscribe(uri, until_end=True) as sub:
        sub.recv(LIMIT)
        begun = time.process_time_ns()
        for _ in sub:
            got += 1
        return (time.process_time_ns() - begun) / max(got, 1)
