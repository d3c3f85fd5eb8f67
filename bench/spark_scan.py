"""How fast does Spark read an archive, against uncompressed Parquet of the same rows in the same session?

The pipeline is another question.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
from bench.ipc import own_channels
from bench.report import Report
from bench.spark_jobs import in_turn
from evidence.bounded import Failed, bounded

STREAMS = 4
ALONE, NOTHING, LISTED = "without Spark, one core", "spark.range, 100 rows", "penstock recordings, a process"
FIELDS = ("stream", "session", "position", "timestamp_ns", "payload")


def run(report: Report) -> None:
    """One archive, one session, everyone in turn."""
    if not report.has_spark():
        return
    count, rounds = report.sized(10_000_000, quick=20_000, short=3_000_000), report.sized(3, quick=1)
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir="/dev/shm"))
    try:
        with own_channels():
            span = _fill(folder / "archive", count)
        try:
            found = bounded(600 if report.quick else 2400, "its scans", _in_spark, report.quick, folder, rounds, span)
            report.results += found.results
            report.missing |= found.missing
        except Failed as error:
            report.failed("Spark", "scans", error)
    finally:
        shutil.rmtree(folder)
    aims(report)


def _in_spark(quick: bool, folder: Path, rounds: int, span: tuple[int, int]) -> Report:
    """Everything that one session measures: the others and this library in turn."""
    from penstock.spark import session

    os.environ["SPARK_LOCAL_DIRS"] = str(folder / "spark")
    report = Report("spark_scan", quick=quick)
    spark = session("bench", spark__driver__memory="4g")
    try:
        _scans(report, spark, folder, rounds, span)
    finally:
        spark.stop()
    return report


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


def _scans(report: Report, spark: Any, folder: Path, rounds: int, span: tuple[int, int]) -> None:
    from penstock.record import plan
    from penstock.spark import load

    archive, parquet = folder / "archive", folder / "rows.parquet"
    load(spark, archive, columns=FIELDS).write.option("compression", "none").parquet(str(parquet))
    spark.dataSource.register(_tuple_source())
    count = load(spark, archive, columns=["stream"]).count()
    one_percent = span[0] + (span[1] - span[0]) // 2
    width = (span[1] - span[0]) // 100

    def full(frame: Any) -> None:  # every value of every row is looked at
        frame.selectExpr(f"bit_xor(xxhash64({', '.join(FIELDS)}))").collect()

    def noop(frame: Any) -> None:  # every row is made, and none is looked at
        frame.write.format("noop").mode("overwrite").save()

    def grouped(frame: Any) -> None:
        frame.groupBy("stream").count().collect()

    def alone() -> None:  # the same batches, and nobody who makes rows of them
        for planned in plan(penstock.Archive(archive, create=False)):
            for _ in planned.rows(FIELDS):
                pass

    def listed() -> None:
        command = [sys.executable, "-m", "penstock", "recordings", str(archive), "--json"]
        subprocess.run(command, capture_output=True, check=True)

    jobs = {
        ("rows to noop", "penstock"): lambda: noop(load(spark, archive, columns=FIELDS)),
        ("rows to noop", "parquet"): lambda: noop(spark.read.parquet(str(parquet))),
        ("rows to noop", ALONE): alone,
        ("count", "penstock"): lambda: load(spark, archive, columns=["position"]).count(),
        ("count", "parquet"): lambda: spark.read.parquet(str(parquet)).count(),
        ("count", "archive.list()"): lambda: sum(i.messages for i in penstock.Archive(archive, create=False).list()),
        ("count", LISTED): listed,
        ("group-by", "penstock"): lambda: grouped(load(spark, archive, columns=["stream"])),
        ("group-by", "parquet"): lambda: grouped(spark.read.parquet(str(parquet))),
        ("group-by", "tuple source"): lambda: grouped(spark.read.format("penstock_tuples").load(str(archive))),
        ("full rows", "penstock"): lambda: full(load(spark, archive, columns=FIELDS)),
        ("full rows", "parquet"): lambda: full(spark.read.parquet(str(parquet))),
        ("full rows", "tuple source"): lambda: full(spark.read.format("penstock_tuples").load(str(archive))),
        ("1 % of the time", "penstock"): lambda: noop(
            load(spark, archive, columns=FIELDS, since=one_percent, until=one_percent + width)
        ),
        ("1 % of the time", NOTHING): lambda: noop(spark.range(100)),
    }
    for (case, who), seconds in in_turn(report, spark, rounds, jobs).items():
        report.add(case, who, "time", seconds, "s")
        if "%" not in case:
            report.add(case, who, "rate", [count / s for s in seconds], "rows/s")


def _tuple_source() -> type:
    """The cost of a data source without Arrow batches: the same rows as Python tuples."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class TupleReader(DataSourceReader):
        def __init__(self, path: str) -> None:
            self.path = path

        def partitions(self) -> list[InputPartition]:
            from penstock.record import plan

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


def aims(report: Report) -> None:
    """The aims of scans."""

    def faster(case: str, ours: str, theirs: str) -> float | None:
        a, b = report.get(case, ours, "time"), report.get(case, theirs, "time")
        return None if not a or not b else b / a

    for case, aim in (("rows to noop", 0.55), ("group-by", 0.7), ("count", 1), ("full rows", 0.8)):
        report.at_least(case, "of Parquet's rate", aim, "×", faster(case, "penstock", "parquet"))
    for case in ("group-by", "full rows"):
        report.at_least(case, "of a tuple source's rate", 4, "×", faster(case, "penstock", "tuple source"))
    part, whole = report.get("1 % of the time", "penstock", "time"), report.get("rows to noop", "penstock", "time")
    ratio = None if not part or not whole else part / whole
    report.at_most("1 % of the time", "of a full scan's time", 0.05, "×", ratio)
