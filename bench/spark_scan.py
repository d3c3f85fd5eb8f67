"""How fast does Spark read an archive, against uncompressed Parquet of the same rows in the same session?"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import penstock
from bench.log_ipc import own_channels
from bench.report import Report

STREAMS = 4
FIELDS = ("stream", "session", "position", "timestamp_ns", "payload")


def run(report: Report) -> None:
    """One archive, one session, everyone in turn."""
    try:
        import pyspark  # noqa: F401

        from penstock.spark import session
        from penstock.spark.jvm import find_java

        find_java()
    except (ImportError, penstock.NotFound) as error:
        report.missing["spark"] = str(error)
        return
    count, rounds = (20_000, 1) if report.quick else (5_000_000, 3)
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/dev/shm"))
    try:
        with own_channels():
            span = _fill(folder / "archive", count)
        spark = session("bench", spark__driver__memory="4g")
        try:
            _scans(report, spark, folder, rounds, span)
            _tables(report, spark, folder, rounds)
        finally:
            spark.stop()
        _cold_start(report, folder, 1 if report.quick else 3)
    finally:
        shutil.rmtree(folder)
    _aims(report)


def _fill(archive: Path, count: int) -> tuple[int, int]:
    """An archive of `count` messages of 50 to 150 bytes on several streams; the first and last send time."""
    rng = random.Random(1)
    names = [f"log:s{i}" for i in range(STREAMS)]
    blob = rng.randbytes(1 << 16)
    batch = [blob[at : at + rng.randrange(50, 151)] for at in (rng.randrange(1 << 15) for _ in range(1000))]
    pubs = [penstock.publish(name, term_length=1 << 24) for name in names]
    opened = penstock.Archive(archive)
    with opened.record(names):
        for _ in range(count // 1000 // STREAMS):
            for pub in pubs:
                left = batch
                while left:
                    left = left[pub.offer_many(left) :]
                    if left:
                        pub.send(left[0])
                        left = left[1:]
    infos = opened.list()
    return min(i.time_min for i in infos), max(i.time_max for i in infos)


def _timed(rounds: int, jobs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each job, run in turn; one round to warm up."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            begun = time.perf_counter()
            job()
            if number or rounds == 1:
                found[name].append(time.perf_counter() - begun)
    return found


def _scans(report: Report, spark: Any, folder: Path, rounds: int, span: tuple[int, int]) -> None:
    from penstock.spark import load

    archive, parquet = folder / "archive", folder / "rows.parquet"
    load(spark, archive, columns=FIELDS).write.option("compression", "none").parquet(str(parquet))
    spark.dataSource.register(_tuple_source())
    count = load(spark, archive, columns=["stream"]).count()
    one_percent = span[0] + (span[1] - span[0]) // 2
    width = (span[1] - span[0]) // 100

    def full(frame: Any) -> None:  # every value of every row is looked at
        frame.selectExpr(f"bit_xor(xxhash64({', '.join(FIELDS)}))").collect()

    def grouped(frame: Any) -> None:
        frame.groupBy("stream").count().collect()

    jobs = {
        "group-by|penstock": lambda: grouped(load(spark, archive, columns=["stream"])),
        "group-by|parquet": lambda: grouped(spark.read.parquet(str(parquet))),
        "group-by|tuple source": lambda: grouped(spark.read.format("penstock_tuples").load(str(archive))),
        "full rows|penstock": lambda: full(load(spark, archive, columns=FIELDS)),
        "full rows|parquet": lambda: full(spark.read.parquet(str(parquet))),
        "full rows|tuple source": lambda: full(spark.read.format("penstock_tuples").load(str(archive))),
        "1 % of the time|penstock": lambda: full(
            load(spark, archive, columns=FIELDS, since=one_percent, until=one_percent + width)
        ),
    }
    for name, seconds in _timed(rounds, jobs).items():
        case, who = name.split("|")
        report.add(case, who, "time", seconds, "s")
        if "%" not in case:
            report.add(case, who, "rate", [count / s for s in seconds], "rows/s")


def _tuple_source() -> type:
    """What a data source without Arrow batches costs: the same rows as Python tuples."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class TupleReader(DataSourceReader):
        def __init__(self, path: str) -> None:
            self.path = path

        def partitions(self) -> list[InputPartition]:
            from penstock.record.plan import plan

            return [InputPartition(planned) for planned in plan(penstock.Archive(self.path, create=False))]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            planned = partition.value
            scanner = penstock.Archive(self.path, create=False).scan(
                planned.recording, columns=FIELDS, start=planned.start, end=planned.end
            )
            for batch in scanner:
                yield from zip(*[batch.column(name).to_pylist() for name in FIELDS], strict=True)

    class TupleSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "penstock_tuples"

        def schema(self) -> str:
            return "stream STRING, session INT, position BIGINT, timestamp_ns BIGINT, payload BINARY"

        def reader(self, schema: Any) -> DataSourceReader:
            return TupleReader(self.options["path"])

    return TupleSource


