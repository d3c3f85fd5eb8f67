"""`penstock play`: keys and a control channel, loops, the clock."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading

import pytest

import penstock
from penstock.cli import run
from penstock.cli.recordings import pacing
from penstock.record import Pace

SECOND = 10**9
PATIENCE = 60


@pytest.fixture
def drive(archive):
    """Ten messages, an hour apart: none but the first is played in time."""
    archive.append(
        "log:n", [{"n": n} for n in range(10)], codec="json", times_ns=[n * 3600 * SECOND for n in range(10)]
    )
    return archive


def test_keys_change_the_pace():
    pace = Pace(1.0)
    for key in " ":
        pacing.press(pace, key)
    assert pace.paused
    for key in " ++-x":
        pacing.press(pace, key)
    assert (pace.paused, pace.rate, pace.stopped) == (False, 2.0, False)
    pacing.press(pace, "q")
    assert pace.stopped


WRONG = [
    7,
    None,
    {},
    {"do": "jump"},
    {"do": ["stop"]},
    {"do": "rate"},
    {"do": "rate", "rate": 0},
    {"do": "step", "count": "2"},
]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--control", "log:n"), "control is log:n, onto which a recording is played"),
        (("--control", "log:b/n", "--onto", "b/"), "control is log:b/n, onto which a recording is played"),
        (("--control", "log:c", "--clock", "log:c"), "--control and --clock are both log:c"),
    ],
)
def test_a_control_has_a_channel_of_its_own(drive, capsys, words, said):
    assert run(["play", str(drive.path), *words]) == 1
    assert said in capsys.readouterr().err
    assert penstock.list_channels() == []


@pytest.mark.parametrize("command", WRONG, ids=str)
def test_a_command_that_is_none_changes_nothing(command, capsys):
    pace = Pace(1.0)
    pacing.obey(pace, command)
    assert (pace.paused, pace.rate, pace.stopped) == (False, 1.0, False)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "is no command" in said


def test_a_control_channel_steps_and_stops(drive, capsys):
    """Commands arrive while it waits for a message that is due in an hour."""
    heard = penstock.subscribe("log:n")
    done = []
    player = threading.Thread(
        target=lambda: done.append(run(["play", str(drive.path), "--pause", "--control", "log:control", "--json"]))
    )
    player.start()
    with penstock.publish("log:control", codec="json") as control, heard:
        control.wait_for_readers(1, timeout=PATIENCE)
        control.send({"do": "step", "count": 3})
        assert [heard.recv(timeout=PATIENCE)["n"] for _ in range(3)] == [0, 1, 2]
        control.send({"do": "nothing"})
        control.send({"do": "rate", "rate": 1e9})
        control.send({"do": "resume"})
        assert [heard.recv(timeout=PATIENCE)["n"] for _ in range(7)] == list(range(3, 10))
    player.join(PATIENCE)
    assert done == [0]
    out, err = capsys.readouterr()
    assert json.loads(out)["messages"] == {"log:n": 10}
    assert "'nothing'" in err


def test_a_pause_that_nothing_ends_is_refused(drive, capsys):
    """Without a terminal in front and without a channel of commands."""
    command = ["play", str(drive.path), "--pause"]
    assert run([*command, "--json"]) != 0
    child = subprocess.run([sys.executable, "-m", "penstock", *command], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)  # fmt: skip
    assert child.returncode != 0
    for said in (child.stderr, capsys.readouterr().err):
        assert "--pause needs something that ends the pause" in " ".join(said.split())
    assert penstock.list_channels() == []


@pytest.mark.parametrize("controlling", [True, False])
def test_the_keys_of_a_terminal_are_read(controlling, drive):
    """A dot plays one message in a pause, q ends; the terminal is as before. Also if it is not the process' controlling one."""
    heard = penstock.subscribe("log:n")
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "penstock", "play", str(drive.path), "--pause"]

    def in_front():
        os.setsid()
        import fcntl
        import termios

        if controlling:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(command, stdin=follower, stdout=subprocess.PIPE, stderr=follower, preexec_fn=in_front)
    os.close(follower)
    said = b""
    while b"space pauses" not in said:
        said += os.read(leader, 1000)

    def read():  # else it would wait for room on its terminal
        with contextlib.suppress(OSError):  # it has closed the terminal
            while os.read(leader, 1000):
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with heard:
        for number in range(3):
            os.write(leader, b".")
            assert heard.recv(timeout=PATIENCE) == {"n": number}
    os.write(leader, b"q")
    assert b"3 messages of 1 channel" in child.communicate(timeout=PATIENCE)[0]
    assert child.returncode == 0
    reader.join()
    os.close(leader)


def test_a_loop_a_rate_a_start_and_a_clock(drive, capsys):
    heard = penstock.subscribe("log:n")
    stop = json.dumps({"do": "stop"})
    with heard, penstock.publish("log:control", codec="json") as control, penstock.subscribe("log:clock") as clock:
        done = []
        arguments = ["play", str(drive.path), "--loop", "--rate", "1e9", "--start", "7h", "--json"]
        player = threading.Thread(
            target=lambda: done.append(run([*arguments, "--control", "log:control", "--clock", "log:clock"]))
        )
        player.start()
        assert [heard.recv(timeout=PATIENCE)["n"] for _ in range(7)] == [7, 8, 9, 7, 8, 9, 7]
        control.send(json.loads(stop))
        while player.is_alive():
            heard.poll(10_000)
            player.join(0.01)
        assert done == [0]
        assert clock.recv(timeout=PATIENCE) == {"clock": {"sec": 7 * 3600, "nanosec": 0}}
    capsys.readouterr()


@pytest.mark.parametrize("start", ["-1", "soon", ""])
def test_a_wrong_start_is_refused(start, drive, capsys):
    assert run(["play", str(drive.path), f"--start={start}"]) == 1
    assert "--start is" in capsys.readouterr().err
