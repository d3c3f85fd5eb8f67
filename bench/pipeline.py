"""How fast does the pipeline make tables, against Spark's own writer of the same decoded rows; and how soon does it begin?"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from bench.ipc import own_channels
from bench.report import Report
from bench.spark_jobs import in_turn
from evidence.bounded import Failed, bounded, ending

COLD_LIMIT = 240  # seconds
DTYPE = np.dtype([("t", "f8"), ("id", "i4"), ("x", "f4"), ("y", "f4"), ("z", "f4"), ("tag", "S8")])
JSON_COLUMNS = "t DOUBLE, id BIGINT, speed DOUBLE, name STRING, ok BOOLEAN"
NEW = 100
BATCHES, BATCHES_SHORT, BATCHES_QUICK = 20, 12, 5
FIRST_TABLE = "to the first table"
LOCAL = "penstock pipeline --engine local"
FOLLOW = "penstock pipeline --follow"
ROW = "from send to a row in a table"
CHANNELS = 1500
BARE = "delta-rs alone"
FIRST = 3  # batches that warm a query up, and are not counted


def run(report: Report) -> None:
    """In one warm session: tables of two archives, a few new messages, micro-batches. In new processes: cold starts."""
    if not report.has_spark():
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/dev/shm"))
    try:
        with own_channels():
            try:
                seconds = 600 if report.quick else 2400
                end = time.monotonic() + seconds - 60
                found = bounded(seconds, "its tables", _in_spark, report.quick, report.short, folder, end)
                report.results += found.results
                report.missing |= found.missing
            except Failed as error:
                report.failed("Spark", "tables", error)
        _cold_start(report, folder, report.sized(3, quick=1, short=2))
    finally:
        shutil.rmtree(folder)
    aims(report)


def _in_spark(quick: bool, short: bool, folder: Path, end: float) -> Report:
    """Everything that one session measures, by `end`: rows that do not fit are missing, and the others are there."""
    from penstock.spark import session

    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    report = Report("pipeline", quick=quick, short=short)
    spark = session("bench", spark__driver__memory="4g")
    try:
        for kind, full in (("dtype", 3_000_000), ("json", 1_000_000)):
            count = report.sized(full, quick=20_000, short=full // 2)
            _tables(report, spark, folder, kind, count, report.sized(3, quick=1, short=2))
        _many_channels(report, spark, folder)
        _micro_batches(report, spark, folder, end)
        _latency(report, spark, folder, end)
    finally:
        spark.stop()
    return report


def fixed_records(count: int) -> list[bytes]:
    """Encoded messages of `DTYPE`, all different."""
    rows = np.zeros(count, DTYPE)
    rows["t"], rows["id"], rows["x"] = np.arange(count) / 1000, np.arange(count), np.arange(count) % 97
    rows["tag"] = [b"car%d" % (number % 50) for number in range(count)]
    return [row.tobytes() for row in rows]


def _messages(kind: str, count: int) -> list[bytes]:
    """Encoded messages, all different."""
    rng = random.Random(1)
    if kind == "dtype":
        return fixed_records(count)
    return [
        b'{"t":%f,"id":%d,"speed":%f,"name":"car%d","ok":%s}'
        % (number / 1000, number, rng.random() * 200, number % 50, b"true" if number % 3 else b"false")
        for number in range(count)
    ]


def send_all(pub: Any, messages: list[bytes]) -> None:
    """Encoded messages, as they are."""
    left = messages
    send = penstock._native.core.Publication.send
    for message in left:
        send(pub, message)


def _tables(report: Report, spark: Any, folder: Path, kind: str, count: int, rounds: int) -> None:
    """*messages* and the stream's table of one archive, again each time; then of a few messages more."""
    from penstock.spark import load, pipeline

    case, name, archive = f"tables of {kind} messages", f"log:{kind}", folder / kind
    codec = DTYPE if kind == "dtype" else "json"
    messages = _messages(kind, count)
    with penstock.publish(name, codec=codec, term_length=1 << 24) as pub:
        with penstock.Archive(archive).record(name):
            send_all(pub, messages)
        out, plain, decoded = folder / "tables", folder / "plain", folder / f"{kind}-decoded"
        _write_decoded(decoded, kind, messages, name)

        def ours(session: Any) -> None:
            shutil.rmtree(out, ignore_errors=True)
            outcome = pipeline.run(session, archive, out)
            assert outcome.rows == count, outcome

        def theirs() -> None:
            if kind == "dtype":  # Spark cannot decode them: it is given decoded rows
                frame = spark.read.parquet(str(decoded))
            else:
                parsed = f"from_json(cast(payload as string), '{JSON_COLUMNS}') as found"
                frame = load(spark, archive).selectExpr("*", parsed).select("*", "found.*").drop("found")
            frame.write.mode("overwrite").parquet(str(plain))

        ways: dict[tuple[str, str], Any] = {
            (case, LOCAL): lambda: ours(None),
            (case, "Spark's writer"): theirs,
            (case, "penstock pipeline"): lambda: ours(spark),  # the last: `_few_more` goes on with its tables
        }
        for (_, who), found in in_turn(report, spark, rounds, ways).items():
            report.add(case, who, "rate", [count / s for s in found], "rows/s")
        if kind == "dtype" and report.get(case, "penstock pipeline", "rate"):
            _few_more(report, spark, pub, name, archive, out, count, messages[:NEW])


