"""`sub`, `ls`, `top` and `record` with patterns."""

import contextlib
import json
import signal
import subprocess
import sys

import pytest
from cli.running import run_here

import penstock

PATIENCE = 60
COMMAND = (sys.executable, "-m", "penstock")


@contextlib.contextmanager
def running(*arguments):
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_sub_prints_several_channels_and_those_that_come():
    with penstock.publish("log:robot/imu", codec="json") as imu, penstock.publish("pipe:robot/jobs") as jobs:
        with running("sub", "robot/*", "--start", "earliest", "-n", "3") as process:
            imu.send({"n": 1})
            assert process.stdout.readline() == 'log:robot/imu  {"n": 1}\n'
            with penstock.publish("ring:robot/gps") as gps:
                gps.wait_for_readers(1, timeout=PATIENCE)
                gps.send(b"50.1")
                assert process.stdout.readline() == "ring:robot/gps  50.1\n"
            with penstock.publish("log:other") as other, penstock.publish("log:robot/late") as late:
                other.send(b"not asked for")
                late.send(b"its first")
                assert process.stdout.readline() == "log:robot/late  its first\n"
            assert process.wait(PATIENCE) == 0
        assert jobs.readers == 0  # a pipe's messages go to one reader: a look at many takes none


def test_sub_of_several_as_json_and_without_any_message():
    with penstock.publish("log:a") as a, penstock.publish("log:b", codec="json") as b:
        a.send(b"x")
        b.send([1])
        done = run_here("sub", "log:a", "log:b", "--json", "--start", "earliest", "-n", "2")
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert sorted((row["channel"], row["data"]) for row in rows) == [("log:a", "x"), ("log:b", [1])]
        assert all(row["time_ns"] > 0 for row in rows)
    done = run_here("sub", "none/*", "--timeout", "0.1")
    assert (done.returncode, done.stderr) == (0, "none/*: nothing arrived for 0.1 seconds\n")


def test_sub_counts_several():
    with penstock.publish("log:a") as a, penstock.publish("log:b") as b:
        a.send(b"x" * 10)
        b.send(b"y")
        done = run_here("sub", "log:*", "--hz", "--json", "--start", "earliest", "-n", "2")
        assert done.returncode == 0, done.stderr
        rows = {row["channel"]: row for row in map(json.loads, done.stdout.splitlines())}
        assert set(rows) == {"log:a", "log:b"}
        assert rows["log:a"]["bytes_per_s"] == pytest.approx(10 * rows["log:a"]["messages_per_s"])


def test_ls_and_top_show_what_fits():
    with penstock.publish("log:robot/imu"), penstock.publish("log:other"):
        assert [json.loads(line)["channel"] for line in run_here("ls", "robot/*", "--json").stdout.splitlines()] == [
            "log:robot/imu"
        ]
        assert run_here("ls", "nothing/*", "none").stdout == "no channel is nothing/* or none\n"
        for options in ((), ("--json",)):
            done = run_here("ls", "log:none", "log:other", *options)
            assert (done.returncode, done.stderr) == (0, "warning: there is no channel log:none\n")
            assert "log:other" in done.stdout
        assert run_here("ls", "log:none", "--json").stderr == "warning: there is no channel log:none\n"
        done = run_here("top", "robot/*", "--json", "-n", "1", "--every", "0.1")
        assert [json.loads(line)["channel"] for line in done.stdout.splitlines()] == ["log:robot/imu"]
        assert "there is no channel log:robot" in run_here("top", "log:robot", "-n", "1").stderr


def test_record_all_takes_channels_until_it_ends(tmp_path):
    path = tmp_path / "bag"
    with running("record", str(path), "--all") as process, penstock.publish("log:first") as first:
        first.wait_for_readers(1, timeout=PATIENCE)
        first.send(b"1")
        with penstock.publish("log:robot/late") as late:
            late.send(b"before the recorder saw it")
            late.wait_for_readers(1, timeout=PATIENCE)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    assert "log:robot/late: 1 message" in out
    archive = penstock.Archive(path, create=False)
    assert {info.channel: info.messages for info in archive.list()} == {"log:first": 1, "log:robot/late": 1}


def test_record_wants_channels_or_all(tmp_path):
    for arguments in ((), ("log:a", "--all")):
        done = run_here("record", tmp_path / "bag", *arguments)
        assert done.returncode == 2
        assert "name channels, or give --all" in done.stderr
    assert not (tmp_path / "bag").exists()
