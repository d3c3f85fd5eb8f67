"""The command as a user runs it: with pipes, with mistakes, in a shell where that matters."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cli.running import run_here
from conftest import heed_interrupts

import penstock


def run(*arguments, timeout=400):  # seconds: only a hang takes so long
    command = [sys.executable, "-m", "penstock.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def good(*arguments, by=run_here):
    done = by(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ls_counts_who_writes_and_who_reads():
    with (
        penstock.publish("pipe:jobs"),
        penstock.subscribe("pipe:jobs"),
        penstock.subscribe("pipe:jobs"),
        penstock.join("sync:lab", name="a"),
        penstock.join("pipe:rpc", role="reply"),
    ):
        rows = [line.split() for line in good("ls").splitlines()[1:]]
    found = {row[0]: tuple(row[4:6]) for row in rows if row}
    assert found == {"pipe:jobs": ("1", "2"), "sync:lab": ("1", "1"), "pipe:rpc": ("1", "1")}


def test_help_and_version():
    text = good("--help", by=run)
    for command in (
        "demo",
        "ls",
        "pub",
        "sub",
        "record",
        "replay",
        "verify",
        "repair",
        "consumers",
        "pipeline",
        "bench",
        "doctor",
    ):
        assert command in text
    assert good("--version", by=run).strip() == penstock.__version__


def test_lines_through_a_pipe():
    assert "3 messages" in run_here("pub", "log:x", stdin="one\ntwo\nthree\n").stderr
    assert good("sub", "log:x", "--start", "earliest", "-n", 3) == "one\ntwo\nthree\n"
    rows = [json.loads(line) for line in good("sub", "log:x", "--start", "earliest", "-n", 3, "--json").splitlines()]
    assert [row["data"] for row in rows] == ["one", "two", "three"]
    assert "log:x" in good("ls")
    assert json.loads(good("ls", "--json"))["totals"]["messages_sent"] == 3


def test_sub_says_who_sent_a_queues_message():
    with penstock.join("sync:lab", name="a", codec="json", capacity=1 << 16) as a:
        a.send({"n": 1}, type="t")
        row = json.loads(good("sub", "sync:lab", "--start", "earliest", "-n", 1, "--json"))
        assert (row["sender"], row["type"], row["data"]) == ("a", "t", {"n": 1})
        assert json.loads(good("sub", "sync:lab", "--start", "earliest", "-n", 1)) == {"n": 1}


def test_json_lines_are_objects():
    run_here("pub", "log:j", "--codec", "json", stdin='{"a": 1}\n[2]\n')
    with penstock.subscribe("log:j", start="earliest") as sub:
        assert sub.poll() == [{"a": 1}, [2]]
    failed = run_here("pub", "log:j", stdin="{wrong\n")
    assert failed.returncode == 1
    assert "line 1 is not JSON" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_pub_takes_lines_as_they_are():
    with penstock.subscribe("log:l") as lines, penstock.subscribe("log:n") as objects:
        run_here("pub", "log:l", stdin="a\r\r\nb\r\n\nc\r")
        assert lines.poll() == [b"a\r", b"b", b"", b"c\r"]
        assert "2 messages" in run_here("pub", "log:n", "--codec", "json", stdin='{"a": 1}\n\n \r\n{"a": 2}\n').stderr
        assert objects.poll() == [{"a": 1}, {"a": 2}]
        told = run_here("pub", "log:n", stdin='{"a": 3}\n\n{"a"\n{"a": 4}\n').stderr
        assert "line 3 is not JSON" in told
        assert "were sent: 1" in told


def test_arrays_from_a_file(tmp_path):
    t = np.linspace(0, 0.3, 20)
    np.savez(tmp_path / "a.npz", t=t, xyz=np.arange(60.0).reshape(20, 3))
    begun = time.monotonic()
    good("pub", "log:a", "--npz", tmp_path / "a.npz", "--realtime")
    assert time.monotonic() - begun >= 0.3
    with penstock.subscribe("log:a", start="earliest") as sub:
        records = sub.poll()
    assert [r["t"] for r in records] == list(t)
    assert records[19]["xyz"].tolist() == [57, 58, 59]
    np.savez(tmp_path / "b.npz", a=np.zeros(3), b=np.zeros(4))
    assert "different lengths" in run_here("pub", "log:b", "--npz", tmp_path / "b.npz").stderr
    (tmp_path / "c.npz").write_bytes(b"no archive")
    assert "not an .npz" in run_here("pub", "log:b", "--npz", tmp_path / "c.npz").stderr


def test_a_rate_is_kept(tmp_path):
    begun = time.monotonic()
    run_here("pub", "log:r", "--rate", "100", stdin="x\n" * 30)
    assert time.monotonic() - begun >= 0.29


def test_record_replay_verify_repair(tmp_path):
    archive = tmp_path / "archive"
    run_here("pub", "log:x", stdin="".join(f"line {i}\n" for i in range(100)))
    good("record", archive, "log:x", "--start", "earliest", "--seconds", "0.3")
    assert "100" in good("recordings", archive)
    assert json.loads(good("recordings", archive, "--json"))[0]["messages"] == 100
    assert good("replay", archive, "log:x").splitlines() == [f"line {i}" for i in range(100)]
    assert "100 messages onto log:y" in good("replay", archive, "1", "--onto", "log:y")
    assert "every byte" in good("verify", archive)
    segment = next((archive / "recordings" / "00000001").glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[40] ^= 8
    segment.write_bytes(data)
    failed = run_here("verify", archive)
    assert failed.returncode == 1
    assert "byte 40" in failed.stdout
    assert json.loads(run_here("verify", archive, "--json").stdout)[0]["offset"] == 40
    good("repair", archive)
    assert "every byte" in good("verify", archive)


@pytest.mark.slow
@pytest.mark.spark
def test_pipeline(tmp_path):
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'penstock[spark]'")
    run_here("pub", "log:x", stdin="a\nb\n")
    good("record", tmp_path / "archive", "log:x", "--start", "earliest", "--seconds", "0.2")
    said = good("pipeline", "--archive", tmp_path / "archive", "--out", tmp_path / "out", by=run)
    assert "2 new messages" in said
    options = ("--out", tmp_path / "out", "--engine", "local", "--json")
    again = json.loads(good("pipeline", tmp_path / "archive", *options))  # the tables are the same without Spark
    assert (again["engine"], again["rows"], again["total_rows"]) == ("local", 0, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sub", "pond:x"], "no kind 'pond'"),
        (["sub", "x"], "write 'log:x'"),
        (["replay", "/nowhere", "1"], "no archive"),
        (["pipeline", "--archive", "/nowhere", "--out", "/tmp/none"], "no archive"),
        (["verify", "/nowhere"], "no archive"),
        (["demo", "--channels", "pond"], "this version has log and udp"),
        (["demo", "--data", "/nowhere"], "--data /nowhere: there is no such folder"),
        (["demo", "--seconds", "0"], "more than 0"),
    ],
)
def test_mistakes_are_one_line(arguments, said):
    done = run_here(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_full_memory_is_one_line_too(tmp_path):
    place = tmp_path / "tiny"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        environment = {**os.environ, "PENSTOCK_DIR": str(place / "channels")}
        command = [sys.executable, "-m", "penstock.cli", "pub", "log:x"]
        done = subprocess.run(command, input="a\n", capture_output=True, text=True, env=environment)
        assert done.returncode == 1
        assert "enlarge the shared memory" in done.stderr
        done = subprocess.run([*command[:3], "doctor"], capture_output=True, text=True, env=environment)
        assert done.returncode == 1
        assert "bad" in done.stdout
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_doctor_looks_at_everything():
    penstock.publish("log:left", term_length=1 << 16).close()
    done = run_here("doctor", "--json")
    findings = json.loads(done.stdout)
    text = " ".join(f["what"] for f in findings)
    for word in (
        "Python",
        "channel folder",
        "shared memory",
        "went through a channel",
        "Java",
        "PySpark",
        "clock source",
    ):
        assert word in text
    assert any("log:left" in f["what"] for f in findings)
    assert "good" in run_here("doctor").stdout


def test_ctrl_c_ends_a_subscriber_quietly():
    penstock.publish("log:x", term_length=1 << 16).send(b"hello")
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "sub", "log:x", "--start", "earliest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    assert child.stdout.readline() == "hello\n"
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert (child.returncode, err.replace("Aborted.", "").strip()) == (130, "")


def test_ctrl_c_ends_a_command_quietly_during_its_imports():
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "penstock.cli.groups":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from penstock.__main__ import main
main()
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=heed_interrupts)
    assert (child.returncode, child.stdout, child.stderr) == (-signal.SIGINT, "", "")


def test_a_closed_pipe_is_no_error():
    run_here("pub", "log:x", stdin="x\n" * 20000)
    command = f"{sys.executable} -m penstock.cli sub log:x --start earliest --timeout 1 | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == "x\n"
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_counting():
    run_here("pub", "log:x", stdin="x\n" * 500)
    rows = [
        json.loads(line)
        for line in good("sub", "log:x", "--start", "earliest", "--hz", "--json", "-n", 500).splitlines()
    ]
    assert sum(row["messages_per_s"] > 0 for row in rows) == 1


@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_on_the_drive(drive, tmp_path):
    """All 183,401 messages of the drive, from its files to the table *messages*, unchanged. It leaves no channel."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    done = run("demo", "--data", drive, "--out", tmp_path / "demo", timeout=280)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "183,401 messages to 2 subscribers and the recorder; 183,401 in the table messages; 0 lost." in said
    assert "183,401 payloads and all their decoded columns compared with the files: all equal." in said
    page = (tmp_path / "demo" / "report.html").read_text()
    plots = 4 + 9  # of the transport, and one of each stream that has numbers
    assert page.count("<svg") == 2 * plots, "each is drawn wide and narrow"
    assert not re.search(r'(src|href)="http', page), "the report is self-contained"
    assert os.listdir(os.environ["PENSTOCK_DIR"]) == []


