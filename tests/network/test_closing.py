"""Publications that close while receivers are slow, stopped, or not there: nothing is lost that could be sent, and the rest is told."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import LONG
from network import frames
from ports import free_port

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


def test_a_closed_publication_reports_unsent_messages(uri):
    with run(ENDS, uri, 0.1) as process:
        _, said = process.communicate(timeout=PATIENCE)
    assert said == f"{uri}: a publication has closed, and 160 bytes of its stream were not received\n"


def test_without_linger_nothing_is_told(uri):
    with run(ENDS, uri, 0) as process:
        assert process.communicate(timeout=PATIENCE)[1] == ""


@pytest.mark.skipif(not LONG, reason="reads slowly for 12 s: long mode")
def test_a_slow_reader_gets_everything_of_a_closed_publication(uri):
    """It needs longer than the publication lingers, and more than the window is waiting."""
    count, pause = 600, threading.Event()
    with penstock.subscribe(uri, until_end=True, window=1 << 16) as sub, run(NUMBERS, uri, count) as process:
        for number in range(count):
            assert sub.recv(timeout=PATIENCE) == number.to_bytes(8, "little") * 125
            pause.wait(0.02)
        assert list(sub) == []
        assert process.communicate(timeout=PATIENCE) == ("", "")


@pytest.mark.skipif(not LONG, reason="a publication is stopped for 12 s: long mode")
def test_a_publication_stopped_for_long_resumes_where_it_was(uri):
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


@pytest.mark.skipif(not LONG, reason="a session is silent for 12 s: long mode")
def test_bytes_of_a_silent_session_are_lost_to_everybody(uri, tmp_path):
    """A peer of the test's own goes on 99 terms further. A subscription, and a recorder, count all that lies between."""
    length, port = 1 << 16, int(uri.rpartition(":")[2].partition("/")[0])
    archive = penstock.Archive(tmp_path)
    said = threading.Event()
    with (
        penstock.subscribe(uri) as sub,
        archive.record(uri),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        for term in (0, 99):
            while (got := sub.try_recv()) is None:
                peer.sendto(frames.setup(42, 7, 0, term, 0, length), ("127.0.0.1", port))
                peer.sendto(frames.data(42, 7, term, 0, b"%02d" % term), ("127.0.0.1", port))
                said.wait(0.02)
            assert got == b"%02d" % term
            if term == 0:
                assert sub.lost == 0
                with pytest.raises(penstock.TimedOut):
                    sub.recv(timeout=12)
        assert sub.lost == 99 * length - 64
        until = time.monotonic() + PATIENCE
        while sum(info.messages for info in archive.list()) < 2 and time.monotonic() < until:
            said.wait(0.1)
    first, second = archive.list()
    assert (first.start_position, first.end_position, first.lost_bytes) == (0, 64, 0)
    assert (second.start_position, second.lost_bytes) == (64, 99 * length - 64)
    assert [message.data for message in archive.replay(second.id)] == [b"99"]
    assert archive.verify() == []