def _write_decoded(path: Path, kind: str, messages: list[bytes], name: str) -> None:
    """The decoded rows of the dtype's messages as Spark would be given them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind != "dtype":
        return
    rows = np.frombuffer(b"".join(messages), DTYPE)
    columns = {name: pa.array(rows[name]) for name in DTYPE.names or ()}
    count = np.arange(len(rows))
    common = {
        "stream": pa.array([name] * len(rows)),
        "position": count * 96,
        "timestamp_ns": count,
        "payload": messages,
    }
    pq.write_table(pa.table({**common, **columns}), path, compression="none")


def _few_more(
    report: Report, spark: Any, pub: Any, name: str, archive: Path, out: Path, count: int, messages: list[bytes]
) -> None:
    """The time that a run takes for a few new messages on a long stream, and how much of it is work of this process."""
    from penstock.spark import pipeline

    seconds, work = [], []
    for number in range(report.sized(3, quick=1)):
        with penstock.Archive(archive).record(name, extend=True):
            send_all(pub, messages)
        begun, busy = time.perf_counter(), time.process_time()
        outcome = pipeline.run(spark, archive, out)
        seconds.append(time.perf_counter() - begun)
        work.append(time.process_time() - busy)
        assert outcome.rows == len(messages), outcome
        assert outcome.total_rows == count + (number + 1) * len(messages), outcome
    case = f"{NEW} new messages on a long stream"
    report.add(case, BARE, "work per commit", _bare_commits(out.parent / "bare"), "s")
    report.add(case, "penstock pipeline", "time", seconds, "s")
    report.add(case, "penstock pipeline", "of it work of the driver's Python", work, "s")


def _many_channels(report: Report, spark: Any, folder: Path) -> None:
    """The time that a run takes for one new message among many channels."""
    from penstock.spark import pipeline

    count = report.sized(CHANNELS, quick=100, short=500)
    archive, out = penstock.Archive(folder / "many"), folder / "many-tables"
    for number in range(count):
        archive.append(f"log:many/{number}", [{"i": 0}], codec="json")
    pipeline.run(None, archive.path, out)
    case = f"one new message among {count} channels"
    found: dict[str, list[float]] = {LOCAL: [], "penstock pipeline": []}
    for number in range(report.sized(3, quick=1)):
        for who, session in ((LOCAL, None), ("penstock pipeline", spark)):
            archive.append(f"log:many/{number}", [{"i": 1}], codec="json")
            begun = time.perf_counter()
            outcome = pipeline.run(session, archive.path, out)
            found[who].append(time.perf_counter() - begun)
            assert outcome.rows == 1, outcome
    for who, seconds in found.items():
        report.add(case, who, "time", seconds, "s")


def _batches(report: Report) -> int:
    return report.sized(BATCHES, quick=BATCHES_QUICK, short=BATCHES_SHORT)


def _bare_commits(folder: Path) -> list[float]:
    """Seconds of work that delta-rs takes to add few rows to a table of its own."""
    import deltalake
    import pyarrow as pa

    rows, found = pa.table({"position": list(range(NEW))}), list[float]()
    for _ in range(10):
        busy = time.process_time()
        deltalake.write_deltalake(str(folder), rows, mode="append")
        found.append(time.process_time() - busy)
    return found


def _patience(report: Report, end: float) -> float:
    """Until when one query may take to make its batches. The first one starts Python processes."""
    return min(time.monotonic() + report.limit * 6, end)


def _micro_batches(report: Report, spark: Any, folder: Path, end: float) -> None:
    """A query's micro-batch of one row, of this library's source and of the built-in one that makes rows itself; and onto a channel."""
    case, wanted = "micro-batch of one row", _batches(report)

    def measure(frame: Any, feed: Any, sink: dict[str, str]) -> list[float]:
        writer = frame.writeStream.format("penstock" if sink else "noop").options(**sink)
        query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=folder)).start()
        try:
            seen: dict[int, float] = {}
            limit, fed = _patience(report, end), -1
            while len(seen) < wanted and time.monotonic() < limit and query.isActive:
                if len(seen) > fed:  # the batch before is done
                    fed = len(seen)
                    feed()
                for done in query.recentProgress:
                    if done["numInputRows"]:
                        seen[done["batchId"]] = done["durationMs"]["triggerExecution"] / 1000
                query.awaitTermination(0.01)
            if query.exception() is not None:
                raise Failed(str(query.exception()).splitlines()[0])
            if len(seen) <= FIRST:
                raise Failed(f"made only {len(seen)} batches in time")
            return list(seen.values())[FIRST:]
        finally:
            query.stop()

    with penstock.publish("log:one") as pub, penstock.Archive(folder / "one").record("log:one"):
        pub.send(b"first")

        def one_more() -> None:
            pub.send(b"one")

        def recorded() -> Any:
            return spark.readStream.format("penstock").load(str(folder / "one"))

        ways = {
            "penstock": (recorded, one_more, {}),
            "penstock, onto a channel": (recorded, one_more, {"channel": "log:two"}),
            "Spark's rate source": (
                lambda: spark.readStream.format("rate").option("rowsPerSecond", 1).load(),
                lambda: None,
                {},
            ),
        }
        for who, (frame, feed, sink) in ways.items():
            try:
                found = measure(frame(), feed, sink)
                report.add(case, who, "time", statistics.median(found), "s")
            except Exception as error:  # Spark's, of a version that has no such source
                report.failed(who, case, Failed(first_line(error)))


def follow_latencies(spark: Any, folder: Path, ends: Callable[[int], bool]) -> list[float]:
    """Seconds from `send` to the commit of the row, for messages that are sent one by one, each once the last one's row is there.

    folder: of the archive and the tables, which are made. ends: whether it ends, asked with the number of rows so far. A pipeline follows
    the live recording (`--follow`).
    """
    from penstock.spark.pipeline import follow

    took: list[float] = []
    sent = 0.0

    def until(wait: float) -> bool:
        nonlocal sent
        if not sent:
            sent = time.perf_counter()
            pub.send(b"one")
        time.sleep(wait)
        return ends(len(took))

    def step(outcome: penstock.tables.Outcome) -> None:
        nonlocal sent
        if outcome.rows and sent:
            took.append(time.perf_counter() - sent)
            sent = 0.0

    with penstock.publish("log:late") as pub, penstock.Archive(folder / "archive").record("log:late"):
        follow(spark, folder / "archive", folder / "tables", every=0, until=until, on_step=step)
    return took


def add_latencies(report: Report, case: str, took: list[float]) -> None:
    """Their median and 99th percentile."""
    report.add(case, FOLLOW, "p50", statistics.median(took), "s")
    report.add(case, FOLLOW, "p99", sorted(took)[int(len(took) * 0.99)], "s")


def _latency(report: Report, spark: Any, folder: Path, end: float) -> None:
    limit, wanted = _patience(report, end), _batches(report)
    try:
        took = follow_latencies(spark, folder / "late", lambda rows: rows >= wanted or time.monotonic() > limit)
        if len(took) < 5:
            raise Failed(f"only {len(took)} messages came in time")
        add_latencies(report, ROW, took[2:])
    except Exception as error:
        report.failed(FOLLOW, ROW, Failed(first_line(error)))


def first_line(error: Exception) -> str:
    """What an error of Spark says first."""
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


PLAIN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
spark.range(1000).write.mode("overwrite").parquet({out!r})
spark.stop()
"""


