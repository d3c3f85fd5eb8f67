"""The pipeline's tables: by Spark's tasks and by this machine's, again and again, over kills and damage, and what Spark reads of them."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock import tables
from penstock.record import plan

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
POINT = np.dtype([("t", "f8"), ("id", "u2"), ("xyz", "f4", (3,)), ("tag", "S8")])
ORDER = [("epoch", "ascending"), ("position", "ascending")]


def read(out, name, stream=None):
    return tables.read(out, name, stream=stream).sort_by(ORDER)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_the_pipeline_makes_the_tables(request, recorded, tmp_path, engine):
    from penstock.spark import pipeline

    spark = request.getfixturevalue("spark") if engine == "spark" else None
    seen = []
    out = tmp_path / "out"
    done = pipeline.run(spark, recorded.path, out, range_bytes=8192, progress=lambda *step: seen.append(step))
    assert (done.engine, done.rows, done.total_rows) == (engine, 4001, 4001)
    assert done.streams == ("log:b", "log:j", "log:s", "log:v")
    assert done.ranges > 4  # more than streams: a window of 64 KiB bounds what one block has
    assert seen[-1][1] == seen[-1][2]
    assert tables.names(out) == ["messages", "losses", "streams/log_j", "streams/log_s", "streams/log_v"]
    j = read(out, "log:j")
    assert j["i"].to_pylist() == list(range(1000))
    assert j["f"].type == pa.float64()
    assert j["f"].to_pylist() == [i / 2 if i % 2 else float(i) for i in range(1000)]
    assert j["text"].to_pylist() == [f"m{i}" for i in range(1000)]
    assert j["nested"].to_pylist() == [{"a": [i]} for i in range(1000)]
    assert "none" not in j.column_names, "it never had a value"
    assert j["_rescued"].null_count == 1000
    s = read(out, "log:s")
    assert s["id"].to_pylist() == list(range(1000))
    assert s["xyz"].to_pylist() == [[i, i + 1, i + 2] for i in range(1000)]
    assert set(s["tag"].to_pylist()) == {b"tag"}
    assert read(out, "log:v")["value"].to_pylist() == [[float(n) for n in range(i % 5)] for i in range(1000)]
    for stream in done.streams:
        rows = read(out, "messages", stream)
        sent = list(recorded.replay(stream, decode=False))
        assert rows["payload"].to_pylist() == [message.data for message in sent]
        for name, wanted in (("position", "position"), ("timestamp_ns", "time_ns"), ("session", "session")):
            assert rows[name].to_pylist() == [getattr(message, wanted) for message in sent]
        assert rows["bytes"].to_pylist() == [len(message.data) for message in sent]
        assert rows["decode_error"].null_count == rows.num_rows
        assert (rows["ingested_at"].cast("int64").to_numpy() * 1000 >= rows["recorded_ns"].to_numpy()).all()
        if stream != "log:b":
            own = read(out, stream)
            assert own.select(["epoch", "position", "recording", "timestamp_ns"]).equals(
                rows.select(["epoch", "position", "recording", "timestamp_ns"])
            )
    assert tables.read(out, "losses").num_rows == 0


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
    after = read(out, "messages", "log:b")
    assert after.slice(0, before.num_rows).equals(before), "rows that were there are as they were"
    assert len(set(after["position"].to_pylist())) == after.num_rows == before.num_rows + 100


def test_a_live_recording_is_followed_run_by_run(archive, tmp_path):
    out = tmp_path / "out"
    with penstock.publish("log:l", term_length=1 << 16) as pub, archive.record("log:l"):
        count = 0
        for _ in range(8):
            for _ in range(300):
                pub.send(b"%d" % count + bytes(count % 50 * 2000 if count % 97 == 0 else 0))
                count += 1
            tables.run(archive.path, out)
    tables.run(archive.path, out)
    assert [int(p.rstrip(b"\0")) for p in read(out, "messages")["payload"].to_pylist()] == list(range(count))


KILLED = """
import sys, os
import penstock.tables
from penstock.tables.work import tasks
real, left = tasks.run, [int(sys.argv[3])]
def run(task):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
    return real(task)
