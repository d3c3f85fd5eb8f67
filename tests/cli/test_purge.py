"""`penstock purge`, and limits of `penstock record`."""

import json
import signal
import subprocess
import sys

import pytest
from cli.running import run_here

import penstock
from penstock.record import Consumer

PATIENCE = 60
COMMAND = (sys.executable, "-m", "penstock")


@pytest.fixture
def filled(archive):
    for name in ("log:a", "log:b", "log:a"):
        with penstock.publish(name) as pub, archive.record(name):
            pub.send(b"x" * 1000)
    return archive


def ids(archive):
    return [info.id for info in archive.list()]


def test_recordings_are_deleted_by_name(filled):
    done = run_here("purge", filled.path, "1", "log:b")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "purged recording 1 of log:a: 1 message, 1.1 kB"
    assert ids(filled) == [3]


def test_the_oldest_are_deleted_by_limits(filled):
    assert run_here("purge", filled.path, "--max-age", "1h").stdout == "nothing to purge\n"
    files = sum(path.stat().st_size for path in (filled.path / "recordings").rglob("*") if path.is_file())
    done = run_here("purge", filled.path, "--max-bytes", str(files * 5 // 6), "--json")
    assert [info["id"] for info in json.loads(done.stdout)["purged"]] == [1]
    assert "log:b" in run_here("purge", filled.path, "b", "--max-bytes", "1").stdout
    assert ids(filled) == [3]


def test_a_consumers_messages_stay_unless_forced(filled):
    filled.note_consumer(Consumer("slow", None, 0, {}))
    assert "the consumer slow has yet to read" in run_here("purge", filled.path, "1").stderr
    done = run_here("purge", filled.path, "--max-bytes", "1")
    assert (done.returncode, done.stdout) == (1, "")  # the limit is not kept
    assert done.stderr.count("warning: recording") == 3
    assert run_here("purge", filled.path, "--max-bytes", "1", "--force").returncode == 0
    assert ids(filled) == []


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        ((), 2, "name recordings, or give --max-bytes or --max-age"),
        (("7",), 1, "has no recording 7"),
        (("--max-bytes", "much"), 1, "max_bytes is 'much'"),
        (("--max-age", "old"), 1, "max_age is 'old'"),
        (("log:nope", "--max-age", "1h"), 1, "no recording of log:nope"),
    ],
)
def test_mistakes_delete_nothing(filled, arguments, status, says):
    done = run_here("purge", filled.path, *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert says in done.stderr
    assert ids(filled) == [1, 2, 3]


def test_record_with_a_limit(tmp_path):
    path = tmp_path / "bag"
    with penstock.publish("log:a") as pub:
        process = subprocess.Popen(
            [*COMMAND, "record", str(path), "log:a", "--max-bytes", "10MB", "--max-age", "1h"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(b"x")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    assert "recording 1 of log:a: 1 message" in out