def _cold_start(report: Report, folder: Path, rounds: int) -> None:
    """From the start of a process to the first table, and to its end."""
    with own_channels(), penstock.publish("log:small") as pub, penstock.Archive(folder / "small").record("log:small"):
        for i in range(1000):
            pub.send(b"%d" % i)
    out, plain = folder / "cold", folder / "plain-cold"
    command = [sys.executable, "-m", "penstock.cli", "pipeline", "--archive", str(folder / "small"), "--json", "--out"]
    ways = {  # the command, its folder, and the file that says that its first table is committed
        "penstock pipeline": ([*command, str(out)], out, "messages/_delta_log/00000000000000000000.json"),
        LOCAL: ([*command, str(out), "--engine", "local"], out, "messages/_delta_log/00000000000000000000.json"),
        "plain PySpark's first job": ([sys.executable, "-c", PLAIN.format(out=str(plain))], plain, "_SUCCESS"),
    }
    found: dict[str, list[tuple[float, float]]] = {who: [] for who in ways}
    for _ in range(rounds):
        for who, (arguments, made, sign) in ways.items():
            if not report.tries(who, "cold start"):
                continue
            shutil.rmtree(made, ignore_errors=True)
            try:
                found[who].append(bounded(COLD_LIMIT, "its first job", _until_there, arguments, made / sign))
            except Failed as error:
                report.failed(who, "cold start", error)
    for who, times in found.items():
        if times:
            report.add("cold start", who, FIRST_TABLE, [first for first, _ in times], "s")
            report.add("cold start", who, "to the process' end", [end for _, end in times], "s")


