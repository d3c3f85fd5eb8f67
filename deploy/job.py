"""A job for any cluster: counts an archive's messages with Spark, then brings the tables in OUT up to date.

    spark-submit deploy/job.py ARCHIVE OUT          python deploy/job.py ARCHIVE OUT --master spark://HOST:7077

ARCHIVE is a folder that every worker can read, or s3://BUCKET/FOLDER. OUT is a folder that every worker can write.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import penstock.spark
from penstock.spark import pipeline


def watched(spark: Any, job: Callable[[], Any], progress: Callable[[str, int, int], None]) -> Any:
    """A job's result; its progress is told while it runs."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(job)
        tracker = spark.sparkContext.statusTracker()
        while not running.done():
            for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()):
                if stage is not None:
                    progress("counting", stage.numCompletedTasks, stage.numTasks)
            time.sleep(0.02)
        return running.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("archive")
    parser.add_argument("out")
    parser.add_argument("--master")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    parser.add_argument("--range-bytes", type=int, default=32 << 20, help="about how much of the archive a task reads")
    parser.add_argument("--steps", action="store_true", help="wait for a line on standard input at the first progress")
    given = parser.parse_args()
    settings: dict[str, str] = dict(pair.split("=", 1) for pair in given.conf)
    spark = penstock.spark.session("penstock-job", master=given.master, **settings)
    asked = set()

    def progress(what: str, done: int, count: int) -> None:
        if given.steps and 0 < done < count and what not in asked:
            asked.add(what)
            print(f"progress: {what} {done} of {count}", flush=True)
            sys.stdin.readline()

    frame = spark.read.format("penstock").option("rangeBytes", given.range_bytes).load(given.archive)
    rows = frame.selectExpr("stream", "xxhash64(stream, position, payload) as hash").groupBy("stream")
    counts = rows.agg({"*": "count", "hash": "bit_xor"})
    for row in sorted(watched(spark, counts.collect, progress)):
        print(f"{row[0]}: {row[1]} messages, hash {row[2]}", flush=True)
    outcome = pipeline.run(spark, given.archive, given.out, progress=progress, range_bytes=given.range_bytes)
    print(f"tables: {outcome.rows} new messages in {outcome.ranges} ranges, {outcome.total_rows} in all", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
