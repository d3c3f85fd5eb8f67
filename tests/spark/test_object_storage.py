"""Spark over archives and tables on an object storage: the rows of those here, read and written there by tasks."""

import json
import subprocess
import sys

import numpy as np
import pytest

import penstock
import penstock.spark
from penstock import tables
from penstock.errors import NotFound
from penstock.spark import pipeline, queries

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
POINT = np.dtype([("t", "f8"), ("tag", "S4")])


@pytest.fixture
def pushed(archive, bucket):
    """(archive, its URI on the object storage)"""
    with (
        penstock.publish("log:p", codec=POINT, term_length=1 << 16) as pub,
        penstock.publish("log:b", term_length=1 << 16) as plain,
        archive.record(["log:p", "log:b"], segment_length=1 << 16),
    ):
        for i in range(3000):
            pub.send((i / 3, b"a\0b"))
            plain.send(bytes(i % 300))
    archive.push(f"{bucket}/drive")
    return archive, f"{bucket}/drive"


@pytest.mark.slow
def test_the_data_source(spark, pushed):
    archive, uri = pushed
    columns = ["stream", "position", "timestamp_ns", "session", "payload"]
    there = penstock.spark.load(spark, uri, columns=columns).orderBy("stream", "position").toArrow()
    here = penstock.spark.load(spark, archive.path, columns=columns).orderBy("stream", "position").toArrow()
    assert there.num_rows == 6000
    assert there.equals(here)
    plain = spark.read.format("penstock").option("stream", "log:b").option("rangeBytes", "64KiB").load(uri)
    assert plain.rdd.getNumPartitions() > 2
    assert plain.count() == 3000
    with pytest.raises(NotFound, match="no archive at"):
        penstock.spark.load(spark, uri + "/none")


@pytest.mark.slow
def test_the_pipeline(spark, pushed, tmp_path):
    archive, uri = pushed
    far = pipeline.run(spark, uri, tmp_path / "far")
    tables.run(archive.path, tmp_path / "near")
    assert far.rows == 6000
    for name in ("messages", "log:p"):
        one, other = (
            tables.read(tmp_path / where, name).drop("ingested_at").sort_by("timestamp_ns") for where in ("far", "near")
        )
        assert one.equals(other)
        assert one.num_rows == (6000 if name == "messages" else 3000)
    assert tables.run(uri, tmp_path / "far").rows == 0


@pytest.mark.slow
def test_an_archive_of_another_machine(spark, pushed, tmp_path):
    """In batches, as a stream, and by the pipeline: the rows of the folder."""
    archive, _ = pushed
    columns = ["stream", "position", "timestamp_ns", "session", "payload"]
    with archive.serve("127.0.0.1:0") as server:
        there = penstock.spark.load(spark, server.uri, columns=columns).orderBy("stream", "position").toArrow()
        here = penstock.spark.load(spark, archive.path, columns=columns).orderBy("stream", "position").toArrow()
        assert there.num_rows == 6000
        assert there.equals(here)
        assert pipeline.run(spark, server.uri, tmp_path / "far").rows == 6000
        assert tables.run(archive.path, tmp_path / "far").rows == 0  # it is the same archive


def flat(batches):
    return [number for batch in batches for number in batch]


def in_order(frame, *names):
    return frame.drop("ingested_at").orderBy(*names).toArrow()


@pytest.mark.slow
def test_tables_there_by_spark(spark, pushed, bucket, tmp_path):
    archive, uri = pushed
    own = tmp_path / "own.sql"
    own.write_text("create table few as select stream, sum(messages) as n from stats group by stream;")
    out = f"{bucket}/tables"
    far = pipeline.run(spark, uri, out, own=[own])
    assert (far.rows, [(one.name, one.rows, one.error) for one in far.own]) == (6000, [("few", 2, None)])
    pipeline.run(spark, archive.path, tmp_path / "near", own=[own])
    for name in ("messages", "stats", "few", "log:p"):
        order = (
            ["stream"]
            if name == "few"
            else ["window_start", "stream"]
            if name == "stats"
            else ["timestamp_ns", "position"]
        )
        one, other = (in_order(penstock.spark.table(spark, place, name), *order) for place in (out, tmp_path / "near"))
        assert one.equals(other), name
        assert one.num_rows > 0
    first = penstock.spark.table(spark, out, "messages", stream="log:b")
    with penstock.publish("log:p", codec=POINT) as pub, archive.record("log:p"):
        for i in range(50):
            pub.send((i, b"new"))
    archive.push(uri)
    assert pipeline.run(spark, uri, out, own=[own]).rows == 50
    assert first.count() == 3000
    assert penstock.spark.table(spark, out, "log:p").where("tag = cast('new' as binary)").count() == 50
    found = queries.frame(
        spark, out, "select count(*) as n, max(t) as most from log_p join few on few.stream = 'log:p'"
    )
    assert [row.asDict() for row in found.collect()] == [{"n": 3050, "most": 2999 / 3}]
    before = in_order(penstock.spark.table(spark, out, "messages"), "timestamp_ns", "position")
    tables.optimize(out)
    assert before.equals(in_order(penstock.spark.table(spark, out, "messages"), "timestamp_ns", "position"))
    assert pipeline.run(spark, uri, out, own=[own]).rows == 0


@pytest.mark.slow
def test_a_query_follows_what_is_pushed(spark, archive, bucket, tmp_path):
    uri, out = f"{bucket}/live", f"{bucket}/tables"
    sent = 0

    def more(count):
        nonlocal sent
        with penstock.publish("log:n", codec="json", term_length=1 << 16) as pub, archive.record("log:n"):
            for number in range(sent, sent + count):
                pub.send({"n": number})
        sent += count
        archive.push(uri)

    more(100)
    frames = spark.readStream.format("penstock").option("maxMessagesPerTrigger", "60").load(uri)
    batches = []

    def note(frame, number):
        batches.append([json.loads(row.payload)["n"] for row in frame.collect()])

    def step():
        writer = frames.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    step()
    assert sorted(flat(batches)) == list(range(100))
    assert len(batches) > 1
    more(30)
    before = len(batches)
    step()
    assert sorted(flat(batches[before:])) == list(range(100, 130))
    step()
    assert len(flat(batches)) == 130
    assert pipeline.follow(spark, uri, out).rows == 130
    more(20)
    steps = []
    pipeline.follow(
        spark, uri, out, every=0, on_step=steps.append, until=lambda _: sum(one.rows for one in steps) >= 20
    )
    assert sorted(tables.read(out, "log:n")["n"].to_pylist()) == list(range(150))


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "penstock", *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_the_commands(pushed, bucket):
    """Without a JVM of their own: the tests above have Spark there."""
    _, uri = pushed
    out = f"{bucket}/command"
    done = command("pipeline", "--archive", uri, "--out", out, "--engine", "local")
    assert done.returncode == 0, done.stderr
    assert "6,000 new messages" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    done = command("sql", out, "select count(*) as n from messages", "--json", "--engine", "duckdb")
    assert json.loads(done.stdout) == {"n": 6000}, done.stderr
    done = command("pipeline", "--out", out, "--optimize")
    assert done.returncode == 0, done.stderr
    done = command("pipeline", "--archive", uri, "--out", "ftp://a/b")
    assert done.returncode == 2
    assert "is a URI" in done.stderr
