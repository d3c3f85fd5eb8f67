"""The pipeline: archive → *raw*, *messages*, *stats* as Parquet. Idempotent: a second run does only what is new.

Spark plans, spreads and retries; tasks read and write with Arrow; the manifest makes the result visible at once. Runs as
`penstock pipeline`, from Python by `run`, or with `spark-submit` on this file.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Corrupt, Invalid
from penstock.front import Archive
from penstock.record.archive import Scanner
from penstock.record.plan import Range, plan
from penstock.spark.decode import SAMPLE, typed_schema
from penstock.spark.tables import Manifest, locked, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str, int, int], None]
STATS = """
SELECT stream, window_start,
       count(*) AS messages, sum(length(payload)) AS bytes, count(*) / {seconds} AS rate,
       percentile_approx(interval_ns, 0.5) AS interval_p50_ns, percentile_approx(interval_ns, 0.99) AS interval_p99_ns,
       percentile_approx(recorded_ns - timestamp_ns, 0.5) AS latency_p50_ns,
       percentile_approx(recorded_ns - timestamp_ns, 0.99) AS latency_p99_ns,
       sum(lost) AS lost_bytes, count(decode_error) AS decode_errors
FROM (SELECT *, timestamp_seconds(floor(timestamp_ns / {width}) * {seconds}) AS window_start FROM {{messages}})
GROUP BY stream, window_start
ORDER BY stream, window_start
"""


@dataclass(frozen=True)
class Outcome:
    """What a run did. rows: of *messages*, new in this run; total_rows: in the table now."""

    ranges: int
    rows: int
    total_rows: int
    streams: tuple[str, ...]
    seconds: float
    strays_removed: int


def run(
    spark: SparkSession,
    archive: str | Path,
    out: str | Path,
    *,
    window: float = 1.0,
    compression: str = "snappy",
    tables: tuple[str, ...] = ("raw", "messages", "stats"),
    range_bytes: int = 32 << 20,
    progress: Progress | None = None,
) -> Outcome:
    """Brings the tables in `out` up to date with an archive.

    window: seconds per row of *stats*. compression: as pyarrow names it, "none" for the fastest scans. progress is called
    with (what, done, all). Raises `Corrupt` if the archive is damaged; the tables stay as they were then.
    """
    if window <= 0:
        raise Invalid(f"window is {window}: it must be more than 0 seconds")
    if not set(tables) <= {"raw", "messages", "stats"} or "messages" not in tables:
        raise Invalid("tables are raw, messages and stats; messages is always among them")
    begun = time.monotonic()
    folder = Path(out).resolve()
    opened = Archive(Path(archive).resolve(), create=False)
    with locked(folder):
        manifest = Manifest.load(folder)
        ranges = plan(opened, done=manifest.intervals(), range_bytes=range_bytes)
        tasks = _tasks(opened, manifest, ranges, folder, compression, tables)
        answers = _run_tasks(spark, tasks, progress or (lambda what, done, count: None))
        rows = 0
        for answer in answers:
            for name, entry in answer["files"].items():
                manifest.files[name].append({"stream": answer["stream"], **entry})
            manifest.done.append(answer["done"])
            rows += answer["rows"]
        manifest.done = merged(manifest.done)
        if "stats" in tables and (rows or not manifest.files["stats"]):
            manifest.files["stats"] = _stats(spark, manifest, folder, window)
        manifest.save(folder)
        strays = manifest.remove_strays(folder)
    total = sum(row["rows"] for row in manifest.files["messages"])
    streams = tuple(sorted({row["stream"] for row in manifest.files["messages"]}))
    return Outcome(len(ranges), rows, total, streams, time.monotonic() - begun, strays)


def merged(done: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring ranges as one, so that the manifest stays short."""
    found: list[dict[str, Any]] = []
    for row in sorted(done, key=lambda r: (r["channel"], r["epoch"], r["start"])):
        last = found[-1] if found else None
        if last and (last["channel"], last["epoch"], last["end"]) == (row["channel"], row["epoch"], row["start"]):
            last["end"] = row["end"]
        else:
            found.append(dict(row))
    return found