def _tables(report: Report, spark: Any, folder: Path, rounds: int) -> None:
    from penstock.spark import load, pipeline

    def ours() -> None:
        shutil.rmtree(folder / "tables", ignore_errors=True)
        pipeline.run(spark, folder / "archive", folder / "tables", tables=("messages",), compression="none")

    def theirs() -> None:
        frame = load(spark, folder / "archive")
        frame.write.mode("overwrite").option("compression", "none").parquet(str(folder / "spark-tables"))

    for who, seconds in _timed(rounds, {"penstock pipeline": ours, "Spark's writer": theirs}).items():
        report.add("table messages", who, "time", seconds, "s")


PLAIN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
spark.range(1000).write.mode("overwrite").parquet({out!r})
spark.stop()
"""


def _cold_start(report: Report, folder: Path, rounds: int) -> None:
    """From nothing to written tables of a small archive, as new processes."""
    with own_channels(), penstock.publish("log:small") as pub, penstock.Archive(folder / "small").record("log:small"):
        for i in range(1000):
            pub.send(b"%d" % i)
    command = [sys.executable, "-m", "penstock.cli", "pipeline", "--archive", str(folder / "small"), "--json", "--out"]
    ways = {
        "penstock pipeline": [*command, str(folder / "cold")],
        "penstock pipeline --master local[*]": [*command, str(folder / "cold-spark"), "--master", "local[*]"],
        "plain PySpark's first job": [sys.executable, "-c", PLAIN.format(out=str(folder / "plain"))],
    }
    for _ in range(rounds):
        for who, arguments in ways.items():
            shutil.rmtree(folder / "cold", ignore_errors=True)
            shutil.rmtree(folder / "cold-spark", ignore_errors=True)
            begun = time.perf_counter()
            done = subprocess.run(arguments, capture_output=True, text=True, check=True)
            if who.startswith("penstock"):
                assert json.loads(done.stdout)["total_rows"] == 1000
            report.add("cold start", who, "time", time.perf_counter() - begun, "s")


def _aims(report: Report) -> None:
    def faster(case: str, ours: str, theirs: str) -> float | None:
        a, b = report.get(case, ours, "time"), report.get(case, theirs, "time")
        return None if not a or not b else b / a

    report.at_least("group-by", "of Parquet's rate", 0.7, "×", faster("group-by", "penstock", "parquet"))
    report.at_least("full rows", "of Parquet's rate", 0.8, "×", faster("full rows", "penstock", "parquet"))
    report.at_least("group-by", "of a tuple source's rate", 4, "×", faster("group-by", "penstock", "tuple source"))
    report.at_least("full rows", "of a tuple source's rate", 4, "×", faster("full rows", "penstock", "tuple source"))
    report.at_least(
        "table messages",
        "of Spark's writer's rate",
        2.5,
        "×",
        faster("table messages", "penstock pipeline", "Spark's writer"),
    )
    part, whole = report.get("1 % of the time", "penstock", "time"), report.get("full rows", "penstock", "time")
    report.at_most(
        "1 % of the time", "of a full scan's time", 0.1, "×", None if not part or not whole else part / whole
    )
    ratio = faster("cold start", "penstock pipeline", "plain PySpark's first job")
    report.at_most("cold start", "of plain PySpark's first job", 0.6, "×", None if not ratio else 1 / ratio)
