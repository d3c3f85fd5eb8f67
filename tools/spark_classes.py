"""Writes an archive of the classes that Spark loads, with which the tests' many JVMs start in half the CPU time: one file as argument."""

import os
import sys
import tempfile
from pathlib import Path

import penstock
import penstock.spark
from penstock.spark import pipeline, table

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"  # those of tests/conftest.py: an archive fits its collector


def work(folder: Path) -> None:
    """What tests do with Spark: a session of this process reads an archive, follows it, makes tables and reads them."""
    archive = penstock.Archive(folder / "archive")
    with penstock.publish("log:a", codec="json") as pub, archive.record("log:a"):
        for number in range(100):
            pub.send({"n": number})
    spark = penstock.spark.session("classes", master="local[2]")
    rows = penstock.spark.load(spark, archive.path)
    rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(str(folder / "rows"))
    rows.createOrReplaceTempView("rows")
    spark.sql("select stream, count(*), max(position) from rows group by stream order by stream").collect()
    pipeline.run(spark, archive.path, folder / "tables")
    pipeline.follow(spark, archive.path, folder / "tables")
    table(spark, folder / "tables", "log:a").agg({"n": "sum"}).collect()
    stream = spark.readStream.format("penstock").load(str(archive.path)).writeStream.format("parquet")
    stream = stream.option("path", str(folder / "stream")).option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()


def end_jvm() -> None:
    """Ends the JVM in good order: it writes its classes then."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._active_spark_context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    path = Path(sys.argv[1]).resolve()
    os.environ["SPARK_SUBMIT_OPTS"] = f'{OPTIONS} "-XX:ArchiveClassesAtExit={path}"'
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_DIR"] = folder
        work(Path(folder))
    end_jvm()
