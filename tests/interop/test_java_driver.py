"""Conversations with Aeron's Java driver, through its sample programs, in both directions."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading

import pytest
from interop import aeron
from interop.aeron import PATIENCE_S
from interop.ours import STREAM
from ports import free_port

import penstock

JAVA, WHY_NOT = aeron.java()
pytestmark = pytest.mark.skipif(not JAVA, reason=WHY_NOT)
MESSAGES = 2_000
SEEN = re.compile(rb"essage to stream \d+ from session \S+ \((\d+)@\d+\) <<(m\d+)")


@contextlib.contextmanager
def program(folder, name, **properties):
    """One of Aeron's programs, in the driver's folder."""
    given = [f"-Daeron.dir={folder}", *(f"-D{key.replace('_', '.')}={value}" for key, value in properties.items())]
    process = subprocess.Popen(
        [JAVA[0], *given, *JAVA[1:], f"io.aeron.{name}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def java_driver():
    """The folder of a driver that has started."""
    with aeron.memory_folder() as parent:
        folder = parent / "driver"
        with program(folder, "driver.MediaDriver", aeron_threading_mode="SHARED"):
            waiting = threading.Event()
            for _ in range(int(PATIENCE_S / 0.05)):
                if (folder / "cnc.dat").exists():
                    break
                waiting.wait(0.05)
            yield folder


def sample(at, **more):
    return {"aeron_sample_channel": f"aeron:udp?endpoint={at}", "aeron_sample_streamId": STREAM, **more}


def test_java_to_ours(java_driver):
    """Its StreamingPublisher numbers the messages in their first eight bytes."""
    at = f"127.0.0.1:{free_port()}"
    given = sample(at, aeron_sample_messageLength=4000, aeron_sample_messages=MESSAGES, aeron_sample_lingerTimeout=500)
    with (
        penstock.subscribe(f"udp://{at}/{STREAM}") as sub,
        program(java_driver, "samples.StreamingPublisher", **given) as java,
    ):
        assert java.stdin is not None
        java.stdin.write(b"n\n")  # it asks whether to do it again
        java.stdin.flush()
        for number in range(MESSAGES):
            found = sub.recv(timeout=PATIENCE_S)
            assert (len(found), int.from_bytes(found[:8], "little")) == (4000, number)
        assert sub.lost == 0


def test_ours_to_java(java_driver):
    """Its BasicSubscriber prints each message."""
    at = f"127.0.0.1:{free_port()}"
    with (
        program(java_driver, "samples.BasicSubscriber", **sample(at)) as java,
        penstock.publish(f"udp://{at}/{STREAM}", linger=1.0) as pub,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE_S)
        for number in range(MESSAGES):
            pub.send(b"m%07d" % number + b"." * (number % 1000), timeout=PATIENCE_S)
        assert java.stdout is not None
        got = []
        for line in java.stdout:
            if found := SEEN.search(line):
                got.append((int(found[1]), found[2]))
            if len(got) == MESSAGES:
                break
    assert got == [(8 + number % 1000, b"m%07d" % number) for number in range(MESSAGES)]
