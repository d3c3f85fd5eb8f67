"""The pipeline as a command and as a loop: once, and as messages come; its driver, its JVM and its workers are killed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from conftest import LONG, heed_interrupts
from spark.terminal import without_javas

import penstock
from penstock import tables

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
    """The numbers in both tables, which must have the same rows."""
    own = tables.read(out, channel).sort_by("position")
    all_ = tables.read(out, "messages", stream=channel).sort_by("position")
    assert own["position"].to_pylist() == all_["position"].to_pylist()
    assert [json.loads(payload)["n"] for payload in all_["payload"].to_pylist()] == own["n"].to_pylist()
    return own["n"].to_pylist()


def by_duckdb_and_polars(out):
    """The numbers as other readers see them."""
    import duckdb
    import polars

    files = tables.uris(out, "log:j")
    with duckdb.connect() as db:
        rows = db.sql(
            "select n from read_parquet(?, union_by_name = true) order by position", params=[files]
        ).fetchall()
    found = polars.scan_delta(str(out / "streams" / "log_j")).sort("position").select("n").collect()["n"].to_list()
    assert found == [number for (number,) in rows]
    return found


@pytest.mark.slow
def test_once_brings_all_and_again_only_what_is_new(spark, archive, tmp_path):
    from penstock.spark.pipeline import follow

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
    for name in ("messages", "streams/log_j"):
        shutil.rmtree(out / name)
        follow(spark, archive.path, out)
        assert numbers(out) == by_duckdb_and_polars(out) == list(range(sent)), "a table that is gone is built again"


def test_messages_are_followed_until_it_is_told_to_stop(spark, archive, tmp_path):
    from penstock.spark.pipeline import follow

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
    assert len(steps) < 20, "a look without news is no step"
    assert numbers(out) == by_duckdb_and_polars(out) == list(range(40))


@pytest.mark.slow
def test_damage_stops_no_loop_and_is_told_at_the_end(spark, archive, tmp_path, caplog):
    from penstock.spark.pipeline import follow

    out = tmp_path / "t"
    more(archive, 0, 50, "log:bad")
    segment = archive.folders()[0].segments()[0]
    data = bytearray(segment.data.read_bytes())
    data[len(data) // 2] ^= 1
    segment.data.write_bytes(data)
    sent, rows = [more(archive, 0, 10)], [0]

    def until(seconds):
        if sent[0] < 30 and rows[0] >= sent[0]:
            sent[0] = more(archive, sent[0], 10)
        threading.Event().wait(min(seconds, 0.05))
        return rows[0] == 30

    def step(outcome):
        rows[0] = tables.read(out, "log:j").num_rows

    with pytest.raises(penstock.Corrupt, match="log:bad"):
        follow(spark, archive.path, out, every=0, until=until, on_step=step)
    assert numbers(out) == list(range(30))
    told = [record for record in caplog.records if "log:bad" in record.getMessage() and "byte" in record.getMessage()]
    assert len(told) == 1, "told once"


def test_two_pipelines_cannot_write_to_one_folder(spark, archive, tmp_path):
    from penstock.spark import pipeline
    from penstock.tables.folder import locked

    more(archive, 0, 1)
    with locked(tmp_path / "t"):
        for verb in (pipeline.run, pipeline.follow):
            with pytest.raises(penstock.Busy, match="another pipeline"):
                verb(spark, archive.path, tmp_path / "t")


COMMAND = [sys.executable, "-m", "penstock.cli", "pipeline", "--master", "local[2,4]", "--json"]


@contextlib.contextmanager
def following(archive, out):
    """The command, in a process group of its own, which follows the archive."""
    with subprocess.Popen(
        [*COMMAND, archive.path, "--out", out, "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        family = {process.pid: psutil.Process(process.pid)}
        try:
            yield process, family
        finally:
            for one in family.values():
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.kill()


def kin(process, family):
    """What it has started, by what it is."""
    found = {}
    for one in psutil.Process(process.pid).children(recursive=True):
        family[one.pid] = one
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(one.cmdline())
            name = "jvm" if one.name() == "java" else "worker" if "pyspark.daemon" in words else "other"
            found.setdefault(name, []).append(one)
    return found


def told(process, rows):
    """Reads what it prints until the tables have so many rows."""
    while json.loads(process.stdout.readline())["total_rows"] < rows:
        pass


def ended(family):
    gone, left = psutil.wait_procs(list(family.values()), timeout=60)
    return len(gone) == len(family) and not left


@pytest.mark.slow
def test_workers_jvms_and_drivers_are_killed(archive, tmp_path, tally):
    """kill -9 while a recorder goes on. Spark starts workers anew; without a JVM the command says so in a line; SIGTERM to all processes, as
    a service's manager sends it, ends it without a word."""
    out, sent = tmp_path / "t", more(archive, 0, 100)
    for _ in range(4 if LONG else 1):
        with following(archive, out) as (process, family):
            told(process, sent)
            for worker in kin(process, family)["worker"]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
                tally("workers killed", 1)
            sent = more(archive, sent, 50)
            told(process, sent)
            (jvm,) = kin(process, family)["jvm"]
            jvm.kill()
            sent = more(archive, sent, 50)
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 1
            assert without_javas(errors).splitlines() == ["penstock: Spark's JVM ended with signal 9"]
            assert ended(family)
        with following(archive, out) as (process, family):
            told(process, sent)
            kin(process, family)
            sent = more(archive, sent, 50)
            process.kill()
            process.communicate(timeout=60)
            assert ended(family), "a JVM ends with its driver"
        tally("drivers and JVMs killed", 2)
        sent = more(archive, sent, 50)
    with following(archive, out) as (process, family):
        told(process, sent)
        kin(process, family)
        os.killpg(process.pid, signal.SIGTERM)
        for one in family.values():  # the JVM has a group of its own
            with contextlib.suppress(psutil.NoSuchProcess):
                one.terminate()
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, without_javas(errors)) == (128 + signal.SIGTERM, "")
        assert ended(family)
    assert numbers(out) == by_duckdb_and_polars(out) == list(range(sent))
    live = {uri.removeprefix("file://") for name in tables.names(out) for uri in tables.uris(out, name)}
    assert tables.run(archive.path, out).rows == 0
    assert {str(path) for path in out.rglob("*.parquet")} == live


def launching(process, out):
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # one that looks for a Java
            if "pyspark-shell" in child.cmdline():
                return True
    return False


def working(process, out):
    return (out / ".lock").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "number"), [(launching, signal.SIGINT), (launching, signal.SIGTERM), (working, signal.SIGINT)]
)
def test_a_signal_ends_it_without_a_word_and_without_orphans(archive, tmp_path, phase, number):
    """While its JVM starts, and in its first batch; Ctrl-C as a terminal sends it, to all its processes. A later run does the rest."""
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
    tables.run(archive.path, out)
    assert numbers(out) == by_duckdb_and_polars(out) == list(range(100))
