"""Sail: the pipeline and the command by it, its server's end, and what is said where it is not installed."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

import penstock
import penstock.tables
from penstock.cli import run

pytest.importorskip("pysail", reason="Sail is not installed: pip install 'penstock[sail]'")
pytestmark = [pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@pytest.fixture
def asked(capsys):
    """Arguments of `penstock` → (status, output, errors)."""

    def ask(*arguments):
        capsys.readouterr()
        status = run(list(map(str, arguments)))
        return status, *capsys.readouterr()

    return ask


@pytest.mark.slow
def test_the_pipeline_makes_the_same_tables(recorded, tmp_path, asked):
    """In one run and in a second one, each value of each table but the time of the run."""
    for _ in range(2):
        status, out, err = asked("pipeline", recorded.path, "--out", tmp_path / "sail", "--engine", "sail", "--json")
        assert (status, err, json.loads(out)["engine"]) == (0, "", "sail")
        penstock.tables.run(recorded.path, tmp_path / "local")
        for name in ("messages", "losses", "log:j", "log:s", "log:v"):
            one, other = (
                penstock.tables.read(tmp_path / by, name).sort_by([("stream", "ascending"), ("position", "ascending")])
                for by in ("sail", "local")
            )
            assert one.schema == other.schema
            assert one.drop_columns("ingested_at").to_pylist() == other.drop_columns("ingested_at").to_pylist()
        with penstock.publish("log:j", codec="json") as publication, recorded.record("log:j", extend=True):
            publication.send({"i": -1, "fresh": "key"})
    assert penstock.tables.read(tmp_path / "sail", "log:j").num_rows == 1000 + 1


def test_what_is_sparks_alone_is_refused(recorded, tmp_path, asked):
    base = ("pipeline", recorded.path, "--out", tmp_path / "t", "--engine", "sail")
    for more in (("--tables", "x.sql"), ("--master", "local[1]"), ("--conf", "a=b")):
        status, _, err = asked(*base, *more)
        assert (status, err.splitlines()) == (
            1,
            [f"penstock: {more[0]} is Spark's: leave it out, or leave out --engine sail"],
        )
    for arguments, text in (
        (("sql", tmp_path, "select 1", "--engine", "sail"), "--engine sail is for a query without TABLES"),
        (("sql", "select 1", "--engine", "sail", "--master", "local[1]"), "for --engine spark"),
        (("sql", "select 1", "--engine", "presto"), "there are duckdb, spark, sail"),
    ):
        status, _, err = asked(*arguments)
        assert (status, len(err.splitlines())) == (1, 1)
        assert text in err


@pytest.mark.slow
def test_the_command_asks_the_same_query(asked):
    query = "select t, gyro[1] as x from 'log:imu' where time > now() - interval 5 hours order by t"
    with penstock.publish("log:imu", codec="json") as publication:
        for number in range(200):
            publication.send({"t": number, "gyro": [number / 2, 0.5]})
        by_sail, by_duckdb = (asked("sql", query, "--engine", one, "--json") for one in ("sail", "duckdb"))
        assert by_sail == by_duckdb
        assert len(by_sail[1].splitlines()) == 200
        status, out, err = asked("sql", query, "--engine", "sail")
        assert (status, len(out.splitlines()), err.strip()) == (0, 101, "the first 100 rows; --limit 0 prints all")
        wrong = [asked("sql", "select * from 'log:imv'", "--engine", one) for one in ("sail", "duckdb")]
        assert wrong[0] == wrong[1]
        assert wrong[0][2].startswith("penstock: there is no stream log:imv; there is log:imu")


def test_a_package_that_is_missing_is_one_line(monkeypatch, asked, archive, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if name == "pysail" else object())
    for arguments in (("sql", "select 1"), ("pipeline", archive.path, "--out", tmp_path / "t")):
        status, _, err = asked(*arguments, "--engine", "sail")
        what = f"{arguments[0]} --engine sail"
        assert (status, err) == (1, f"penstock: {what} needs pysail: pip install 'penstock[sail]'\n")


def test_sail_finds_the_data_source_by_itself(archive, tmp_path, monkeypatch):
    """By its entry point, which a package in front of all others brings here: the installed one may be older."""
    from penstock.spark.runtime import sail

    archive.append("log:a", [b"1", b"2"])
    there = tmp_path / "packages" / "penstock_found-1.dist-info"
    there.mkdir(parents=True)
    (there / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock-found\nVersion: 1\n")
    (there / "entry_points.txt").write_text(
        "[pysail.datasources]\npenstock = penstock.spark.source.data_source:PenstockDataSource\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(there.parent), os.environ.get("PYTHONPATH")])))
    with sail.session() as spark:
        found = spark.read.format("penstock").load(str(archive.path))
        assert sorted(row.payload for row in found.collect()) == [b"1", b"2"]
        assert found.where("position > 0").selectExpr("max(time) > timestamp'2020-01-01'").collect()[0][0]


@pytest.mark.slow
def test_tables_on_an_object_storage_are_asked(object_storage, archive, monkeypatch):
    import boto3
    from conftest import storage_environment

    from penstock.spark import lake as lakes
    from penstock.spark.runtime import sail

    for key, value in storage_environment(object_storage).items():
        monkeypatch.setenv(key, value)
    boto3.client("s3", endpoint_url=object_storage).create_bucket(Bucket="sail")
    archive.append("log:a", [{"i": number, "g": [number / 2]} for number in range(100)], codec="json")
    penstock.tables.run(archive.path, "s3://sail/tables")
    archive.append("log:a", [{"i": number, "late": "x"} for number in range(100, 120)], codec="json")
    lake = penstock.lake("s3://sail/tables", archive)
    query = "select * from 'log:a' order by position"
    with sail.session() as spark:
        assert lakes.answer(spark, lake, query)[0].to_pylist() == lake.sql(query).to_pylist()


KILLED = """
import sys, psutil, time
from penstock.spark.runtime import sail
with sail.session() as spark:
    print(*[one.pid for one in psutil.Process().children()], flush=True)
    sys.stdin.read()
"""


def test_the_server_ends_with_its_process():
    for how in (signal.SIGKILL, None):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            (server,) = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
            assert "penstock.spark.runtime.sail" in server.cmdline()
            if how is not None:
                process.send_signal(how)
            else:
                process.stdin.close()
            server.wait(60)


def test_a_server_that_is_killed_is_an_error(archive, tmp_path):
    from penstock.spark import pipeline
    from penstock.spark.runtime import sail

    archive.append("log:a", [b"1"])
    with sail.session() as spark:
        (server,) = [one for one in psutil.Process().children() if "penstock.spark.runtime.sail" in one.cmdline()]
        server.kill()
        with pytest.raises(penstock.PenstockError, match="failed"):
            pipeline.run(spark, archive.path, tmp_path / "t")
    with sail.session() as spark:
        assert pipeline.run(spark, archive.path, tmp_path / "t").rows == 1


def test_a_query_is_asked_again_and_again():
    """--watch keeps one session."""
    from penstock.cli.tables import live

    shown = []
    with penstock.publish("log:imu", codec="json") as publication:
        publication.send({"t": 0})

        def show(table):
            shown.append(table.to_pylist())
            publication.send({"t": len(shown)})
            if len(shown) == 3:
                os.kill(os.getpid(), signal.SIGINT)

        query = "select max(t) as m from 'log:imu'"
        with live.engine("sail", None, penstock.lake(), query, None, lambda found: found) as ask:
            live.watch(ask, live.FASTEST, show)
    assert shown == [[{"m": 0}], [{"m": 1}], [{"m": 2}]]
