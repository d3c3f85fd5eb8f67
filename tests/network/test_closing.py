"""Publications that close while receivers are slow, stopped, or not there: nothing is lost that could be sent, and the rest is told."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading

import pytest
from conftest import LONG
from network.relay import free_port

import penstock

PATIENCE = 60
ENDS = """
import atexit, sys, penstock
pub = penstock.publish(sys.argv[1], linger=float(sys.argv[2]))
pub.send(b"x" * 100)
atexit.register(print, "ends", flush=True)
"""
NUMBERS = """
import sys, threading, penstock
pause = threading.Event()
with penstock.publish(sys.argv[1]) as pub:
    pub.wait_for_readers(1)
    for number in range(int(sys.argv[2])):
        pub.send(number.to_bytes(8, "little") * 125)
        pause.wait(0.002)
"""


@pytest.fixture
def uri():
    return f"udp://127.0.0.1:{free_port()}/7"


def run(program, *arguments):
    """A process of that program, whose output is read."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_ctrl_c_ends_the_wait_at_the_end_of_a_process(uri):
    with run(ENDS, uri, 3600) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ends\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


def test_what_a_closed_publication_could_not_send_is_told(uri):
    with run(ENDS, uri, 0.1) as process:
        _, said = process.communicate(timeout=PATIENCE)
    assert said == f"{uri}: a publication has closed, and 160 bytes of its stream found no receiver\n"


def test_without_linger_nothing_is_told(uri):
    with run(ENDS, uri, 0) as process:
        assert process.communicate(timeout=PATIENCE)[1] == ""


@pytest.mark.skipif(not LONG, reason="reads slowly for 12 s: long mode")
def test_a_slow_reader_gets_everything_from_a_publication_that_has_closed(uri):
    """It needs longer than the publication lingers, and more than the window is waiting."""
    count, pause = 600, threading.Event()
    with penstock.subscribe(uri, until_end=True, window=1 << 16) as sub, run(NUMBERS, uri, count) as process:
        for number in range(count):
            assert sub.recv(timeout=PATIENCE) == number.to_bytes(8, "little") * 125
            pause.wait(0.02)
        assert list(sub) == []
        assert process.communicate(timeout=PATIENCE) == ("", "")


@pytest.mark.skipif(not LONG, reason="a publication is stopped for 12 s: long mode")
def test_a_publication_that_was_stopped_for_long_goes_on_where_it_was(uri):
    """Its session has ended for the receiver meanwhile. The receiver asks for the messages that come before it hears the session again."""
    count = 1_500
    with penstock.subscribe(uri) as sub, run(NUMBERS, uri, count) as process:
        numbers = [int.from_bytes(sub.recv(timeout=PATIENCE)[:8], "little") for _ in range(200)]
        process.send_signal(signal.SIGSTOP)
        with contextlib.suppress(penstock.TimedOut):
            while True:
                numbers.append(int.from_bytes(sub.recv(timeout=12)[:8], "little"))
        assert sub.statistics().details["images"] == 0, "its session has not ended"
        process.send_signal(signal.SIGCONT)
        while len(numbers) < count:
            numbers.append(int.from_bytes(sub.recv(timeout=PATIENCE)[:8], "little"))
        assert numbers == list(range(count))
        assert sub.lost == 0
        process.communicate(timeout=PATIENCE)