def _tasks(archive: Archive, manifest: Manifest, ranges: list[Range], out: Path, compression: str, tables: tuple[str, ...]) -> list[dict[str, Any]]:
    by_channel: dict[str, list[Range]] = {}
    for planned in ranges:
        by_channel.setdefault(planned.channel, []).append(planned)
    for channel, planned_ranges in by_channel.items():
        key = f"{channel}|{sorted(planned_ranges[0].codec.items())}"
        if key not in manifest.schemas:
            schema = typed_schema(planned_ranges[0].codec, sample(planned_ranges))
            manifest.schemas[key] = schema.serialize().to_pybytes().hex()
    return [
        {
            "range": asdict(planned),
            "out": str(out),
            "compression": compression,
            "tables": list(tables),
            "schema": manifest.schemas[f"{planned.channel}|{sorted(planned.codec.items())}"],
        }
        for planned in ranges
    ]


def sample(ranges: list[Range]) -> list[bytes]:
    """Some of a stream's messages, from its beginning, its middle and its end; for codecs without a schema."""
    if ranges[0].codec["kind"] not in ("json", "msgpack"):
        return []
    found: list[bytes] = []
    for planned in (ranges[i] for i in sorted({0, len(ranges) // 2, len(ranges) - 1})):
        scanner = Scanner(list(planned.segments), planned.channel, ["payload"], start=planned.start, end=planned.end, batch_rows=SAMPLE)
        batch = next(scanner, None)
        if batch is not None:
            found += batch.column("payload").to_pylist()
    return found


def _run_tasks(spark: SparkSession, tasks: list[dict[str, Any]], progress: Progress) -> list[dict[str, Any]]:
    from pyspark.errors import PySparkException

    from penstock.spark.task_source import TaskSource

    if not tasks:
        return []
    spark.dataSource.register(TaskSource)
    answers = spark.read.format("penstock_tasks").option("tasks", json.dumps(tasks)).load()
    with _Watched(spark, len(tasks), progress):
        try:
            return [json.loads(row.answer) for row in answers.collect()]
        except PySparkException as error:
            text = str(error)
            if "Corrupt:" in text:  # the task's own words, without the stack around them
                line = next(line for line in text.splitlines() if "Corrupt:" in line)
                raise Corrupt(line.split("Corrupt:", 1)[1].strip()) from error
            raise


class _Watched:
    """Reports how many tasks are done while a job runs, where the session lets one look."""

    def __init__(self, spark: SparkSession, count: int, progress: Progress) -> None:
        self.spark, self.count, self.progress = spark, count, progress
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="penstock-progress", daemon=True)

    def __enter__(self) -> None:
        self.progress("writing", 0, self.count)
        self.thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self.done.set()
        self.thread.join()
        if kind is None:
            self.progress("writing", self.count, self.count)

    def _watch(self) -> None:
        try:
            tracker = self.spark.sparkContext.statusTracker()
        except Exception:  # a Spark Connect session has no context: then there is nothing to report
            return
        while not self.done.wait(0.2):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(info.numCompletedTasks for info in infos if info is not None)
            if finished:
                self.progress("writing", min(finished, self.count), self.count)


def _stats(spark: SparkSession, manifest: Manifest, out: Path, window: float) -> list[dict[str, Any]]:
    files = [str(out / row["path"]) for row in manifest.files["messages"]]
    query = STATS.format(width=int(window * 1_000_000_000), seconds=window)
    frame = _messages(spark, files)
    result: pa.Table = spark.sql(query, messages=frame).toArrow() if files else pa.table({})
    if result.num_rows == 0:
        return []
    name = f"stats/stats-{time.time_ns()}.parquet"
    (out / "stats").mkdir(exist_ok=True)
    pq.write_table(result, out / name)
    return [{"stream": None, "path": name, "rows": result.num_rows, "bytes": (out / name).stat().st_size}]


def _messages(spark: SparkSession, files: list[str]) -> DataFrame:
    from penstock.spark.tasks import COMMON

    return spark.read.schema(COMMON).parquet(*files) if files else spark.createDataFrame([], COMMON)


def main(arguments: list[str] | None = None) -> None:
    """For spark-submit: `pipeline.py --archive DIR --out DIR`. The session comes from spark-submit's settings."""
    import argparse

    from penstock.spark import session

    parser = argparse.ArgumentParser(description="Builds the tables raw, messages and stats from an archive.")
    parser.add_argument("--archive", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--window", type=float, default=1.0)
    given = parser.parse_args(arguments)
    spark = session("penstock-pipeline")
    outcome = run(spark, given.archive, given.out, window=given.window)
    print(f"{outcome.rows} new messages, {outcome.total_rows} in all, of {len(outcome.streams)} streams, in {outcome.seconds:.1f} s")
    spark.stop()


__all__ = ["Outcome", "main", "run", "table"]

if __name__ == "__main__":
    main()
