"""Do tables stay as fast as they grow? Rows per second and memory, from a million to sixteen million rows; and commit after commit by `--follow`.

Rows are fixed records of 40 bytes, and go into *messages* and the stream's table. Each number of rows is a pipeline of its own, in processes that
begin with it. With `--follow` a message is sent once the last one's row is there: how long it takes to its row, in the first tenth and in the last.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import penstock
from bench.ipc import own_channels
from bench.pipeline import (
    DTYPE,
    FOLLOW,
    LOCAL,
    ROW,
    add_latencies,
    first_line,
    fixed_records,
    follow_latencies,
    send_all,
)
from bench.report import Report
from evidence.bounded import Failed

MILLION = 1_000_000
ROWS = (1, 4, 16)  # millions
HEAP = "2g"
ENGINES = {"penstock pipeline": ("--conf", f"spark.driver.memory={HEAP}"), LOCAL: ("--engine", "local")}
CASE = "rows of fixed records"
LINES = True  # of --plot: a line for each metric


def run(report: Report) -> None:
    """Each size once, since it is long."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/dev/shm"))
    try:
        with own_channels():
            sizes = ROWS[:1] if report.quick else ROWS
            for millions in sizes:
                _grows(report, folder / f"{millions}", report.sized(millions * MILLION, quick=20_000))
            _follows(report, folder, report.sized(1200, quick=3, short=150))
    finally:
        shutil.rmtree(folder)
    aims(report, sizes)


def _grows(report: Report, folder: Path, count: int) -> None:
    archive, name = folder / "archive", f"{count // MILLION} M" if count >= MILLION else str(count)
    with (
        penstock.publish("log:rows", codec=DTYPE, term_length=1 << 24) as pub,
        penstock.Archive(archive).record("log:rows"),
    ):
        messages = fixed_records(min(count, MILLION))
        for _ in range(0, count, MILLION):
            send_all(pub, messages)
    for who, options in ENGINES.items():
        if who != LOCAL and not report.has_spark():
            continue
        command = [sys.executable, "-m", "penstock.cli", "pipeline", "--archive", str(archive), "--json", *options]
        try:
            seconds, memory = _measured([*command, "--out", str(folder / "tables")], count)
        except Failed as error:
            report.failed(who, f"{CASE}, {name}", error)
            continue
        finally:
            shutil.rmtree(folder / "tables", ignore_errors=True)
        report.add(f"{CASE}, {name}", who, "rate, start included", count / seconds, "rows/s")
        report.add(f"{CASE}, {name}", who, "memory of all its processes, at most", memory, "MB")
    shutil.rmtree(folder)


def _measured(command: list[str], count: int) -> tuple[float, float]:
    """Seconds of a program that makes `count` rows, and the most memory that it and its children had at a time."""
    begun, most = time.perf_counter(), 0.0
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed)
        while process.poll() is None:
            most = max(most, sum(_anonymous(pid) for pid in _family(process.pid)))
            time.sleep(0.05)
        seconds = time.perf_counter() - begun
        printed.seek(0)
        said = printed.read().decode(errors="replace").strip()
    if process.returncode:
        raise Failed(f"it ended with {process.returncode}: {said[-300:]}")
    rows = json.loads(said[said.index("{") :])["rows"]
    if rows != count:
        raise Failed(f"it made {rows} rows of {count}")
    return seconds, most / 1e6


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        children = " ".join(Path(f"/proc/{pid}/task/{one}/children").read_text() for one in threads)
    except OSError:  # it has ended
        return
    for child in children.split():
        yield from _family(int(child))


def _anonymous(pid: int) -> int:
    """Bytes of memory that are no file's."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def _follows(report: Report, folder: Path, seconds: int) -> None:
    """A pipeline that follows a recording, with one message after the other."""
    if not report.has_spark():
        return
    from penstock.spark import session

    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    spark, end = session("bench", spark__driver__memory=HEAP), time.monotonic() + seconds
    try:
        took = follow_latencies(spark, folder / "follow", lambda rows: rows > 1 and time.monotonic() > end)
    except Exception as error:
        report.failed(FOLLOW, ROW, Failed(first_line(error)))
        return
    finally:
        spark.stop()
    took = took[5:] if len(took) > 20 else took  # the first ones start Python processes
    tenth = max(len(took) // 10, 1)
    add_latencies(report, f"{ROW}, first tenth", took[:tenth])
    add_latencies(report, f"{ROW}, last tenth", took[-tenth:])
    report.add(ROW, FOLLOW, "commits with rows", len(took), "")


def aims(report: Report, sizes: tuple[int, ...]) -> None:
    """Linear in rows, flat in memory, from four million rows on, and in time."""
    first, second, last = (f"{CASE}, {one} M" for one in (sizes[0], sizes[len(sizes) // 2], sizes[-1]))
    rate, memory = "rate, start included", "memory of all its processes, at most"
    for who in ENGINES:
        report.at_least(last, f"{who}: rate, of the first one's", 1, "×", _times(report, who, rate, first, last))
        report.at_most(last, f"{who}: memory, of 4 M's", 1.25, "×", _times(report, who, memory, second, last))
    for metric, limit in (("p50", 0.3), ("p99", 1.0)):
        report.at_most(f"{ROW}, last tenth", metric, limit, "s", report.get(f"{ROW}, last tenth", FOLLOW, metric))


def _times(report: Report, who: str, metric: str, first: str, last: str) -> float | None:
    """How many times as much it is in the last case as in the first one."""
    before, after = report.get(first, who, metric), report.get(last, who, metric)
    return None if before is None or after is None else after / before
