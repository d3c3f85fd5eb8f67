"""Spark finds the source by itself, in a session of the user's own; a wrong interpreter is told in a sentence."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spark.terminal import without_javas

import penstock

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = pytest.mark.spark
SOURCES = Path(penstock.__file__).resolve().parents[1]

PLAIN = """
import os, sys
import penstock.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("COUNT", spark.read.format("penstock").load(sys.argv[1]).count())
spark.sql(f"CREATE TEMPORARY VIEW frames USING penstock OPTIONS (path '{sys.argv[1]}', stream 'log:j')")
print("COUNT", spark.sql("SELECT * FROM frames").count())
stream = spark.readStream.format("penstock").load(sys.argv[1]).writeStream.format("memory").queryName("all")
stream.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start().awaitTermination()
print("COUNT", spark.table("all").count())
spark.stop()
os.environ["PYSPARK_PYTHON"] = sys.argv[3]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    penstock.spark.load(spark, sys.argv[1])
except penstock.NotFound as error:
    print("TOLD", error)
spark.stop()
"""

WRONG = """
import os, sys
import penstock.spark
spark = penstock.spark.session("wrong")
def attempt(name, what):
    try:
        what()
    except Exception as error:
        print("TOLD", name, str(error).splitlines()[0])
        lines = str(error).splitlines()
        assert not [line for line in lines if "Traceback" in line or line.startswith("  File ")], error
def stream(name, **options):
    frames = spark.readStream.format("penstock").options(**options).load(archive)
    frames.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()
archive = sys.argv[1]
plain = spark.read.format("penstock")
attempt("good", lambda: print("GOT", plain.load(archive).count(), len(plain.load(archive).limit(2).collect())))
attempt("missing", lambda: plain.load(archive + "-none").count())
attempt("option", lambda: spark.read.format("penstock").option("sinse", 3).load(archive).count())
attempt("column", lambda: spark.read.format("penstock").schema("foo INT").load(archive).count())
attempt("path", lambda: plain.load())
attempt("stream", lambda: stream("all"))
attempt("streaming", lambda: stream("bad", failOnDataLoss="x"))
spark.sql(f"CREATE TABLE frames USING penstock OPTIONS (path '{archive}')")
attempt("table", lambda: spark.sql("SELECT count(*) FROM frames").collect())
spark.sql(f"CREATE VIEW some AS SELECT * FROM frames WITH (path '{archive}', stream 'log:j')")
print("GOT", spark.sql("SELECT count(*) FROM some").collect()[0][0], spark.table("all").count())
from penstock.spark import pipeline
with open("own.sql", "w") as file:
    file.write("create table divided as select i / (i - 5) as x from log_j;")
print("TOLD", "own", pipeline.run(spark, archive, "tables", own=["own.sql"]).own[0].error)
damaged = sorted(__import__("pathlib").Path(archive).glob("recordings/*/*.seg"))[0]
raw = bytearray(damaged.read_bytes())
raw[1000] ^= 4
damaged.write_bytes(raw)
attempt("damaged", lambda: print("KEPT", plain.load(archive).agg({"payload": "count"}).collect()[0][0]))
print("NEXT", file=sys.stderr, flush=True)
mark = os.path.abspath("mark")
def once(batches):
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        yield from batches
    else:
        os.kill(os.getpid(), 9)
positions = penstock.spark.load(spark, archive, columns=["position"], stream="log:s")
print("COUNT", positions.mapInArrow(once, "position bigint").count())
from pyspark import SparkContext
from penstock.spark.runtime import jvm
group = SparkContext._gateway.proc.pid
os.killpg(group, 19)
__import__("threading").Timer(1, os.killpg, (group, 9)).start()
print("LAST", file=sys.stderr, flush=True)
jvm.stop(spark)
"""


def run(program, *arguments, cwd=None, **more):
    from penstock.spark.runtime.jvm import java_environment

    environment = {**os.environ, **java_environment(), "SPARK_LOCAL_IP": "127.0.0.1", **more}
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    paths = [str(SOURCES), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment, cwd=cwd
    )


@pytest.mark.slow
def test_a_plain_session_finds_the_source(recorded, tmp_path):
    """And the next one of its JVM says so where the workers' interpreter has no Penstock."""
    other = tmp_path / "python-of-another"
    other.write_text(f'#!/bin/sh\nexec env -u PYTHONPATH {sys.executable} -S "$@"\n')
    other.chmod(0o755)
    done = run(PLAIN, str(recorded.path), str(tmp_path / "checkpoint"), str(other))
    counts = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("COUNT")]
    assert counts == ["4001", "1000", "4001"], done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert "cannot import penstock" in told
    assert f"Set PYSPARK_PYTHON={sys.executable}" in told


