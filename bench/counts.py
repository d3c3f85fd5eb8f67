"""Does a call cost more when there is more of everything? 1 to 10,000 channels, to 1,000 members, to 100,000 recordings, to 10,000 streams of tables.

CPU time and memory. Each count has a process of its own. Where the whole is linear, what it takes for each one is flat. `--plot` draws a panel for each thing.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from bench.report import Report
from bench.sparse import SMALL, many, record
from evidence.bounded import Failed, bounded
from penstock.record import plan
from penstock.tables.pipeline import run as bring

CALL, LISTED, MEMORY, HANDLES, RUN = "a call", "listed, for each", "memory, for each", "open, for each", "a run"
UNITS = {CALL: "µs", LISTED: "µs", MEMORY: "KiB", HANDLES: "", RUN: "ms for each"}
COUNTS = {"channels": 10_000, "members": 1_000, "recordings": 100_000, "streams": 10_000}  # from 1, by tens
SHORT = {**COUNTS, "recordings": 10_000, "streams": 1_500}
SECONDS = 1_500  # that a count may take
MANY: dict[str, Any] = {"capacity": 64 << 10, "max_members": 1024}
KINDS = {"log": {**SMALL, "max_members": 1024}, "ring": MANY, "sync": {**MANY, "max_members": 512}}
KINDS |= {"pipe": {**MANY, "max_pipes": 1024}, "frames": {"shape": (64,), "buffers": 4, "max_members": 1024}}
TIMES = 2.0  # a call, and what is for each one: at most as much as with a tenth as many
LINES = True  # of --plot: a line for each metric

Found = dict[str, dict[str, float]]  # a panel's lines


def run(report: Report) -> None:
    """Each count of each thing, then what was promised."""
    measures: dict[str, Callable[..., Found]] = {"channels": channels, "recordings": recordings, "streams": streams}
    for thing, most in (SHORT if report.short else COUNTS).items():
        counts = [count for power in range(6, -1, -1) if (count := most // 10**power)][: 2 if report.quick else None]
        for count, kind in itertools.product(counts, KINDS if thing == "members" else [""]):
            measure = functools.partial(members, kind=kind) if kind else measures[thing]
            try:
                found = bounded(SECONDS, "its count", measure, count)
            except Failed as error:
                report.failed(kind or thing, f"{count:,} {thing}", error)
                continue
            for panel, costs in found.items():
                for metric, value in costs.items():
                    report.add(f"{thing}: {panel}", f"{count:,}", metric, value, UNITS.get(panel, "µs"))
        before, last = (f"{count:,}" for count in counts[-2:])
        for case, metric in dict.fromkeys((r.case, r.metric) for r in report.results if r.case.startswith(thing)):
            less, more = report.get(case, before, metric), report.get(case, last, metric)
            grown = more / less if less and more is not None else None
            report.at_most(case, f"{metric}: {last}, times {before}", TIMES, "×", grown)


def cost(call: Callable[[], Any], rounds: int = 9, clock: Callable[[], int] = time.thread_time_ns) -> float:
    """CPU time of a call in µs, a median."""
    taken = []
    for _ in range(rounds):
        begun = clock()
        call()
        taken.append(clock() - begun)
    return statistics.median(taken) / 1e3


def child(*arguments: str) -> float:
    """CPU time of `penstock ...` in µs, beyond that of its start."""
    used = [sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])]
    for command in (["--version"], arguments):
        subprocess.run([sys.executable, "-m", "penstock.cli", *command], stdout=subprocess.DEVNULL, check=True)
        used.append(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]))
    return (used[2] - 2 * used[1] + used[0]) * 1e6


def memory() -> float:
    """KiB of this process that are no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(one.split()[1]) for one in lines if one.startswith("RssAnon"))


def on_disk(folder: str | Path) -> float:
    """KiB that the files in a folder really take."""
    return sum(os.stat(Path(at) / name).st_blocks for at, _, names in os.walk(folder) for name in names) / 2


