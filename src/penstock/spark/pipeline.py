"""The pipeline: archive → *raw*, *messages*, *stats* as Parquet. Idempotent: a second run does only what is new.

Spark plans, spreads and retries; tasks read and write with Arrow; the manifest makes the result visible at once. Runs as
`penstock pipeline`, from Python by `run`, or with `spark-submit` on this file.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Corrupt, Invalid
from penstock.front import Archive
from penstock.record.archive import Scanner
from penstock.record.plan import Range, plan
from penstock.spark import tasks as work
from penstock.spark.decode import SAMPLE, typed_schema
from penstock.spark.tables import Manifest, locked, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Outcome", "main", "run", "table"]

Progress = Callable[[str, int, int], None]
LOCAL_BYTES = 64 << 20
STATS_ROWS = 16_000_000


@dataclass(frozen=True)
class Outcome:
    """What a run did. rows: of *messages*, new in this run; total_rows: in the table now; engine: spark or local."""

    ranges: int
    rows: int
    total_rows: int
    streams: tuple[str, ...]
    seconds: float
    strays_removed: int
    engine: str


def run(
    spark: SparkSession | None,
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

    spark: a session to spread the work with. None: what is new is done right here if it is less than 64 MiB, which
    spares the start of a JVM; above that a session is started. window: seconds per row of *stats*. compression: as
    pyarrow names it, "none" for the fastest scans. progress is called with (what, done, all). Raises `Corrupt` if the
    archive is damaged; the tables stay as they were then.
    """
    if not window > 0:
        raise Invalid(f"window is {window}: it must be more than 0 seconds")
    if not set(tables) <= {"raw", "messages", "stats"} or "messages" not in tables:
        raise Invalid("tables are raw, messages and stats; messages is always among them")
    begun = time.monotonic()
    folder = Path(out).resolve()
    opened = Archive(Path(archive).resolve(), create=False)
    with locked(folder):
        manifest = Manifest.load(folder)
        ranges = plan(opened, done=manifest.intervals(), range_bytes=range_bytes)
        engine = _Engine(spark, sum(planned.bytes for planned in ranges), progress or (lambda what, done, count: None))
        fresh = _keep(manifest, engine.do("writing", _range_tasks(manifest, ranges, folder, compression, tables)))
        if "stats" in tables:
            stats = _stats_tasks(manifest, fresh, folder, window, compression)
            replaced = {task["stream"] for task in stats}
            answers = engine.do("summing up", stats)
            manifest.files["stats"] = [row for row in manifest.files["stats"] if row["stream"] not in replaced]
            _keep(manifest, answers)
        manifest.done = merged(manifest.done)
        manifest.save(folder)
        strays = manifest.remove_strays(folder)
    total = sum(row["rows"] for row in manifest.files["messages"])
    streams = tuple(sorted({row["stream"] for row in manifest.files["messages"]}))
    rows = sum(row["rows"] for row in fresh)
    return Outcome(len(ranges), rows, total, streams, time.monotonic() - begun, strays, engine.name)