@pytest.mark.slow
@pytest.mark.spark
def test_the_demo_over_a_link_that_loses_datagrams(tmp_path):
    """This host's telemetry. Nothing is lost after retransmission, and every column of the tables is what the senders sent: it fails
    otherwise."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    done = run("demo", "--channels", "udp", "--seconds", "1", "--out", tmp_path / "udp", "--json", timeout=280)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["lost"] == 0 < result["messages"] == result["payloads_equal"]
    assert {row["name"] for row in result["streams"]} >= {"demo.cpu", "demo.disk"}
    link = {(row["sender"], row["type"]): row["messages"] for row in result["senders"]}
    assert link["to the receivers", "lost"] > 0, "the link lost nothing"
    assert os.listdir(os.environ["PENSTOCK_DIR"]) == []


@pytest.mark.parametrize("form", [(), ("--json",), ("--hz",)])
def test_frames_are_shown_without_their_pixels(form):
    with penstock.publish("frames:cli/road", shape=(2, 3), dtype="<u2") as pub:
        command = [sys.executable, "-m", "penstock.cli", "sub", "frames:cli/road", "-n", "2", *form]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pub.wait_for_readers(1, timeout=60)
        for number in range(10_000):
            pub.send(np.zeros((2, 3), "<u2"), timeout=5, meta={"gain": number})
            try:
                child.wait(0.01)
                break
            except subprocess.TimeoutExpired:
                pass
        said, complaints = child.communicate(timeout=30)
    assert (child.returncode, complaints) == (0, "")
    if form == ("--hz",):
        assert "messages/s" in said
        return
    rows = [json.loads(line) for line in said.splitlines()]
    frames = [row["data"] for row in rows] if form else rows
    assert len(frames) == 2
    assert frames[0]["shape"] == [2, 3]
    assert frames[0]["dtype"] == "<u2"
    assert frames[1]["meta"]["gain"] == frames[1]["sequence"] > frames[0]["sequence"]


def test_frames_cannot_be_made_from_lines():
    failed = run_here("pub", "frames:lines", stdin="x\n")
    assert failed.returncode == 1
    assert "shape" in failed.stderr
    with penstock.publish("frames:lines", shape=(1,)):
        pass
    failed = run_here("pub", "frames:lines", stdin="x\n")
    assert failed.returncode == 1
    assert "this channel carries frame" in failed.stderr
    assert "Traceback" not in failed.stderr
