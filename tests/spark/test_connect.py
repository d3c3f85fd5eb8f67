"""Sessions that are not Penstock's own, each in a fresh process as a user starts it: Spark Connect, spark-submit, spark-pipelines."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONG

import penstock

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = pytest.mark.spark
SOURCES = Path(penstock.__file__).resolve().parents[1]
EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
PROGRAMS = Path(pyspark.__file__).parent / "bin"

CONNECT = """
import sys
import penstock.spark
from pyspark.sql import SparkSession
archive, out = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
print("GOT", spark.read.format("penstock").load(archive).count())
frame = penstock.spark.load(spark, archive, stream="log:a", columns=["position", "payload"])
print("GOT", frame.count(), frame.selectExpr("sum(length(payload))").collect()[0][0], type(spark).__module__)
rows = spark.readStream.format("penstock").load(archive).writeStream.format("parquet").option("path", out + "/rows")
rows.option("checkpointLocation", out + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
print("GOT", spark.read.parquet(out + "/rows").count())
other = penstock.Archive(out + "/other")
other.append("log:j", [{"i": i, "g": [i / 2]} for i in range(10)], codec="json")
lake = penstock.lake(archive=other)
print("GOT", penstock.spark.sql(spark, lake, "select sum(i) as s, max(g[1]) as g from 'log:j'").collect()[0][:])
print("GOT", penstock.spark.table(spark, out, "log:j", live=True, archive=other).count())
try:
    spark.read.format("penstock").load(archive + "-none").count()
except Exception as error:
    print("TOLD", str(error).splitlines()[0])
spark.stop()
"""

SUBMIT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("GOT", spark.read.format("penstock").load(sys.argv[1]).count(), spark.sparkContext.master)
spark.stop()
"""


@pytest.fixture
def environment():
    """Where Java, Penstock and this interpreter are."""
    from penstock.spark.runtime.jvm import java_environment

    try:
        java = java_environment()
    except penstock.NotFound as error:
        pytest.skip(str(error))
    paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        **java,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "true",  # a Connect server takes a free port then, not 15002
        "PYTHONPATH": paths,
    }


@pytest.fixture
def connect():
    """Skips where Spark Connect is not installed."""
    for name in ("grpc", "grpc_status", "pandas"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'pyspark[connect]'")


@pytest.fixture
def filled(archive):
    with penstock.publish("log:a") as pub, archive.record("log:a"):
        for i in range(1000):
            pub.send(bytes(i))
    return archive


def run(command, environment, folder):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "BrokenPipeError" not in done.stderr
    return done


@pytest.mark.slow
def test_connect(filled, connect, environment, tmp_path):
    done = run([sys.executable, "-c", CONNECT, str(filled.path), str(tmp_path)], environment, tmp_path)
    got = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("GOT")]
    assert got == [
        ["1000"],
        ["1000", str(sum(range(1000))), "pyspark.sql.connect.session"],
        ["1000"],
        ["(45,", "4.5)"],
        ["10"],
    ], done.stdout
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert told.endswith(f"penstock.errors.NotFound: there is no archive at {filled.path}-none"), told


@pytest.mark.slow
def test_spark_submit(filled, environment, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SUBMIT)
    command = [str(PROGRAMS / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    done = run([*command, str(program), str(filled.path)], environment, tmp_path)
    assert [line for line in done.stdout.splitlines() if line.startswith("GOT")] == ["GOT 1000 local[1]"], done.stderr[
        -3000:
    ]


@pytest.mark.slow
def test_declarative_pipelines(filled, connect, environment, tmp_path):
    program = PROGRAMS / "spark-pipelines"
    if not program.exists():
        pytest.skip("this PySpark has no Declarative Pipelines: it takes 4.1 or newer")
    pytest.importorskip("yaml", reason="PyYAML is not installed: pip install 'pyspark[pipelines]'")
    project = tmp_path / "declarative"
    shutil.copytree(EXAMPLE, project)
    spec = project / "spark-pipeline.yml"
    text = spec.read_text().replace("/tmp/penstock-declarative", str(tmp_path / "out"))
    spec.write_text(text.replace("my-archive", str(filled.path)))
    command = [str(program), "run", "--spec", str(spec), "--conf", "spark.sql.catalogImplementation=hive"]

    def rows(name):
        import pyarrow.dataset

        files = sorted((tmp_path / "spark-warehouse" / name).glob("*.parquet"))
        return pyarrow.dataset.dataset([str(file) for file in files]).to_table()

    run(command, environment, tmp_path)
    assert rows("frames").num_rows == sum(rows("rates")["messages"].to_pylist()) == 1000
    if not LONG:
        return
    with penstock.publish("log:a") as pub, filled.record("log:a"):
        for i in range(50):
            pub.send(bytes(i))
    done = run(command, environment, tmp_path)
    assert not re.search(r"Traceback|Exception", done.stderr), done.stderr[-3000:]
    assert rows("frames").num_rows == 1050
    assert sum(rows("rates")["messages"].to_pylist()) == 1050
