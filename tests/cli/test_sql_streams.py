"""`penstock sql QUERY`: streams as they are now, in every form, once and again and again."""

import json
import os
import signal
import stat
import subprocess
import sys

import pyarrow as pa
import pytest

import penstock
import penstock.tables

pytest.importorskip("duckdb")


@pytest.fixture
def places(tmp_path):
    """Ten messages in the tables, ten more in the recording, ten more in memory. (archive, tables)"""
    archive, tables = penstock.Archive(tmp_path / "archive"), tmp_path / "tables"
    with penstock.publish("log:imu", codec="json") as publication:
        for end in (10, 20):
            with archive.record("log:imu"):
                for number in range(end - 10, end):
                    publication.send({"i": number, "half": number / 2})
            if end == 10:
                penstock.tables.run(archive.path, tables)
        for number in range(20, 30):
            publication.send({"i": number, "half": number / 2})
        yield str(archive.path), str(tables)


def test_an_archive_of_another_machine_is_asked(ask, tmp_path):
    pytest.importorskip("pyarrow.flight")
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:imu", codec="json") as publication, archive.record("log:imu"):
        publication.send({"i": 3})
    penstock.remove("log:imu")
    with archive.serve("127.0.0.1:0") as server:
        status, out, _ = ask("select i from 'log:imu'", "--json", "--from", server.uri)
        assert (status, out) == (0, '{"i": 3}\n')
        status, _, err = ask(server.uri, "select 1")
    assert (status, f"{server.uri}, which shows an archive alone" in err) == (1, True)


def test_the_parts_of_a_stream_are_one(ask, places):
    archive, tables = places
    query = "select count(*) as n, sum(i) as s from 'log:imu'"
    for given in ([], ["--from", archive], ["--from", tables], ["--from", archive, "--from", tables]):
        status, out, err = ask(query, "--json", *given)
        assert (status, json.loads(out), err) == (0, {"n": 30, "s": 435}, "")


def test_an_answer_has_every_form(ask, places, tmp_path):
    query = "select i, half from imu order by i"
    status, out, err = ask(query, "--limit", "2")
    assert (status, [line.split() for line in out.splitlines()]) == (0, [["i", "half"], ["0", "0"], ["1", "0.5"]])
    assert err.strip() == "the first 2 rows; --limit 0 prints all"
    status, out, _ = ask(query, "--csv", "--limit", "1")
    assert (status, out.splitlines()) == (0, ['"i","half"', "0,0"])
    file = tmp_path / "imu.arrow"
    assert ask(query, "--arrow", str(file)) == (0, "", "")
    assert pa.ipc.open_file(file).read_all()["i"].to_pylist() == list(range(30))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["select * from 'log:imx'"], "there is no stream log:imx; there is log:imu"),
        (["selec 1"], "this is not a query"),
        (["select", "*", "from"], "write the query in quotes"),
        (["select 1", "--json", "--csv"], "one of them"),
        (["select 1", "--engine", "presto"], "there are duckdb, spark, sail"),
        (["select 1", "--master", "local[2]"], "for --engine spark"),
        (["select 1", "--engine", "spark", "--master", "x"], "--master is 'x'"),
        (["tables", "select 1", "--engine", "sail"], "--engine sail is for a query without TABLES"),
        (["select 1", "--watch", "soon"], "--watch is 'soon'"),
        (["select 1", "--watch", "1ms"], "from 0.05"),
        (["select 1", "--from", "/"], "neither an archive nor tables"),
        (["select i from imu", "--arrow", "/none/x.arrow"], "/none/x.arrow cannot be written"),
        (["tables", "select 1", "--strict"], "--strict is for a query without TABLES"),
        (["tables", "select 1", "--watch", "1s"], "--watch is for a query without TABLES"),
    ],
)
def test_a_wrong_call_is_one_line(ask, places, words, text):
    status, out, err = ask(*words)
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert text in err


def test_an_output_stays_what_it_is(ask, places, tmp_path):
    """A link, a pipe, a device: a new file in its place would be another one."""
    query = "select i from imu order by i"
    real, link, pipe = (tmp_path / name for name in ("real.arrow", "link.arrow", "pipe"))
    real.write_text("old")
    link.symlink_to(real)
    assert ask(query, "--arrow", str(link)) == (0, "", "")
    assert link.is_symlink()
    assert pa.ipc.open_file(str(real)).read_all().num_rows == 30
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        assert ask(query, "--arrow", str(pipe)) == (0, "", "")
        assert pa.ipc.open_file(reader.communicate()[0]).read_all().num_rows == 30
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    if os.path.exists("/dev/full") and stat.S_ISCHR(os.stat("/dev/full").st_mode):
        (tmp_path / "full").symlink_to("/dev/full")
        status, out, err = ask(query, "--arrow", str(tmp_path / "full"))
        assert (status, out) == (1, "")
        assert "cannot be written: No space left on device" in err
        assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_two_archives_are_refused(ask, places):
    status, _, err = ask("select 1", "--from", places[0], "--from", places[0])
    assert (status, "one of each" in err) == (1, True)


def test_missing_messages_are_told_and_strict_fails(ask, tmp_path):
    archive = penstock.Archive(tmp_path / "archive")
    with penstock.publish("log:a", codec="json", capacity=65536) as publication:
        with archive.record("log:a"):
            publication.send({"i": 0})
        for number in range(10_000):
            publication.send({"i": number})
        query = ["select count(*) as n from 'log:a'", "--from", str(archive.path), "--json"]
        status, out, err = ask(*query)
        assert (status, json.loads(out)["n"] < 10_000, len(err.splitlines())) == (0, True, 1)
        assert "are missing: memory has let go of them" in err
        status, out, strict = ask(*query, "--strict")
        assert (status, out, strict.split(":")[1:] == err.split(":")[1:]) == (1, "", True)


def test_a_watched_query_ends_at_ctrl_c(places):
    """It asks again: a message that is sent meanwhile is in a later answer. Ctrl-C ends it quietly."""
    command = [sys.executable, "-m", "penstock", "sql", "select max(i) as i from imu", "--watch", "0.05s", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"i": 29}
        with penstock.publish("log:imu") as publication:
            publication.send({"i": 100, "half": 0.5})
        while json.loads(child.stdout.readline()) != {"i": 100}:
            pass
        os.kill(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
