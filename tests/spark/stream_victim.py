"""Streaming queries that are killed again and again. `rows`: each batch of rows becomes one file, which is written whole or not at all.
`tables`: the pipeline. `messages`: the rows are published on log:out.

As a program it runs one query after another in one JVM: a line on its input begins a query, or ends it. It ends by itself when the
test that started it is gone.
"""

import json
import os
import queue
import sys
import threading

import pyarrow.parquet as pq

import penstock.spark
from penstock.spark import pipeline

CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.deploy.maxExecutorRetries": "-1",
}  # executors may die as often as they like
SETTINGS = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2", "spark.task.maxFailures": "8"}


def rows(spark, archive, out, told, stop=None):
    """Runs until `stop` is set; once over all there is without it. told: called with the number of each batch."""

    def batch(frame, number):
        temporary = f"{out}/.{number}.{os.getpid()}.new"
        pq.write_table(frame.toArrow(), temporary)
        os.replace(temporary, f"{out}/batch-{number:06d}.parquet")
        told(number)

    run(read(spark, archive).writeStream.foreachBatch(batch), out, stop)


def messages(spark, archive, out, told, stop=None):
    """The same onto a channel."""
    run(read(spark, archive).writeStream.format("penstock").option("channel", "log:out"), out, stop, told)


def read(spark, archive):
    """The rows of the archive, as they come."""
    reader = spark.readStream.format("penstock").option("consumer", "victim").option("maxMessagesPerTrigger", 2000)
    return reader.load(archive)


def run(writer, out, stop, told=None):
    """Runs a query. told: called with the number of each batch, and now and then while nothing is new, as Spark reports it."""
    writer = writer.option("checkpointLocation", f"{out}.checkpoint")
    query = writer.trigger(**{"availableNow": True} if stop is None else {"processingTime": "0 seconds"}).start()
    if stop is None:
        query.awaitTermination()
        return
    last = None
    while not stop.wait(0.1) and query.isActive:
        done = query.lastProgress
        if told is not None and done is not None and done["timestamp"] != last:
            last = done["timestamp"]
            told(done["batchId"])
    query.stop()
    if query.exception() is not None and not stop.is_set():
        raise query.exception()


def tables(spark, archive, out, told, stop=None):
    """The same with the pipeline."""
    pipeline.follow(
        spark,
        archive,
        out,
        every=None if stop is None else 0,
        until=None if stop is None else stop.wait,
        on_step=lambda outcome: told(outcome.rows),
    )


QUERIES = {"rows": rows, "tables": tables, "messages": messages}


def main(master):
    """Lines of JSON: [what, archive, folder] begins a query, null ends it. Answers: a line per batch, and one per query's end."""
    lines, stop = queue.SimpleQueue(), threading.Event()

    def listen():
        for line in sys.stdin:
            (lines.put if line.strip() != "null" else lambda _: stop.set())(json.loads(line))
        os._exit(1)  # the test is gone

    threading.Thread(target=listen, daemon=True).start()
    settings = {**SETTINGS, **(CLUSTER if master.startswith("local-cluster") else {})}
    spark = penstock.spark.session("victim", master=master, **settings)
    while True:
        what, archive, out = lines.get()
        QUERIES[what](spark, archive, out, lambda number: print("batch", number, flush=True), stop)
        stop.clear()
        print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
