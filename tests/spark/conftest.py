"""One Spark session for all tests that need one, and an archive to read with it."""

import importlib.util
import os
import shutil
import subprocess
import tempfile

import numpy as np
import pytest
from conftest import storage_environment

import penstock


def end_jvm():
    """Ends this process' JVM, which an earlier test may have started without the object storage in its environment."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(60)
        except subprocess.TimeoutExpired:  # a process that was forked here holds its standard input open
            gateway.proc.kill()
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def spark_environment(request):
    """The variables of Spark's Python workers: an object storage, and a folder of channels. Workers have the environment that the JVM starts with."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
    from penstock.spark.runtime.jvm import find_java

    try:
        find_java()
    except penstock.NotFound as error:
        pytest.skip(str(error))
    given = {}
    if importlib.util.find_spec("moto") is not None:
        given = storage_environment(request.getfixturevalue("object_storage"))
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    given["PENSTOCK_DIR"] = tempfile.mkdtemp(prefix="penstock-test-", dir=parent)
    end_jvm()
    yield given
    end_jvm()
    shutil.rmtree(given["PENSTOCK_DIR"], ignore_errors=True)


@pytest.fixture
def spark(spark_environment):
    """The session that the tests of this process share; a new one, if a test has stopped it."""
    from penstock.spark import session

    with pytest.MonkeyPatch.context() as patched:
        for name, value in spark_environment.items():
            patched.setenv(name, value)
        return session("tests", master="local[2]")


@pytest.fixture
def channels(spark, monkeypatch):
    """The folder of channels that Spark's workers have is this test's too."""

    def folder(_):
        import os

        return os.environ["PENSTOCK_DIR"]

    (found,) = spark.sparkContext.parallelize([0], 1).map(folder).collect()
    monkeypatch.setenv("PENSTOCK_DIR", found)
    yield
    for one in penstock.list_channels():
        penstock.remove(one.channel)


@pytest.fixture
def recorded(archive):
    """Four streams: json, a structured dtype, arrays, and plain bytes with one message in fragments."""
    pubs = {
        "log:j": penstock.publish("log:j", codec="json", term_length=1 << 16),
        "log:s": penstock.publish(
            "log:s",
            codec=np.dtype([("t", "f8"), ("id", "u2"), ("xyz", "f4", (3,)), ("tag", "S8")]),
            term_length=1 << 16,
        ),
        "log:v": penstock.publish("log:v", codec=penstock.array("<f8", (-1,)), term_length=1 << 16),
        "log:b": penstock.publish("log:b", term_length=1 << 16),
    }
    with archive.record(list(pubs)):
        for i in range(1000):
            pubs["log:j"].send(
                {"i": i, "f": i / 2 if i % 2 else i, "text": f"m{i}", "nested": {"a": [i]}, "none": None}
            )
            pubs["log:s"].send((i / 10, i, (i, i + 1, i + 2), b"tag"))
            pubs["log:v"].send(np.arange(i % 5, dtype="f8"))
            pubs["log:b"].send(b"%d" % i)
        pubs["log:b"].send(bytes(200_000))
    for pub in pubs.values():
        pub.close()
    return archive
