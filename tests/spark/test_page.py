"""The programs and queries on the page on Spark run, in their order."""

import re
from pathlib import Path

import numpy as np
import pytest

import penstock

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
PAGE = Path(__file__).parents[2] / "docs" / "tables" / "spark.md"
BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)
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


def test_the_page(spark, drive, tmp_path, monkeypatch):
    from penstock.spark import pipeline, queries

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
    asked = ASKED.findall(text)
    assert len(asked) == 2
    for query in asked:
        assert queries.frame(spark, "tables", query).count() > 0