tasks.run = run
penstock.tables.run(sys.argv[1], sys.argv[2], range_bytes=8192)
"""


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_lost_or_doubled(recorded, tmp_path):
    out = tmp_path / "out"
    ranges = len(plan(recorded, range_bytes=8192))
    assert ranges >= 8
    for tasks in (3, ranges - 1):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(recorded.path), str(out), str(tasks)], capture_output=True
        )
        assert done.returncode == -9, done.stderr
        assert tables.names(out) == []
        assert len(list(out.rglob("*.parquet"))) >= tasks
    mine = out / "messages" / "mine.parquet"
    mine.write_bytes(b"mine")
    assert tables.run(recorded.path, out, range_bytes=8192).total_rows == 4001
    assert read(out, "log:s")["id"].to_pylist() == list(range(1000))
    keys = read(out, "messages").select(["stream", "epoch", "position"]).to_pylist()
    assert len({tuple(key.values()) for key in keys}) == len(keys) == 4001
    live = {uri.removeprefix("file://") for name in tables.names(out) for uri in tables.uris(out, name)}
    assert {str(path) for path in out.rglob("*.parquet*")} == {*live, str(mine)}, "what the killed runs wrote is gone"
    assert mine.read_bytes() == b"mine"


def block_of(folder, position):
    """The positions [low, high) of the block that has this one."""
    entries = folder.index(folder.segments()[0])[0]
    (found,) = [e for e in entries if e["position"] <= position < e["position"] + e["length"]]
    return int(found["position"]), int(found["position"] + found["length"])


def test_damage_is_named_and_costs_its_block_alone(spark, recorded, tmp_path):
    from penstock.spark import pipeline

    folder = recorded.folders()[1]
    segment, hurt = folder.segments()[0], folder.describe().channel
    before = recorded.read(hurt, columns=["position", "payload"])
    data = bytearray(segment.data.read_bytes())
    data[len(data) // 2] ^= 1
    segment.data.write_bytes(data)
    (low, high) = block_of(folder, len(data) // 2)
    kept = [row for row in before.to_pylist() if not low <= row["position"] < high]
    assert len(kept) < before.num_rows
    for engine in (None, spark):
        out = tmp_path / ("spark" if engine else "local")
        with pytest.raises(penstock.Corrupt, match=f"{hurt}: .*byte {len(data) // 2} alone"):
            pipeline.run(engine, recorded.path, out)
        for stream in {"log:j", "log:s", "log:v", "log:b"} - {hurt}:
            payloads = read(out, "messages", stream)["payload"].to_pylist()
            assert payloads == [m.data for m in recorded.replay(stream, decode=False)]
        assert read(out, "messages", hurt).select(["position", "payload"]).to_pylist() == kept
        assert tables.read(out, "losses").select(["stream", "position", "end", "bytes"]).to_pylist() == [
            {"stream": hurt, "position": low, "end": high, "bytes": high - low}
        ]
    recorded.repair()
    assert recorded.find(hurt).messages == len(kept)
    assert tables.run(recorded.path, tmp_path / "local").rows == 0
    assert tables.read(tmp_path / "local", "losses").num_rows == 1, "a loss is told once"


def test_messages_that_do_not_fit_their_codec_are_kept(archive, tmp_path):
    from penstock._native import core

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
        j.send({"a": "odd"})
    out = tmp_path / "out"
    tables.run(archive.path, out)
    rows = read(out, "log:s").to_pylist()
    assert [r["id"] for r in rows] == [2, None, 7]
    assert "5 bytes" in rows[1]["decode_error"]
    assert read(out, "messages", "log:s")["payload"].to_pylist()[1] == b"short"
    rows = read(out, "log:j").to_pylist()
    assert [r["a"] for r in rows] == [1, None, 2, None]
    assert [bool(r["decode_error"]) for r in rows] == [False, True, False, False]
    assert [r["_rescued"] for r in rows] == [None, None, None, '{"a":"odd"}']
    assert rows[2]["b"] == "new"


@pytest.mark.slow
def test_tables_as_dataframes(spark, recorded, tmp_path):
    from penstock.spark import table

    out = tmp_path / "out"
    with pytest.raises(penstock.NotFound, match="penstock pipeline"):
        table(spark, out, "messages")
    tables.run(recorded.path, out)
    with penstock.publish("log:j", codec="json") as pub, recorded.record("log:j", extend=True):
        pub.send({"i": 1000, "new": [{"x": 1}]})
    tables.run(recorded.path, out)
    assert table(spark, out, "messages").count() == 4002
    assert table(spark, out, "messages", version=0).count() == 4001
    assert table(spark, out, "log:j").agg({"i": "sum"}).collect()[0][0] == 500500
    assert table(spark, out, "log:j").where("new[0].x = 1 and nested is null").count() == 1
    assert table(spark, out, "messages", stream="log:j").count() == 1001
    assert table(spark, out, "losses").count() == 0
    assert table(spark, out, "stats").groupBy("stream").sum("messages").count() == 4
    with pytest.raises(penstock.NotFound, match="it has messages, losses, streams/log_j"):
        table(spark, out, "nope")
    with pytest.raises(penstock.NotFound, match="plain bytes"):
        table(spark, out, "log:b")
    with pytest.raises(penstock.Invalid, match="no table"):
        table(spark, out, "../out")


@pytest.mark.slow
def test_every_kind_of_channel_as_spark_reads_it(spark, archive, tmp_path):
    """Frames with and without pixels, sync queues, pipes of two and of jobs."""
    from penstock.spark import table

    with penstock.publish("frames:f", shape=(2, 3), buffers=100) as pub:
        with archive.record("frames:f", pixels=True):
            for i in range(40):
                pub.send(np.full((2, 3), i, "u1"), id=2**63 + i, start_ns=i, end_ns=2 * i, meta={"i": i})
        with archive.record("frames:f", pixels=False):
            for i in range(5):
                pub.send(np.zeros((2, 3), "u1"), id=i)
    with penstock.join("sync:s", name="a") as a, penstock.join("sync:s", name="b") as b, archive.record("sync:s"):
        for i in range(20):
            (a, b)[i % 2].send(b"%d" % i, type=f"t{i % 3}")
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
    tables.run(archive.path, out)

    def rows(channel, *columns, order="position"):
        found = table(spark, out, channel).orderBy(order).collect()
        assert all(row["decode_error"] is None for row in found)
        return [tuple(row[name] for name in columns) for row in found]

    notes = rows("frames:f", "frame_id", "exposure_end_ns", "pixels", "meta", order="timestamp_ns")
    assert [int(one[0]) for one in notes] == [2**63 + i for i in range(40)] + list(range(5))
    assert [one[1] for one in notes[:40]] == [2 * i for i in range(40)]
    assert [one[2] for one in notes] == [bytes([i] * 6) for i in range(40)] + [None] * 5
    assert json.loads(notes[7][3]) == {"i": 7}
    kept = table(spark, out, "messages", stream="frames:f").orderBy("timestamp_ns").collect()
    assert (kept[7]["payload"], kept[7]["bytes"]) == (None, 32 + len('{"i":7}') + 6)
    assert kept[44]["payload"] is not None
    assert rows("sync:s", "sender", "type", "body") == [("ab"[i % 2], f"t{i % 3}", b"%d" % i) for i in range(20)]
    assert rows("pipe:talk", "sender", "type", "body", "parts") == [
        ("a", "pair", b"one", None),
        ("b", "pair", None, [b"two", b"parts"]),
    ]
    assert rows("pipe:jobs", "sender", "type", "job", "type_", "cost") == [
        ("boss", "push", i, "x", i / 2) for i in range(20)
    ]


def test_keys_that_differ_in_case_and_codecs_that_change(spark, archive, tmp_path):
    from penstock.spark import table

    for dtype in (np.dtype([("v", "i4")]), np.dtype([("v", "f8"), ("z", "f8")])):
        with penstock.publish("log:s", codec=dtype) as pub, archive.record("log:s"):
            pub.send((1,) if len(dtype) == 1 else (0.5, 2))
        penstock.remove("log:s")
    with penstock.publish("log:j", codec="json") as pub, archive.record("log:j"):
        pub.send({"A": 5, "a": 1.5, "never": None})
    tables.run(archive.path, tmp_path / "t")
    rows = table(spark, tmp_path / "t", "log:s").select("v", "z", "_rescued").collect()
    assert sorted(map(tuple, rows), key=str) == [(1, None, None), (None, 2.0, '{"v":0.5}')]
    row = table(spark, tmp_path / "t", "log:j").collect()[0]
    assert (row["A"], row["a_"]) == (5, 1.5)
    assert "never" not in row
