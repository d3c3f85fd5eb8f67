"""The programs and queries on the pages on tables and on Spark run, in their order."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PAGES = Path(__file__).parents[2] / "docs" / "tables"
PAGE = PAGES / "spark.md"
BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for line in re.findall(r"^penstock .*$", (PAGES / "tables.md").read_text(), re.MULTILINE)
    if "s3://" not in line and not line.startswith("penstock sql")
]
ASKED = re.compile(r'^penstock sql tables "([^"]+)"', re.MULTILINE)


@pytest.fixture
def drive(archive):
    """The archive of the page: a stream with a speed, and one of the drive's."""
    with (
        penstock.publish("log:imu", codec="json") as imu,
        penstock.publish("log:speed", codec=np.dtype([("t", "f8"), ("value", "f8", (1,))])) as speed,
        archive.record(["log:imu", "log:speed"]),
    ):
        for i in range(100):
            imu.send({"speed": i / 10})
            speed.send((i / 10, [i / 10]))
    return archive


@pytest.mark.slow
def test_the_page(spark, drive, tmp_path, monkeypatch):
    from penstock.spark import pipeline

    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    blocks = BLOCK.findall(text)
    files = []
    for _, code in blocks:
        if named := re.match(r"(?:--|#) (my\.(?:sql|py))\n", code):
            files.append(tmp_path / named[1])
            files[-1].write_text(code)
    assert [file.name for file in files] == ["my.sql", "my.py"]
    done = pipeline.run(spark, drive.path, "tables", own=files)
    assert [(one.name, one.error) for one in done.own] == [("speeds", None), ("fastest", None)]
    names, started = {}, []
    spark.sql(f"create database page location '{tmp_path / 'page'}'")
    spark.sql("use page")
    try:
        for kind, code in blocks:
            # Spark's planners have the working directory of the JVM.
            code = re.sub(
                r"""(["'])(my-archive|other-archive|rows|checkpoint|progress|tables[\w/]*)\1""",
                rf"\1{tmp_path}/\2\1",
                code,
            )
            code = code.replace(f"{tmp_path}/my-archive", str(drive.path))
            if re.match(r"(--|#) my\.", code):
                continue
            if kind == "python":
                exec(compile(code, str(PAGE), "exec"), names)
                if (query := names.pop("query", None)) is not None:  # the page uses the name again
                    started.append(query)
            else:
                answers = [spark.sql(one).collect() for one in code.split(";") if one.strip()]
                assert answers[-1][0][0] == 100
    finally:
        spark.sql("use default")
        spark.sql("drop database page cascade")
        spark.catalog.dropTempView("imu")
    assert len(started) == 2
    for query in started:
        query.awaitTermination()
    assert spark.read.parquet(f"{tmp_path}/rows").count() == 200


@pytest.mark.slow
def test_the_page_of_tables(spark, archive, tmp_path, monkeypatch):
    import penstock.tables
    from penstock.spark import queries

    monkeypatch.setattr(penstock.spark, "session", lambda *_, **__: spark)
    monkeypatch.chdir(tmp_path)
    for first in (0, 50):
        archive.append("log:imu", [{"px": n / 10, "gyro": [n, 1, 2]} for n in range(first, first + 50)], codec="json")
    os.symlink(archive.path, "my-archive")
    penstock.tables.run("my-archive", "tables")
    text = (PAGES / "tables.md").read_text()
    ran, names = [], {}
    for kind, code in BLOCK.findall(text):
        if kind == "sql":
            assert queries.frame(spark, "tables", code).count() == 100
        else:
            code = code.replace('"tables"', repr(str(tmp_path / "tables"))) if "spark" in code else code
            exec(compile(code, "tables.md", "exec"), names)
        ran.append(kind)
    assert ran.count("python") == 5
    for query in ASKED.findall(text):
        assert queries.by_spark(spark, str(tmp_path / "tables"), query, 5).num_rows
        assert queries.by_duckdb(str(tmp_path / "tables"), query, 5).num_rows
    assert len(ASKED.findall(text)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_of_tables(line, archive, tmp_path):
    """Each command is tried as it is written, but without a JVM where that changes nothing."""
    archive.append("log:imu", [{"px": 0.5, "ts": "2026-01-31T12:00:00Z"}] * 9, codec="json")
    os.symlink(archive.path, tmp_path / "my-archive")
    (tmp_path / "schemas.txt").write_text("log:imu=px double\n")
    words = shlex.split(line)
    words += ["--engine", "local"] if words[1] == "pipeline" and "--engine" not in words else []
    if "--rebuild" in line:
        penstock.tables.run(archive.path, tmp_path / "tables")
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = penstock.tables.read(tmp_path / "tables", "log:imu")
    assert found.num_rows == 9
    assert str(found.schema.field("px").type) == "double"
