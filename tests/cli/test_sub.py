"""`penstock sub` only looks: no writer waits for it, unless it is told to."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

import penstock
from penstock import cli

PATIENCE = 60
COMMAND = (sys.executable, "-m", "penstock", "sub")


@contextlib.contextmanager
def stopped(pub, channel, *arguments, first="first\n"):
    """The command on a channel, with one message read, then stopped as by Ctrl-Z."""
    process = subprocess.Popen(
        [*COMMAND, channel, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(b"first", timeout=PATIENCE)
        assert process.stdout.readline() == first
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # each of its threads has stopped
        yield process
    finally:
        process.kill()
        process.communicate()


def fill(pub):
    for _ in range(400):
        pub.send(b"x" * 1000, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("channel", "options"),
    [("log:a", {"term_length": 1 << 16}), ("sync:a", {"capacity": 1 << 16}), ("ring:a", {"capacity": 1 << 16})],
)
@pytest.mark.parametrize("several", [False, True])
def test_a_stopped_look_delays_no_writer(channel, options, several):
    name = f"{channel}  " if several else ""
    with (
        penstock.publish("log:b"),
        penstock.publish(channel, **options) as pub,
        stopped(pub, channel, *["log:b"] * several, "-n", "3", first=f"{name}first\n") as process,
    ):
        fill(pub)
        process.send_signal(signal.SIGCONT)
        said = process.stderr.readline()
        assert said.startswith(f"warning: {channel}"), "it says what it missed"
        assert "lost" in said
        pub.send(b"later", timeout=PATIENCE)
        assert process.stdout.readline() in (f"{name}{'x' * 1000}\n", f"{name}later\n")


def test_losses_are_told_with_their_number():
    """Those of a ring raise no error: of 5,000 messages, as many as were not printed."""
    with penstock.publish("ring:a", capacity=1 << 16) as pub:
        process = subprocess.Popen(
            [*COMMAND, "ring:a", "--timeout", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        pub.wait_for_readers(1, timeout=PATIENCE)
        for _ in range(5000):
            pub.send(b"x" * 100)
        out, said = process.communicate(timeout=PATIENCE)
    lost = sum(
        int(one.replace(",", "")) for one in re.findall(r"^warning: ring:a: ([\d,]+) messages lost$", said, re.M)
    )
    assert lost > 0
    assert len(out.splitlines()) + lost == 5000


@pytest.mark.parametrize("channel", ["ring:a", "pipe:a", "zmq+tcp://127.0.0.1:1"])
def test_block_is_refused_where_readers_do_not_choose(channel, capsys):
    for channels in ([channel], [channel, "log:b"]):
        assert cli.run(["sub", *channels, "--block", "--timeout", "0"]) == 1
        assert f"penstock: {channel}: --block has no effect here" in capsys.readouterr().err


def test_block_makes_a_writer_of_frames_wait():
    with penstock.publish("frames:a", shape=(2,), buffers=3) as pub:
        process = subprocess.Popen([*COMMAND, "frames:a", "--block", "-n", "50"], stdout=subprocess.PIPE, text=True)
        pub.wait_for_readers(1, timeout=PATIENCE)
        for number in range(50):
            pub.send([number, 0], timeout=PATIENCE)
        assert len(process.communicate(timeout=PATIENCE)[0].splitlines()) == 50


def test_a_pattern_begins_at_no_position(capsys):
    assert cli.run(["sub", "log:*", "--start", "64"]) == 1
    assert "a position of one channel" in capsys.readouterr().err
    with penstock.publish("log:a") as pub:
        pub.send(b"1")
        assert cli.run(["sub", "log:*", "--start", "last", "--timeout", "0"]) == 0
        said = capsys.readouterr().err
        assert "warning: log:a" in said
        assert "it is read from its newest message on" in said


def test_block_makes_writers_wait_and_the_error_names_it():
    with penstock.publish("log:a", term_length=1 << 16) as pub, stopped(pub, "log:a", "--block") as process:
        said = rf"log:a: no room within the timeout: process {process.pid} \(.* sub log:a --block\) is \d+ bytes behind"
        with pytest.raises(TimeoutError, match=said):
            for _ in range(400):
                pub.send(b"x" * 1000, timeout=0.5)
        with pytest.raises(TimeoutError, match=said.replace("no room", "no room for the claim")):
            pub.claim(1000, timeout=0)


def test_counting_goes_on_after_a_loss(capfd, monkeypatch):
    """`--hz` with a reader that is dropped in between."""
    with penstock.publish("log:a", term_length=1 << 16) as pub:
        opened = penstock.subscribe

        def subscribe(*arguments, **options):
            made = opened(*arguments, **options)
            fill(pub)  # the subscription is dropped before its first look
            return made

        monkeypatch.setattr(penstock, "subscribe", subscribe)
        assert cli.run(["sub", "log:a", "--hz", "--json", "-n", "1"]) == 0
    assert '"lost": ' in capfd.readouterr().out


def test_it_waits_for_the_publication_of_frames():
    process = subprocess.Popen(
        [*COMMAND, "frames:late", "-n", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = process.stderr.readline()
    assert said == "frames:late: nothing was published yet; waiting for its first publication\n"
    with penstock.publish("frames:late", shape=(2, 2), dtype="u1") as pub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        pub.send(bytes(4))
        assert '"shape": [2, 2]' in process.stdout.readline()
    assert process.wait(PATIENCE) == 0
    process.communicate()


def test_it_waits_for_frames_no_longer_than_it_is_told(capfd):
    assert cli.run(["sub", "frames:never", "--timeout", "0.05"]) == 0
    assert capfd.readouterr().err.endswith("frames:never: nothing arrived for 0.05 seconds\n")


def test_sub_begins_with_last_values(capsys):
    with penstock.publish("log:params", codec="json", last="name") as pub:
        for number, name in enumerate("aba"):
            pub.send({"name": name, "value": number})
        assert cli.run(["sub", "log:params", "--start", "last", "--limit", "2"]) == 0
        assert capsys.readouterr().out.splitlines() == ['{"name": "b", "value": 1}', '{"name": "a", "value": 2}']
        assert cli.run(["ls"]) == 0
        assert "last name: 2" in " ".join(capsys.readouterr().out.split())
    with penstock.publish("log:plain"):
        assert cli.run(["sub", "log:plain", "--start", "last"]) == 1
        assert "keeps no last values" in capsys.readouterr().err
