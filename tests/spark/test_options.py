"""Arguments and options of the data source that are wrong, and errors of Spark's: one line each."""

import dataclasses
import datetime
import inspect
import re
import subprocess
import sys

import numpy as np
import pytest

import penstock
import penstock.spark.pipeline
import penstock.tables

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WRONG = [
    ({"sinse": "1"}, "no option sinse"),
    ({"stream": "log:nope"}, "no recording of log:nope; it has log:b, log:j, log:s, log:v"),
    ({"stream": "log:j,"}, "stream is 'log:j,'"),
    ({"stream": ""}, "stream is ''"),
    ({"rangeBytes": "abc"}, "rangeBytes is 'abc'"),
    ({"rangeBytes": "4 parsecs"}, "rangeBytes is '4 parsecs'"),
    ({"rangeBytes": "-1"}, "rangeBytes is '-1'"),
    ({"batchRows": "0"}, "batchRows is '0'"),
    ({"since": str(-(2**70))}, "since is"),
    ({"since": "2026-13-01T00:00:00"}, "since is '2026-13-01T00:00:00': it must be a time such as"),
    ({"until": "ereyesterday"}, "until is 'ereyesterday'"),
    ({"start": "-5"}, "start is '-5'"),
    ({"end": "x"}, "end is 'x'"),
    ({"pushdown": "1"}, "no option pushdown"),
    ({"path": ""}, "name the archive"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_wrong_options_are_errors(recorded, options, text):
    from penstock.spark.source.options import Request

    with pytest.raises(penstock.PenstockError, match=re.escape(text)) as caught:
        Request.of({"path": str(recorded.path), **options}).plan()
    assert "\n" not in str(caught.value)


def test_load_checks_before_spark_does(recorded, tmp_path):
    from penstock.spark import load

    naive = datetime.datetime(2026, 1, 1)
    wrong = [{"columns": []}, {"columns": ["stream", "stream"]}, {"columns": ["sender"]}, {"columns": "stream"}]
    wrong += [{"stream": []}, {"stream": "log:nope"}, {"since": naive}, {"since": 2**70}, {"since": 1.5}, {"start": -1}]
    for options in wrong:
        with pytest.raises(penstock.PenstockError) as caught:
            load(None, recorded.path, **options)
        assert "\n" not in str(caught.value)
    with pytest.raises(penstock.NotFound, match="there is no archive"):
        load(None, tmp_path / "none")
    with pytest.raises(penstock.Invalid, match="is a URI of hdfs"):
        load(None, "hdfs://host/archive")


@pytest.mark.slow
def test_times_may_be_datetimes_or_text(spark, recorded):
    from penstock.record import nanoseconds as moment
    from penstock.spark import load

    times = sorted(row.timestamp_ns for row in load(spark, recorded.path, columns=["timestamp_ns"]).collect())
    low = times[1500]
    for since in (low, np.datetime64(low, "ns").item(), datetime.datetime.fromtimestamp(low // 10**9, datetime.UTC)):
        expected = sum(moment(since, "since") <= time for time in times)
        text = since if isinstance(since, int) else since.isoformat()
        for given in (since, str(text)):
            assert load(spark, recorded.path, since=given, columns=["position"]).count() == expected
    text = f"{np.datetime64(low, 'ns')}"
    assert moment(f"{text}Z", "since") == moment(f"{text}+00:00", "since") == low
    assert moment("1969-12-31T23:59:59.999999999Z", "since") == -1


DYING = """
import os, sys
from penstock.cli import run
if len(sys.argv) > 3:
    os.environ["PYTHONPATH"] = sys.argv[3]
sys.exit(run(["pipeline", "--archive", sys.argv[1], "--out", sys.argv[2], "--master", "local[1]"]))
"""


@pytest.mark.slow
def test_an_error_is_one_line(recorded, tmp_path):
    """A worker of Spark's dies in the middle of a task: Spark says it in 234 lines, the command in one."""
    (tmp_path / "site").mkdir()
    dying = "import os, sys\nif any('daemon' in a or 'worker' in a for a in sys.orig_argv):\n    os._exit(9)\n"
    (tmp_path / "site" / "sitecustomize.py").write_text(dying)
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(recorded.path), str(tmp_path / "out"), str(tmp_path / "site")],
        capture_output=True,
        text=True,
    )
    told = [line for line in done.stderr.splitlines() if not re.match(r"\d\d/\d\d/\d\d|WARN|Picked up", line)]
    assert done.returncode == 1, done.stderr
    assert len([line for line in told if "Spark failed" in line]) == 1, done.stderr
    assert not any("Traceback" in line or line.startswith("\tat ") for line in told), done.stderr
    assert len(told) <= 3, done.stderr


def test_an_error_of_spark_becomes_one_line():
    from penstock.spark.runtime.failures import failure

    text = "\n".join(
        ["An error occurred", "  File x", "penstock.errors.Corrupt: a.seg: byte 3 is wrong", "\tat java", ""]
    )
    assert isinstance(failure(RuntimeError(text)), penstock.Corrupt)
    assert str(failure(RuntimeError(text))) == "a.seg: byte 3 is wrong"
    assert str(failure(RuntimeError("x\nPython worker exited unexpectedly (crashed)\n\tat y"))) == (
        "Spark failed: Python worker exited unexpectedly (crashed)"
    )
    for other in (RuntimeError(""), RuntimeError("a\nb"), RuntimeError("penstock.errors.SystemFailure: no\nb")):
        assert "\n" not in str(failure(other))


def test_run_and_follow_list_every_option_of_the_pipeline():
    from penstock.tables.options import Given, Options

    assert {field.name for field in dataclasses.fields(Options)} == set(Given.__annotations__)
    for one in (
        penstock.spark.pipeline.run,
        penstock.spark.pipeline.follow,
        penstock.tables.run,
        penstock.tables.follow,
    ):
        assert inspect.signature(one).parameters["options"].annotation == "Unpack[Given]"
        with pytest.raises(TypeError, match="compresion"):
            one(*["none"] * (2 + ("spark" in one.__module__)), compresion="zstd")