def _until_there(command: list[str], sign: Path) -> tuple[float, float]:
    """Seconds from a program's start until a file is there, and until it has ended."""
    begun, first = time.perf_counter(), None
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=printed)
        while process.poll() is None:
            if first is None and sign.exists():
                first = time.perf_counter() - begun
            time.sleep(0.005)
        ended = time.perf_counter() - begun
        printed.seek(0)
        if process.returncode or not sign.exists():
            said = printed.read()[-300:].decode(errors="replace").strip()
            raise Failed(f"{command[0]} died: {ending(process.returncode)}: {said}")
    return first or ended, ended


def aims(report: Report) -> None:
    """The aims of the pipeline."""
    ours, theirs = "penstock pipeline", "Spark's writer"
    for kind, rate in (("dtype", 1.5e6), ("json", 0.7e6)):
        case = f"tables of {kind} messages"
        report.at_least(case, "rate", rate, "rows/s", report.get(case, ours, "rate"))
        report.at_least(case, "of Spark's own writer's rate", 3, "×", report.ratio(case, "rate", ours, theirs))
    case = f"{NEW} new messages on a long stream"
    metric = "of it work of the driver's Python"
    report.at_most(case, metric, 0.1, "s", report.get(case, ours, metric))
    case = f"one new message among {report.sized(CHANNELS, quick=100, short=500)} channels"
    report.at_most(case, "time", 1, "s", report.get(case, ours, "time"))
    case = "micro-batch of one row"
    for who, metric in (("penstock", ""), ("penstock, onto a channel", ", onto a channel")):
        ratio = report.ratio(case, "time", who, "Spark's rate source")
        report.at_most(case, f"of the rate source's{metric}", 2, "×", ratio)
    for metric, limit in (("p50", 0.3), ("p99", 1)):
        report.at_most(ROW, metric, limit, "s", report.get(ROW, FOLLOW, metric))
    end = "to the process' end"
    ratio = report.ratio("cold start", end, ours, "plain PySpark's first job")
    report.at_most("cold start", "of plain PySpark's first job", 1.05, "×", ratio)
    report.at_most("cold start", "--engine local", 1.5, "s", report.get("cold start", LOCAL, end))