def channels(count: int) -> Found:
    """A publication of each, as far as descriptors go: the others are closed. Then one more, with its subscription, and a list."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    penstock.publish("log:first", **SMALL).close()
    before, held = memory(), list[Any]()
    for number in range(1, count):
        try:
            held.append(penstock.publish(f"log:counts/{number}", **SMALL))
        except penstock.SystemFailure as error:
            if error.errno != errno.EMFILE:
                raise
            while most - len(held) < 100:
                held.pop().close()
            penstock.publish(f"log:counts/{number}", **SMALL).close()
    some, descriptors = max(len(held), 1), len(os.listdir("/proc/self/fd"))
    found = {
        MEMORY: {"process": max(memory() - before, 0) / some, "file": on_disk(os.environ["PENSTOCK_DIR"]) / count},
        HANDLES: {"descriptors": descriptors / some},
        LISTED: {"list_channels": cost(penstock.list_channels, 3) / count, "penstock ls": child("ls") / count},
    }
    with penstock.publish("log:more", **SMALL) as pub, penstock.subscribe("log:more") as sub:
        found[CALL] = {
            "publish one more": cost(
                lambda: [penstock.publish("log:one", **SMALL).close(), penstock.remove("log:one")]
            ),
            "publish to one": cost(lambda: penstock.publish("log:first").close()),
            "subscribe to one": cost(lambda: penstock.subscribe("log:first").close()),
            "send and receive": cost(lambda: (pub.send(b"x" * 64), sub.try_recv()), 200),
        }
    return found


def members(count: int, kind: str) -> Found:
    """A channel with so many readers, or members of a sync queue; then a send, one more, and its status. The process has them all."""
    channel, count = f"{kind}:counts", min(count, KINDS[kind]["max_members"] - 4)
    begin, join = (penstock.join, penstock.join) if kind == "sync" else (penstock.publish, penstock.subscribe)
    first: Any = begin(channel, **KINDS[kind])
    join(channel).close()
    before = memory()
    held = [join(channel) for _ in range(count)]
    private = max(memory() - before, 0) / len(held)
    send = (lambda: first.acquire().commit()) if kind == "frames" else lambda: first.send(b"x" * 64)
    found = {"one sends": cost(send, 200), "one more joins and leaves": cost(lambda: join(channel).close())}
    found |= {LISTED: cost(lambda: penstock.inspect(channel)) / count, MEMORY: private}
    return {panel: {kind: value} for panel, value in found.items()}


def recordings(count: int) -> Found:
    """What is of one recording or of one stream; and what reads all of an archive, for each recording."""
    with many(count) as archive:
        place, disk, rounds = archive.path, on_disk(archive.path) / count, 3 if count <= 1_000 else 1
        before = memory()
        listed = archive.list()
        found = {
            MEMORY: {"list": max(memory() - before, 0) / len(listed), "files": disk},
            LISTED: {
                "list": cost(archive.list, rounds) / count,
                "plan": cost(lambda: plan(penstock.Archive(place)), rounds) / count,
                "expire, none is due": cost(lambda: archive.expire(max_age="1000d"), rounds) / count,
                "penstock recordings": child("recordings", str(place)) / count,
            },
        }
        more, ids = iter(range(100)), iter(range(1, count + 1))
        found[CALL] = {
            "open": cost(lambda: penstock.Archive(place)),
            "find by number": cost(lambda: archive.find(count)),
            "find newest of channel": cost(lambda: archive.find(f"log:c{count // 10}")),
            "plan one stream": cost(lambda: plan(archive, channels={f"log:c{count // 20}"})),
            "append": cost(lambda: archive.append("log:more", [b"1"])),
            "begin one more": cost(lambda: record(archive, [f"log:more{next(more)}"])),
            "purge one": cost(lambda: archive.purge(next(ids)), min(count, 21)),
        }
        return found


def streams(count: int) -> Found:
    """As many channels recorded and made tables of, by this machine; then one message more, and a second run."""
    first, folder, clock = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp()), time.process_time_ns
    record(penstock.Archive(first / "archive"), ["log:first"])
    bring(first / "archive", first / "tables")  # loads what a run needs
    archive, names = penstock.Archive(folder / "archive"), [f"log:s{n}" for n in range(count)]
    costs = {"record": cost(lambda: record(archive, names), 1, clock)}
    before = memory()
    costs["first run"] = cost(lambda: bring(folder / "archive", folder / "tables"), 1, clock)
    held = {
        "first run, private": max(memory() - before, 0) / count,
        "tables' files": on_disk(folder / "tables") / count,
    }
    record(archive, names[:1])
    costs["run with news in one"] = cost(lambda: bring(folder / "archive", folder / "tables"), 1, clock)
    return {RUN: {what: value / count / 1e3 for what, value in costs.items()}, MEMORY: held}
