"""The table stats: SQL, compared with NumPy's percentiles and sums over the rows of messages; only windows that changed are computed."""

import shutil

import numpy as np
import pyarrow.compute as pc
import pytest

import penstock

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def expected(out, width):
    """(stream, start of the window in µs) → the values of its row, by NumPy."""
    from penstock.spark import tables

    messages, found = tables.read(out, "messages"), {}
    for stream in set(messages["stream"].to_pylist()):
        rows = messages.filter(pc.equal(messages["stream"], stream)).to_pylist()
        numbers = {row["timestamp_ns"] // width for row in rows}
        for number in numbers:
            inside = [row for row in rows if row["timestamp_ns"] // width == number]
            intervals = [row["interval_ns"] for row in inside if row["interval_ns"] is not None]
            latencies = [row["recorded_ns"] - row["timestamp_ns"] for row in inside]
            found[stream, number * width // 1000] = {
                "messages": len(inside),
                "bytes": sum(row["bytes"] for row in inside),
                "rate": len(inside) / (width / 1e9),
                "interval_p50_ns": float(np.percentile(intervals, 50)) if intervals else None,
                "interval_p99_ns": float(np.percentile(intervals, 99)) if intervals else None,
                "latency_p50_ns": float(np.percentile(latencies, 50)),
                "latency_p99_ns": float(np.percentile(latencies, 99)),
                "lost_bytes": sum(row["lost"] for row in inside),
                "decode_errors": sum(row["decode_error"] is not None for row in inside),
            }
    for stream, noted, lost in tables.open_table(out, "messages").state().get("waiting", []):
        nothing = {"messages": 0, "bytes": 0, "rate": 0.0, "lost_bytes": 0, "decode_errors": 0}
        nothing |= dict.fromkeys(f"{what}_p{which}_ns" for what in ("interval", "latency") for which in (50, 99))
        row = found.setdefault((stream, noted // width * width // 1000), nothing)
        row["lost_bytes"] += lost
    return found


def check(out, width):
    from penstock.spark import tables

    stats = tables.read(out, "stats")
    starts = stats["window_start"].cast("int64").to_pylist()
    found = {(row["stream"], start): row for row, start in zip(stats.to_pylist(), starts, strict=True)}
    wanted = expected(out, width)
    assert len(found) == stats.num_rows
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            # NumPy and Spark round the last bit of an interpolated percentile in their own ways.
            assert found[key][name] == (value if value is None else pytest.approx(value, rel=5e-16, abs=0)), (key, name)
    return len(found)


@pytest.mark.parametrize("window", [1.0, 1e-3, 333e-9 * 1001])
def test_stats_are_those_of_numpy(spark, recorded, tmp_path, window, tally):
    from penstock.spark import pipeline

    out = tmp_path / "out"
    pipeline.run(spark, recorded.path, out, window=window)
    tally("windows compared", check(out, pipeline.window_ns(window)))


def test_only_windows_that_changed_are_computed(spark, archive, tmp_path, monkeypatch):
    """Two streams; one goes on. The windows of the other one, and the old ones, are not computed again, and all rows stay right."""
    from penstock.spark import compacting, pipeline, stats, tables

    computed = []
    real = stats._computed
    monkeypatch.setattr(stats, "_computed", lambda *given: computed.append(given[4]) or real(*given))
    out, width = tmp_path / "out", 10**6
    with penstock.publish("log:a", codec="json") as a, penstock.publish("log:b") as b:
        for step in range(4):
            with archive.record(["log:a", "log:b"], extend=True):
                for i in range(50):
                    a.send({"i": i})
                    if not step:
                        b.send(b"%d" % i)
            pipeline.run(spark, archive.path, out, window=width / 1e9)
            check(out, width)
            if step:
                spans = computed[-1]
                assert set(spans) == {"log:a"}
                last = [row["timestamp_ns"] for row in messages(out) if row["stream"] == "log:a"][:-50]
                assert all(since > last[-1] - 2 * width for since, _ in spans["log:a"]), "windows of earlier runs"
    assert pipeline.run(spark, archive.path, out, window=width / 1e9).rows == 0
    assert len(computed) == 4, "a run without news computes nothing"
    before = len(tables.uris(out, "messages"))
    compacting.optimize(spark, out)
    assert len(tables.uris(out, "messages")) < before
    assert pipeline.run(spark, archive.path, out, window=width / 1e9).rows == 0
    assert len(computed) == 4, "nor does one after files were joined"
    pipeline.run(spark, archive.path, out, window=0.5)
    assert set(computed[-1]) == {"log:a", "log:b"}, "another window is another table"
    check(out, 5 * 10**8)


def messages(out):
    from penstock.spark import tables

    return tables.read(out, "messages").sort_by("position").to_pylist()


def test_losses_that_no_message_tells_are_in_stats(spark, archive, tmp_path):
    from penstock.spark import pipeline

    out = tmp_path / "out"
    with penstock.publish("ring:r", capacity=1 << 16) as pub:
        with archive.record("ring:r"):
            for i in range(20_000):
                pub.offer(b"%d" % i)
        pipeline.run(spark, archive.path, out, window=1e-4)
    assert archive.list()[0].lost_bytes == sum(row["lost_bytes"] for row in expected(out, 10**5).values())
    check(out, 10**5)


def test_stats_are_mended_when_messages_go(spark, archive, tmp_path):
    """A recording that is cut back takes its windows with it."""
    from penstock.spark import pipeline

    out = tmp_path / "out"
    with penstock.publish("log:a") as pub:
        for part in (200, 100):
            with archive.record("log:a", extend=True):
                for i in range(part):
                    pub.send(b"%d" % i)
        pipeline.run(spark, archive.path, out, window=1e-5)
        before = check(out, 10**4)
        archive.truncate("log:a", messages(out)[200]["position"])
        pipeline.run(spark, archive.path, out, window=1e-5)
    assert check(out, 10**4) < before
    left = archive.find("log:a").messages
    assert 0 < left < 300
    assert sum(row["messages"] for row in expected(out, 10**4).values()) == left


def test_tables_made_from_messages_follow_when_it_is_removed(spark, archive, tmp_path):
    """Its new log begins again: a version of it says nothing about the table that went."""
    from penstock.spark import pipeline, tables

    out, own = tmp_path / "out", tmp_path / "own.sql"
    own.write_text("CREATE TABLE counted AS SELECT count(*) AS rows, max(position) AS last FROM messages;\n")
    with penstock.publish("log:a") as pub:
        for part in (20, 30):
            with archive.record("log:a", extend=True):
                for i in range(part):
                    pub.send(b"%d" % i)
            if part == 30:
                shutil.rmtree(out / "messages")
            outcome = pipeline.run(spark, archive.path, out, window=1e-4, own=[own])
            version = tables.open_table(out, "messages").version
            if part == 20:
                before = version
    assert outcome.total_rows == 50
    assert version == before, "else the test does not try what it is for"
    check(out, 10**5)
    assert tables.read(out, "counted")["rows"].to_pylist() == [50]
    assert tables.read(out, "raw").num_rows == 50
