"""How calls of the command end: one line of error, a status, outputs that fail, signals, JSON that is JSON."""

import datetime
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cli import running
from conftest import heed_interrupts
from ports import free_port

import penstock
from penstock import cli
from penstock.cli import ending
from penstock.cli.terminal.plain import as_json

COMMAND = (sys.executable, "-m", "penstock")


@pytest.fixture
def run(tmp_path_factory, monkeypatch):
    """Calls the command in this process; it works in an empty folder of its own."""
    folder = tmp_path_factory.mktemp("cwd")

    def call(*arguments, **options):
        return running.here(*arguments, **{"folder": folder, **options})

    return call


def shell(script):
    script = f'set -o pipefail; P="{sys.executable} -m penstock"; {script}'
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=300)


@pytest.fixture
def filled():
    with penstock.publish("log:x", term_length=1 << 16) as pub:
        for number in range(300):
            pub.send(b"line %d" % number)
        yield pub


def test_what_is_logged_as_the_process_ends_is_a_warning():
    """Publications on the network close then."""
    late = "atexit.register(logging.getLogger('penstock').warning, 'bytes were not received')"
    code = f"import atexit, logging, sys; from penstock.cli import main; {late}; sys.argv[1:] = ['--version']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "warning: bytes were not received\n")


def refused(done, said, status=1):
    assert (done.status, done.out) == (status, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("penstock: ")
    assert said in done.err
    assert "fault of Penstock's own" not in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sub", "log:x", "--start", "--5"], "newest, earliest or a position"),
        (["sub", "log:x", "--start", "²"], "newest, earliest or a position"),
        (["sub", "log:x", "--timeout", "nan", "--hz"], "--timeout is nan"),
        (["record", "a", "log:x", "--seconds", "nan"], "--seconds is nan"),
        (["replay", "a", "log:x", "--start", "-5"], "--start is '-5'"),
        (["replay", "a", "log:x", "--start", 2**70], "from 0 to below 2**63"),
        (["replay", "a", "log:x", "--since", "inf"], "--since is 'inf': it must be a time"),
        (["replay", "a", "log:x", "--until", "1700000000"], "write @1700000000 for seconds"),
        (["replay", "a", "²"], "no archive at a"),
        (["pub", "log:x", "--realtime"], "--realtime needs --npz"),
        (["pub", "zmq+ipc:///x", "--capacity", 65536], "no option 'capacity'"),
        (["record", "/dev/null/x", "log:x"], "/dev/null/x"),
        (["sql", "o", "select 1", "--window", "1e-10"], "--window is 1e-10"),
        (["sql", "o", "select 1", "--window", "inf"], "--window is inf"),
        (["pipeline", "--archive", "a", "--out", "o", "--compression", "rar"], "there are snappy"),
        (["pipeline", "--archive", "a", "--out", "o", "--master", "bogus"], "local[*]"),
        (["pipeline", "--archive", "a", "--out", "o", "--every", "soon"], "--every is 'soon'"),
        (["pipeline", "--archive", "a", "--out", "o", "--once", "--follow"], "name one of them"),
        (["pipeline", "--out", "o"], "ARCHIVE is missing"),
        (["pipeline", "a", "--archive", "b", "--out", "o"], "a and --archive b: name one archive"),
        (["pipeline", "a", "--out", "o"], "no archive at a"),
        (["pipeline", "--out", "o", "--optimize"], "o holds no tables"),
        (["demo", "--seconds", "nan"], "--seconds is nan"),
        (["rm", "log:none", "log:[red]"], "no channel log:none"),
        (["verify", "a\nb[/x]:camera:"], r"no archive at a\nb[/x]:camera:"),
    ],
)
def test_an_impossible_command_is_one_line(run, arguments, said, tmp_path):
    refused(run(*arguments, folder=tmp_path), said)
    assert [p for p in os.listdir(tmp_path) if p != "a"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sub"], "Missing argument"),
        (["sub", "log:x", "--nosuch"], "No such option"),
        (["nosuch"], "No such command"),
        (["rm"], "--unused"),
        (["record", "log:x", "log:y"], "is a channel"),
        (["pipeline", "--archive", "hdfs:///x", "--out", "o"], "is a URI"),
        (["verify", ""], "empty"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line_and_status_2(run, arguments, said, tmp_path):
    refused(run(*arguments, folder=tmp_path), said, status=2)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["Q[/b]Z", "Q[red]Z", ":camera:", "[link=x]y"])
def test_an_archives_name_is_printed_as_it_is(run, name, tmp_path, filled):
    with penstock.Archive(tmp_path / name).record("log:x", start="earliest"):
        pass
    assert f"{tmp_path}/{name}: 1 recording, " in run("verify", tmp_path / name).out
    assert run("repair", tmp_path / name).status == 0
    segment = next((tmp_path / name).rglob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[40] ^= 8
    segment.write_bytes(data)
    assert f"{segment}: byte 40" in run("verify", tmp_path / name).out
    assert f"{tmp_path}/{name}/" in run("repair", tmp_path / name).out


@pytest.mark.parametrize("channel", ["log:camera", "log:x", "log:battery", "ring:new"])
@pytest.mark.parametrize("styled", [False, True])
def test_a_channel_is_not_an_emoji(run, channel, styled, tmp_path, monkeypatch):
    """Neither in a pipe nor where there are colours."""
    if styled:
        monkeypatch.setenv("FORCE_COLOR", "1")
    penstock.publish(channel).close()
    assert f"recording 1 of {channel}: 0 messages" in run("record", tmp_path / "a", channel, "--seconds", 0).out
    assert f"{channel}: nothing arrived" in run("sub", channel, "--timeout", 0).err
    assert f"removed {channel}" in run("rm", channel).out


def test_rm_takes_patterns_and_lists_what_it_removed(run, filled):
    for name in ("log:robot/a", "ring:robot/b", "log:other"):
        penstock.publish(name).close()
    failed = run("rm", "nosuch*", "robot/*")
    assert failed.out == "removed log:robot/a\nremoved ring:robot/b\n"
    assert (failed.status, "no channel is nosuch*" in failed.err) == (1, True)
    assert [found.channel for found in penstock.list_channels("robot/*")] == []
    refused(run("rm", "robot/*"), "no channel is robot/*")
    with penstock.publish("log:robot/a"):
        penstock.publish("log:robot/b").close()
        assert run("rm", "--unused", "robot/*").out == "removed log:robot/b\n"
        assert run("rm", "--unused", "robot/*", "log:robot/a").out == "no unused channels\n"
        assert run("rm", "log:robot/*").out == "removed log:robot/a, which 1 process has open\n"
    assert [found.channel for found in penstock.list_channels("other")] == ["log:other"]


def test_a_closed_pipe_is_no_error(run, filled, tmp_path):
    with penstock.Archive(tmp_path / "a").record("log:x", start="earliest"):
        pass
    for call in ("sub log:x --start earliest", f"replay {tmp_path}/a log:x --json"):
        done = shell(f"$P {call} | head -n 1 >/dev/null")
        assert (done.returncode, done.stderr) == (0, ""), call
    for call in (
        "ls",
        "ls --json",
        f"recordings {tmp_path}/a",
        "doctor --json",
        "--help",
        "sub log:x --start earliest",
    ):
        done = run(*call.split(), stdout="closed pipe")
        assert (done.status, done.err) == (0, ""), call


def test_a_full_device_is_one_line(run, filled):
    said = "penstock: cannot write to standard output: No space left on device\n"
    for call in ("ls", "ls --json", "sub log:x --start earliest -n 5", "doctor", "--help", "--version"):
        done = run(*call.split(), stdout="full")
        assert (done.status, done.err) == (1, said), call
    done = shell("$P ls >/dev/full")
    assert (done.returncode, done.stderr) == (1, said)  # and the interpreter adds nothing at its end
    done = shell("echo a | $P pub log:y 2>/dev/full")  # every message was published
    assert done.returncode == 0
    done = shell("$P pub log:y <&-")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert shell("$P ls >&- 2>&-").returncode == 0


def test_messages_that_nobody_receives_are_an_error():
    done = shell(f"echo a | $P pub udp://127.0.0.1:{free_port()}/1")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert re.match("penstock: udp://.*: nobody received the last 64 bytes of the stream", done.stderr)


def test_an_output_without_utf8_gets_backslashes(run):
    with penstock.publish("log:x", term_length=1 << 16) as pub:
        pub.send("ä😀 \udcff".encode("utf-8", "surrogateescape"))
        pub.send("ä".encode())
    done = run("sub", "log:x", "--start", "earliest", "-n", 2, encoding="ascii")
    assert (done.status, done.out) == (0, "\\xe4\\U0001f600 \\xff\n\\xe4\n")


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_seals_the_recording(name, filled, tmp_path):
    child = subprocess.Popen(
        [*COMMAND, "record", tmp_path / "a", "log:x", "--start", "earliest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    filled.wait_for_readers(1, timeout=60)
    number = getattr(signal, f"SIG{name}")
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == (0 if name == "INT" else 128 + number)
    assert (err, "300 messages" in out) == ("", True)
    (info,) = penstock.Archive(tmp_path / "a").list()
    assert (info.state, info.messages) == ("closed", 300)


def test_nohup_is_respected(filled):
    child = subprocess.Popen(
        [*COMMAND, "sub", "log:x", "--start", "earliest", "-n", "301"],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert child.stdout.readline() == b"line 0\n"
    child.send_signal(signal.SIGHUP)
    filled.send(b"last")
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out[-5:]) == (0, b"last\n")


NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "json_value"),
    [
        (float("nan"), "NaN"),
        ([float("inf"), -float("inf"), 1.5], ["Infinity", "-Infinity", 1.5]),
        (NOW, "2026-01-01T12:00:00+00:00"),
        (datetime.timedelta(milliseconds=1500), 1.5),
        (b"text", "text"),
        (b"\xff\x00", "\\xff\x00"),
        ("a\udcffb\ud800", "a\\xed\\xb3\\xbfb\\xed\\xa0\\x80"),
        ("a\udcffb", "a\\xffb"),
        (1 + 2j, [1.0, 2.0]),
        ({b"k": 1, 2: "x", None: NOW}, {"k": 1, "2": "x", "null": "2026-01-01T12:00:00+00:00"}),
        ({b"k": 1, "k": 2}, [["k", 1], ["k", 2]]),
        (msgspec.msgpack.Ext(5, b"x"), {"ext": 5, "data": "x"}),
        (np.array([[1, 2]], "u1"), [[1, 2]]),
        (np.float32("nan"), "NaN"),
        (np.longdouble(1.5), 1.5),
        (np.clongdouble(1), [1.0, 0.0]),
        (np.datetime64("2026-01-01T00:00", "s"), "2026-01-01T00:00:00"),
        (np.datetime64("NaT", "s"), "NaT"),
        (np.timedelta64(1500, "ms"), 1.5),
        (np.timedelta64(3, "M"), 3),
        (np.void(b"\xffa"), "\\xffa"),
        (np.array([(1, b"x")], [("a", "i4"), ("b", "S2")])[0], {"a": 1, "b": "x"}),
        (np.zeros(2, [("a", "i4", (2,))]), [{"a": [0, 0]}, {"a": [0, 0]}]),
        (2**70, 2**70),
        (True, True),
        ({1, }, [1]),
    ],
)  # fmt: skip
def test_every_value_has_one_form_in_json(value, json_value):
    def refuse(name):
        raise AssertionError(name)

    assert json.loads(as_json({"v": value}), parse_constant=refuse) == {"v": json_value}


def test_long_and_deep_values_are_json_too():
    deep = msgspec.json.decode(b"[" * 300 + b"]" * 300)
    assert json.loads(as_json(deep)) == deep
    assert json.loads(as_json(10**5000)) == hex(10**5000)


def test_messages_that_are_no_json_are_printed_as_json(run):
    with penstock.publish("log:m", codec="msgpack", term_length=1 << 16) as pub:
        for value in ({b"k": float("nan")}, NOW, {1: [NOW]}):
            pub.send(value)
    done = run("sub", "log:m", "--start", "earliest", "-n", 3, "--json")
    rows = [json.loads(line)["data"] for line in done.out.splitlines()]
    assert rows == [{"k": "NaN"}, NOW.isoformat(), {"1": [NOW.isoformat()]}]
    assert run("sub", "log:m", "--start", "earliest", "-n", 1).out == '{"k": "NaN"}\n'


def test_rm_removes_what_is_named_and_what_nobody_has_open(run):
    with penstock.publish("log:open", term_length=1 << 16):
        for name in ("log:a", "log:b", "ring:c"):
            penstock.publish(name).close()
        assert run("rm", "log:a").out == "removed log:a\n"
        assert run("remove", "log:b").out == "removed log:b\n"
        assert run("rm", "--unused").out == "removed ring:c\n"
        assert run("rm", "--unused").out == "no unused channels\n"
        assert [status.channel for status in penstock.list_channels()] == ["log:open"]
    done = run("rm", "log:none", "log:open")
    assert (done.status, done.out) == (1, "removed log:open\n")
    assert "no channel log:none" in done.err


def test_ls_and_doctor_name_a_strange_file(run, channel_folder):
    penstock.publish("log:x", term_length=1 << 16).close()
    (channel_folder / "y.log").write_text("no channel")
    done = run("ls")
    assert (done.status, "log:x" in done.out) == (0, True)
    assert done.err.count(f"{channel_folder}/y.log is left out") == 1
    found = json.loads(run("doctor", "--json").out)
    assert any(f["level"] == "note" and f"{channel_folder}/y.log" in f["what"] for f in found)


@pytest.mark.parametrize("place", ["/", "/tmp", "/dev/shm", "/proc"])
def test_no_advice_to_close_a_folder_that_others_need(run, place, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIR", place)
    for call in (("ls",), ("doctor",), ("pub", "log:x")):
        done = run(*call)
        assert done.status == 1
        assert "chmod" not in done.out + done.err


def test_one_file_of_the_command_knows_rich():
    """So that text is read as markup nowhere: that file prints text only."""
    folder = Path(cli.__file__).parent
    knows = [
        path.name for path in folder.rglob("*.py") if re.search(r"^\s*(from|import) rich\b", path.read_text(), re.M)
    ]
    assert knows == ["output.py"]
    assert "from_markup" not in (folder / "terminal/output.py").read_text()


def test_both_ways_to_call_it():
    for module in ("penstock", "penstock.cli"):
        done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
        assert (done.returncode, done.stdout.strip()) == (0, penstock.__version__)


IN_A_FINALIZER = """
import os, sys, threading
import penstock.cli as cli
class Handle:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        sys.getrefcount(self)
@cli.app.command()
def busy() -> None:
    Handle()
    threading.Event().wait(200)
sys.exit(cli.run(["busy"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_a_finalizer_is_not_lost(number):
    """Python cannot raise from one: it would print the exception and go on."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FINALIZER, str(int(number))],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=heed_interrupts,
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize(("first", "status"), [(KeyboardInterrupt(), 130), (ending.Signalled(15), 143)])
def test_a_signal_is_the_status_even_if_a_library_stumbles(first, status, capsys):
    """As py4j does, which finds half an answer in its connection when Spark is stopped."""
    with pytest.raises(KeyError) as caught:
        try:
            raise first
        finally:
            {}["p"]
    assert ending.status(caught.value) == status
    assert capsys.readouterr().err == ""


IN_AN_EXEC = """
import signal, sys
from penstock import cli
@cli.app.command()
def busy() -> None:
    exec("signal.raise_signal(signal.SIGINT)")
sys.argv = ["penstock", "busy"]
cli.main()
"""


def test_ctrl_c_in_code_that_is_made_has_the_same_status(tmp_path):
    """A dataclass or a named tuple is made by `exec`; CPython would end a module by the signal itself, however the call ended."""
    (tmp_path / "interrupted.py").write_text(IN_AN_EXEC)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True, preexec_fn=heed_interrupts
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")