@pytest.mark.slow
def test_errors_are_a_line_and_nothing_else_is_on_the_terminal(recorded, tmp_path):
    """Then a worker is killed, and its work is done again: also where no master was named. `local[*]` would fail the job. At last the JVM
    is killed while its session is stopped."""
    archive = recorded.path
    done = run(WRONG, str(archive), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    told = dict(line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("TOLD"))
    assert [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("GOT")] == [
        ["4001", "2"],
        ["1000", "4001"],
    ]
    assert told["missing"].endswith(f"penstock.errors.NotFound: there is no archive at {archive}-none")
    assert "penstock.errors.Invalid: there is no option sinse; there are path" in told["option"]
    assert "penstock.errors.Invalid: recordings have no column foo" in told["column"]
    assert "penstock.errors.Invalid: name the archive" in told["path"]
    assert "penstock.errors.Invalid: failOnDataLoss is 'x': it must be true, false or mark" in told["streaming"]
    assert "FROM frames WITH (path 'ARCHIVE')" in told["table"]
    assert told["own"].startswith("own.sql:1: divided: Division by zero.")
    assert set(told) == {"missing", "option", "column", "path", "streaming", "table", "own"}
    # A damaged block costs that block, which a warning names.
    kept = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("KEPT")]
    assert len(kept) == 1
    assert 3000 <= kept[0] < 4001
    assert len(recorded.verify()) == 1
    # One line of Spark's log for the query that failed, and one for the damage; Java's and PySpark's own warnings aside.
    before, _, _ = without_javas(done.stderr).partition("NEXT\n")
    said = [line for line in before.splitlines() if line.strip() and "pandas" not in line]
    assert len(said) == 2, done.stderr
    assert said[0].split()[1:3] == ["ERROR", "MicroBatchExecution:"]
    assert re.search(r"the block at position \d+ is wrong: byte 1000 alone explains it", said[1])
    assert "failOnDataLoss is 'x'" in said[0]
    assert "COUNT 1000" in done.stdout.splitlines(), done.stderr[-3000:]
    assert (tmp_path / "mark").exists()
    assert without_javas(done.stderr.partition("LAST\n")[2]) == ""


def test_a_dead_consumer_is_forgotten_by_a_command(archive):
    from penstock.record import Consumer

    archive.note_consumer(Consumer("dead", ("log:x",), 10**18, {("log:x", 5): [(0, 64)]}))
    command = [sys.executable, "-m", "penstock", "consumers", str(archive.path)]
    shown = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert json.loads(shown.stdout) == [{"name": "dead", "channels": ["log:x"], "updated_ns": 10**18}], shown.stderr
    assert subprocess.run([*command, "--forget", "dead"]).returncode == 0
    assert archive.consumers() == []
    gone = subprocess.run([*command, "--forget", "dead"], capture_output=True, text=True)
    assert gone.returncode == 1
    assert "no consumer dead; it has none" in gone.stderr


def test_a_query_ends_without_a_trace_when_its_jvm_dies(capsys):
    from penstock.spark.runtime import workers

    for error in (BrokenPipeError(32, "Broken pipe"), EOFError()):
        workers.report_unless_closed(type(error), error, None)
    assert capsys.readouterr().err == ""
    workers.report_unless_closed(ValueError, ValueError("of a user"), None)
    assert "ValueError: of a user" in capsys.readouterr().err
