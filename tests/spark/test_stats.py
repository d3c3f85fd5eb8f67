"""The view stats, in Spark and in DuckDB, against NumPy's counts, sums and ranks over the rows of messages and losses."""

import json
import subprocess
import sys

import numpy as np
import polars
import pyarrow.compute as pc
import pytest
from conftest import LONG

import penstock
from penstock import tables
from penstock.tables import stats

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
RANKS = [(values, share) for values in ("interval", "latency") for share in (50, 99)]


def expected(out, width):
    """(stream, start of the window in µs) → (the values of its row, the sorted values of which it has percentiles)."""
    messages, found = tables.read(out, "messages").sort_by([("epoch", "ascending"), ("position", "ascending")]), {}
    for stream in pc.unique(messages["stream"]).to_pylist():
        rows = messages.filter(pc.equal(messages["stream"], stream))
        times, epochs = rows["timestamp_ns"].to_numpy(), rows["epoch"].to_numpy()
        is_first = np.append(True, epochs[1:] != epochs[:-1])
        intervals = np.append(0, np.diff(times))
        latencies = rows["recorded_ns"].to_numpy() - times
        sizes, errors = rows["bytes"].to_numpy(), pc.is_valid(rows["decode_error"]).to_numpy()
        for number in np.unique(times // width):
            inside = times // width == number
            values = {
                "messages": int(inside.sum()),
                "bytes": int(sizes[inside].sum()),
                "messages_per_second": int(inside.sum()) / (width / 1e9),
                "decode_errors": int(errors[inside].sum()),
                "lost_bytes": 0,
            }
            ranked = {"interval": np.sort(intervals[inside & ~is_first]), "latency": np.sort(latencies[inside])}
            found[stream, int(number) * width // 1000] = values, ranked
    for row in tables.read(out, "losses").to_pylist():
        nothing = dict.fromkeys(("messages", "bytes", "messages_per_second", "decode_errors", "lost_bytes"), 0)
        key = (row["stream"], row["noted_ns"] // width * width // 1000)
        found.setdefault(key, (nothing, {"interval": np.zeros(0), "latency": np.zeros(0)}))[0]["lost_bytes"] += row[
            "bytes"
        ]
    return found


def answers(spark, out, width):
    from penstock.spark import queries

    query = "select * from stats"
    yield "spark", queries.by_spark(spark, out, query, None, width / 1e9), 1 / stats.ACCURACY
    yield "duckdb", queries.by_duckdb(out, query, None, width / 1e9), 0


def check(spark, out, width):
    """Both engines have the rows that NumPy has; percentiles are values of a rank that is as near as the engine says. How many rows."""
    wanted = expected(out, width)
    for engine, found, error in answers(spark, out, width):
        starts = found["window_start"].cast("int64").to_pylist()
        rows = {(row["stream"], start): row for row, start in zip(found.to_pylist(), starts, strict=True)}
        assert len(rows) == found.num_rows
        assert rows.keys() == wanted.keys(), engine
        for key, (values, ranked) in wanted.items():
            row = rows[key]
            assert {name: row[name] for name in values} == values, (engine, key)
            assert (row["window_end"] - row["window_start"]).total_seconds() == pytest.approx(width / 1e9)
            for name, share in RANKS:
                check_rank(ranked[name], share / 100, row[f"{name}_p{share}_ns"], error)
    return len(wanted)


def check_rank(values, share, found, error):
    """It is the value of a rank that is wrong by `error` of the values at most, and by one for how shares are rounded."""
    if not len(values):
        assert found is None
        return
    near = abs(found) >> 52 if error else 0  # Spark's are doubles meanwhile
    low, high = np.searchsorted(values, found - near, "left"), np.searchsorted(values, found + near, "right")
    assert low < high, "it is one of the values"
    slack = 1 + error * len(values)
    assert low - slack <= share * len(values) <= high + slack


@pytest.mark.parametrize("window", [1.0, 1e-3, 333e-6])
def test_both_engines_have_what_numpy_has(spark, recorded, tmp_path, window, tally):
    out = tmp_path / "out"
    tables.run(recorded.path, out)
    tally("windows compared", check(spark, out, stats.width_ns(window)))


def test_times_before_1970_and_messages_that_are_no_json(spark, archive, tmp_path):
    from penstock._native import core

    times = [-2_500_000_000, -2_500_000_001, -1, 0, 1, 999_999_999, 1_000_000_000]
    archive.append("log:old", [b"%d" % n for n in range(len(times))], times_ns=times)
    with penstock.publish("log:j", codec="json") as pub, archive.record("log:j"):
        for text in (b'{"a": 1}', b"{", b'{"a": 2}', b"]"):
            core.Publication.send(pub, text)
    tables.run(archive.path, tmp_path / "out")
    assert tables.read(tmp_path / "out", "log:j")["decode_error"].null_count == 2
    assert check(spark, tmp_path / "out", 10**9) >= 5


@pytest.mark.slow
def test_losses_and_messages_that_go_are_in_it(spark, archive, tmp_path):
    """A recording with gaps, which is then cut back: the view has what the tables have."""
    out, width = tmp_path / "out", 10**5
    with penstock.publish("ring:r", capacity=1 << 16) as pub:
        recorder = archive._opener.open("ring:r", "newest", False, 1 << 20, None)
        for burst in (100, 3000, 5, 400, 2000, 20):  # some are longer than the ring
            for i in range(burst):
                pub.send(bytes(i % 300))
            while recorder.turn() > 0:
                pass
        recorder.finish()
        tables.run(archive.path, out)
    lost = archive.list()[0].lost_bytes
    assert lost > 0
    for _, found, _ in answers(spark, out, width):
        assert pc.sum(found["lost_bytes"]).as_py() == lost
    before = check(spark, out, width)
    rows = polars.read_delta(str(out / "messages")).sort("position")
    archive.truncate("ring:r", rows["position"][len(rows) // 2])
    tables.run(archive.path, out)
    assert check(spark, out, width) < before
    assert tables.read(out, "messages").num_rows == archive.find("ring:r").messages


def test_an_archive_without_messages_has_an_empty_view(spark, archive, tmp_path):
    tables.run(archive.path, tmp_path / "out")
    assert tables.names(tmp_path / "out") == ["messages", "losses"]
    assert check(spark, tmp_path / "out", 10**9) == 0


@pytest.mark.slow
def test_spark_and_its_views_take_a_part_of_it(spark, recorded, tmp_path):
    import penstock.spark

    out = tmp_path / "out"
    tables.run(recorded.path, out)
    found = penstock.spark.table(spark, out, "stats", stream="log:b")
    assert {row["stream"] for row in found.collect()} == {"log:b"}
    assert found.agg({"messages": "sum"}).collect()[0][0] == 1001
    assert penstock.spark.table(spark, out, "stats").groupBy("stream").count().count() == 4


HEAP = """
import json, sys
import penstock.spark
from penstock.spark import queries
spark = penstock.spark.session("heap", master="local[2]", spark__driver__memory=sys.argv[2])
found = queries.by_spark(spark, sys.argv[1], "select * from stats", None, 4000.0)
print("GOT", json.dumps([{name: row[name] for name in ("messages", "bytes", "interval_p50_ns")} for row in found.to_pylist()]))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "heap"),
    [(1_000_000, "512m"), pytest.param(16_000_000, "1g", marks=pytest.mark.skipif(not LONG, reason="PENSTOCK_LONG=1"))],
)
def test_a_window_of_millions_needs_little_memory(archive, tmp_path, count, heap):
    """The times between messages and the percentiles of one window, in a JVM with a small heap."""
    step, part = 10**5, 500_000
    for first in range(0, count, part):
        numbers = range(first, min(first + part, count))
        archive.append("log:a", [b"12345678"] * len(numbers), times_ns=[number * step for number in numbers])
    tables.run(archive.path, tmp_path / "out")
    done = subprocess.run([sys.executable, "-c", HEAP, str(tmp_path / "out"), heap], capture_output=True, text=True)
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("GOT")] or [done.stderr[-2000:]]
    rows = json.loads(told.removeprefix("GOT"))
    assert rows == [{"messages": count, "bytes": 8 * count, "interval_p50_ns": step}]