def _keep(manifest: Manifest, answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Puts what tasks wrote into the manifest; the new files of *messages*."""
    fresh = []
    for answer in answers:
        for name, entry in answer["files"].items():
            row = {"stream": answer["stream"], **entry}
            manifest.files[name].append(row)
            if name == "messages":
                fresh.append(row)
        if answer["done"] is not None:
            manifest.done.append(answer["done"])
    return fresh


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


def _range_tasks(
    manifest: Manifest, ranges: list[Range], out: Path, compression: str, tables: tuple[str, ...]
) -> list[dict[str, Any]]:
    by_channel: dict[str, list[Range]] = {}
    for planned in ranges:
        by_channel.setdefault(_schema_key(planned), []).append(planned)
    for key, planned_ranges in by_channel.items():
        if key not in manifest.schemas:  # typed once, so that all files of a stream agree
            schema = typed_schema(planned_ranges[0].codec, sample(planned_ranges))
            manifest.schemas[key] = schema.serialize().to_pybytes().hex()
    shared = {"kind": "range", "out": str(out), "compression": compression, "tables": list(tables)}
    return [
        {**shared, "range": asdict(planned), "schema": manifest.schemas[_schema_key(planned)]} for planned in ranges
    ]


def _schema_key(planned: Range) -> str:
    return f"{planned.channel}|{json.dumps(planned.codec, sort_keys=True)}"


def sample(ranges: list[Range]) -> list[bytes]:
    """Some of a stream's messages, from its beginning, its middle and its end; for codecs without a schema."""
    codec = ranges[0].codec
    if codec.get("of", codec)["kind"] not in ("json", "msgpack"):
        return []
    found: list[bytes] = []
    for planned in (ranges[i] for i in sorted({0, len(ranges) // 2, len(ranges) - 1})):
        scanner = Scanner(
            list(planned.segments),
            planned.channel,
            ["payload"],
            start=planned.start,
            end=planned.end,
            batch_rows=SAMPLE,
        )
        batch = next(scanner, None)
        if batch is not None:
            found += batch.column("payload").to_pylist()
    return found


def _stats_tasks(
    manifest: Manifest, fresh: list[dict[str, Any]], out: Path, window: float, compression: str
) -> list[dict[str, Any]]:
    """Tasks that sum up the streams that got new messages, each over so much time as a task can hold."""
    width = int(window * 1e9)
    key = f"window|{width}"
    touched = {row["stream"] for row in (fresh if key in manifest.schemas else manifest.files["messages"])}
    manifest.schemas = {k: v for k, v in manifest.schemas.items() if not k.startswith("window|")} | {key: ""}
    found = []
    for stream in sorted(touched):
        files = [row for row in manifest.files["messages"] if row["stream"] == stream]
        low = min(row["time_min"] for row in files) // width * width
        high = max(row["time_max"] for row in files) + 1
        parts = max(1, sum(row["rows"] for row in files) // STATS_ROWS)
        step = -(-(high - low) // parts // width) * width
        for since in range(low, high, max(step, width)):
            until = min(since + max(step, width), high)
            inside = [row["path"] for row in files if row["time_max"] >= since and row["time_min"] < until]
            digest = hashlib.sha256(json.dumps([inside, width]).encode()).hexdigest()[:12]
            stem = f"{re.sub(r'[^A-Za-z0-9._-]', '_', stream)}-{since:020d}-{digest}"
            found.append(
                {
                    "kind": "stats",
                    "stream": stream,
                    "files": inside,
                    "since": since,
                    "until": until,
                    "window_ns": width,
                    "out": str(out),
                    "stem": stem,
                    "compression": compression,
                }
            )
    return found


class _Engine:
    """Does tasks: by Spark, or here where a JVM would cost more than the work."""

    def __init__(self, spark: SparkSession | None, size: int, progress: Progress) -> None:
        self.spark, self.progress = spark, progress
        self.name = "local" if spark is None and size < LOCAL_BYTES else "spark"

    def do(self, what: str, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The tasks' answers, in any order."""
        if not tasks:
            return []
        if self.name == "spark":
            return self._by_spark(what, tasks)
        answers = []
        for number, task in enumerate(tasks):
            self.progress(what, number, len(tasks))
            answers.append(work.run(task))
        self.progress(what, len(tasks), len(tasks))
        return answers

    def _by_spark(self, what: str, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        from pyspark.errors import PySparkException

        from penstock.spark import session
        from penstock.spark.task_source import TaskSource

        if self.spark is None:
            self.spark = session("penstock-pipeline")
        self.spark.dataSource.register(TaskSource)
        frame = self.spark.read.format("penstock_tasks").option("tasks", json.dumps(tasks)).load()
        with _Watched(self.spark, what, len(tasks), self.progress):
            try:
                return [json.loads(row.answer) for row in frame.collect()]
            except PySparkException as error:
                found = re.search(r"penstock\.errors\.Corrupt: (.*)", str(error))
                if found:  # the task's own words, without the stack around them
                    raise Corrupt(found.group(1).strip()) from error
                raise


class _Watched:
    """Reports how many tasks are done while a job runs, where the session lets one look."""

    def __init__(self, spark: SparkSession, what: str, count: int, progress: Progress) -> None:
        self.spark, self.what, self.count, self.progress = spark, what, count, progress
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="penstock-progress", daemon=True)

    def __enter__(self) -> None:
        self.progress(self.what, 0, self.count)
        self.thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self.done.set()
        self.thread.join()
        if kind is None:
            self.progress(self.what, self.count, self.count)

    def _watch(self) -> None:
        try:
            tracker = self.spark.sparkContext.statusTracker()
        except Exception:  # a Spark Connect session has no context: then there is nothing to report
            return
        while not self.done.wait(0.2):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            finished = sum(info.numCompletedTasks for info in infos if info is not None)
            if finished:
                self.progress(self.what, min(finished, self.count), self.count)


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
    print(
        f"{outcome.rows} new messages, {outcome.total_rows} in all, of {len(outcome.streams)} streams, in {outcome.seconds:.1f} s"
    )
    spark.stop()


if __name__ == "__main__":
    main()
