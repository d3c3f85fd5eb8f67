"""The pipeline as a streaming query: once, and as messages come; its driver is killed; its checkpoint is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import types

import psutil
import pytest
from conftest import LONG, heed_interrupts
from spark.terminal import without_javas

import penstock

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def more(archive, start, count, channel="log:j"):
    with penstock.publish(channel, codec="json") as pub, archive.record(channel, extend=True):
        for number in range(start, start + count):
            pub.send({"n": number})
    return start + count


def numbers(out, channel="log:j"):
    from penstock.spark import tables

    return tables.read(out, channel).sort_by("position")["n"].to_pylist()


def by_duckdb_and_polars(out):
    """The numbers as other readers see them."""
    import duckdb
    import polars

    from penstock.spark import tables

    files = tables.uris(out, "log:j")
    with duckdb.connect() as db:
        rows = db.sql(
            "select n from read_parquet(?, union_by_name = true) order by position", params=[files]
        ).fetchall()
    found = polars.scan_delta(str(out / "streams" / "log_j")).sort("position").select("n").collect()["n"].to_list()
    assert found == [number for (number,) in rows]
    return found


def test_once_brings_all_and_again_only_what_is_new(spark, archive, tmp_path):
    import shutil

    from penstock.spark.query import CHECKPOINT, follow

    out = tmp_path / "t"
    sent = more(archive, 0, 100)
    done = follow(spark, archive.path, out)
    assert (done.rows, done.total_rows, done.engine) == (100, 100, "spark")
    assert follow(spark, archive.path, out).rows == 0
    (consumer,) = archive.consumers()
    assert sum(high - low for parts in consumer.done.values() for low, high in parts) == archive.list()[0].bytes
    sent = more(archive, sent, 50)
    with pytest.raises(penstock.Busy, match=f"the consumer {consumer.name} has yet to read"):
        archive.purge(1)
    assert follow(spark, archive.path, out).rows == 50
    assert not (out / CHECKPOINT).exists(), "no query ran"
    shutil.rmtree(out / "raw")
    follow(spark, archive.path, out)
    assert numbers(out) == list(range(sent))
    from penstock.spark import tables

    assert tables.read(out, "raw").num_rows == sent, "a table that is gone is built again"


def test_a_lost_checkpoint_loses_and_doubles_nothing(spark, archive, tmp_path):
    """The tables themselves say what they have."""
    import shutil

    from penstock.spark.query import CHECKPOINT, follow

    out, sent, batches = tmp_path / "t", more(archive, 0, 10), []

    def until(seconds):
        threading.Event().wait(min(seconds, 0.05))
        return len(batches) > 1  # the first step, and the query's first batch

    for _ in range(2):
        batches.clear()
        follow(spark, archive.path, out, every=0, until=until, on_step=batches.append)
        assert [one.rows for one in batches] == [10, 0]
        shutil.rmtree(out / CHECKPOINT)
        sent = more(archive, sent, 10)
    assert follow(spark, archive.path, out).rows == 10
    assert numbers(out) == by_duckdb_and_polars(out) == list(range(sent))


def test_a_query_stops_while_a_batch_begins():
    """Spark waits for a batch that has begun when it ends a query."""
    from penstock.spark.query import Query

    class Pipeline:
        steps = 0

        def left_out(self):
            return []

        def step(self):
            self.steps += 1
            return types.SimpleNamespace(own=[])

    def stop():
        batch = threading.Thread(target=query._batch, args=(None, 2), daemon=True)
        batch.start()
        batch.join(60)
        assert not batch.is_alive(), "the batch waits for the query's end, which waits for the batch"

    pipeline, told = Pipeline(), []
    query = Query(pipeline, told.append, once=False)
    query._query = types.SimpleNamespace(isActive=False, stop=stop)
    query._batch(None, 1)
    query.stop()
    assert (pipeline.steps, query.steps, len(told)) == (1, 1, 1)


def test_messages_are_followed_until_it_is_told_to_stop(spark, archive, tmp_path):
    from penstock.spark.query import follow

    out, steps, sent = tmp_path / "t", [], [more(archive, 0, 10)]

    def until(seconds):
        rows = sum(one.rows for one in steps)
        if sent[0] < 40 and rows == sent[0]:
            sent[0] = more(archive, sent[0], 10)
        threading.Event().wait(min(seconds, 0.05))  # as the command waits for a signal
        return rows == 40

    done = follow(spark, archive.path, out, every=0, until=until, on_step=steps.append)
    assert (done.rows, done.total_rows) == (40, 40)
    assert len([one for one in steps if one.rows]) >= 4, "batch by batch"
    assert numbers(out) == by_duckdb_and_polars(out) == list(range(40))


def test_damage_stops_no_query_and_is_told_at_the_end(spark, archive, tmp_path, caplog):
    from penstock.spark.query import follow

    out = tmp_path / "t"
    more(archive, 0, 50, "log:bad")
    segment = archive.folders()[0].segments()[0]
    data = bytearray(segment.data.read_bytes())
    data[len(data) // 2] ^= 1
    segment.data.write_bytes(data)
    sent = [more(archive, 0, 10)]
    rows = [0]

    def until(seconds):
        if sent[0] < 30 and rows[0] == sent[0]:
            sent[0] = more(archive, sent[0], 10)
        threading.Event().wait(min(seconds, 0.05))
        return rows[0] == 30

    def step(outcome):
        rows[0] = outcome.total_rows

    with pytest.raises(penstock.Corrupt, match="log:bad"):
        follow(spark, archive.path, out, every=0, until=until, on_step=step)
    assert numbers(out) == list(range(30))
    assert len([r for r in caplog.records if "log:bad" in r.getMessage() and "byte" in r.getMessage()]) == 1, (
        "told once"
    )


def test_two_queries_cannot_write_to_one_folder(spark, archive, tmp_path):
    from penstock.spark.query import follow
    from penstock.spark.tables import locked

    more(archive, 0, 1)
    with locked(tmp_path / "t"), pytest.raises(penstock.Busy, match="another pipeline"):
        follow(spark, archive.path, tmp_path / "t")


COMMAND = [sys.executable, "-m", "penstock.cli", "pipeline", "--master", "local[2]", "--json"]


def test_a_driver_that_is_killed_loses_and_doubles_nothing(archive, tmp_path, tally):
    """kill -9 while a recorder goes on; then SIGTERM ends it in good order."""
    out = tmp_path / "t"
    sent = more(archive, 0, 100)
    for number in range(6 if LONG else 1):
        command = [*COMMAND, "--archive", archive.path, "--out", out, "--follow"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            sent = more(archive, sent, 50)
            for _ in range(1 + number % 3):
                assert json.loads(process.stdout.readline())["rows"] > 0
                sent = more(archive, sent, 50)  # it may be in the middle of these when it dies
            process.send_signal(signal.SIGKILL)
        tally("drivers killed", 1)
    sent = more(archive, sent, 50)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        told = 0
        while told < sent:
            told = json.loads(process.stdout.readline())["total_rows"]
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate()
    assert (process.returncode, without_javas(errors)) == (128 + signal.SIGTERM, "")
    assert numbers(out) == by_duckdb_and_polars(out) == list(range(sent))


def launching(process, out):
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # one that looks for a Java
            if "pyspark-shell" in child.cmdline():
                return True
    return False


def working(process, out):
    return (out / ".lock").exists()


@pytest.mark.parametrize(
    ("phase", "number"), [(launching, signal.SIGINT), (launching, signal.SIGTERM), (working, signal.SIGINT)]
)
def test_a_signal_ends_it_without_a_word_and_without_orphans(spark, archive, tmp_path, phase, number):
    """While its JVM starts, and in its first batch; Ctrl-C as a terminal sends it, to all its processes. A later run does the rest."""
    from penstock.spark import pipeline

    out = tmp_path / "t"
    more(archive, 0, 100)
    with subprocess.Popen(
        [*COMMAND, "--archive", archive.path, "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    ) as process:
        while process.poll() is None and not phase(process, out):
            threading.Event().wait(0.01)
        started = psutil.Process(process.pid).children(recursive=True)
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        printed, errors = process.communicate()
    assert (process.returncode, printed, without_javas(errors)) == (128 + number, "", "")
    assert started
    gone, _ = psutil.wait_procs(started, timeout=120)
    assert len(gone) == len(started)
    pipeline.run(spark, archive.path, out)
    assert numbers(out) == by_duckdb_and_polars(out) == list(range(100))
