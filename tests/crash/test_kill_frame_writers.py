"""Of several publications of one frames channel, one is killed while it fills a buffer, and while it has the turn: the others go on."""

import os
import signal
import time

import numpy as np
import pytest
from crash.victims import kill, start

import penstock

SHAPE = (4, 6)
PATIENCE = 60  # seconds: only a hang takes so long
TURN = 4096 + 1024  # where the file says who has the turn; behind it, who had it last


def send_and_fill(name, ready):
    """One frame, then a buffer half full, until it is killed."""
    pub = penstock.publish(name)
    pub.send(np.full(SHAPE, 1, "u1"))
    frame = pub.acquire(timeout=PATIENCE)
    frame.array[:2] = 99
    os.write(ready, b".")
    time.sleep(1000)


@pytest.fixture
def beside():
    """Two publications, here and in a process that fills a buffer, and a subscription that reads the frames of both."""
    with (
        penstock.publish("frames:cam", shape=SHAPE, buffers=3) as pub,
        penstock.subscribe("frames:cam", when_slow="wait") as sub,
    ):
        waits, ready = os.pipe()
        pid = start(send_and_fill, "frames:cam", ready)
        assert os.read(waits, 1) == b"."
        os.close(waits)
        os.close(ready)
        assert int(sub.recv(timeout=PATIENCE).array.max()) == 1
        assert penstock.inspect("frames:cam").writers == 2
        yield pub, sub, pid


def expect_all_free(pub, sub):
    """Every buffer is this publication's, and what it sends comes whole and alone."""
    held = [pub.acquire(timeout=PATIENCE) for _ in range(3)]
    for number, frame in enumerate(held):
        frame.array[...] = number
        frame.commit()
    arrays = [frame.array for frame in sub.poll()]
    assert [(int(array.min()), int(array.max())) for array in arrays] == [(0, 0), (1, 1), (2, 2)]
    assert (sub.lost_messages, penstock.inspect("frames:cam").writers) == (0, 1)


def test_another_goes_on_when_one_dies_filling_a_buffer(beside):
    pub, sub, pid = beside
    held = [pub.acquire(timeout=PATIENCE) for _ in range(2)]
    with pytest.raises(penstock.TimedOut, match=f"process {pid} .*is filling 1 of the 3 buffers"):
        pub.acquire(timeout=0)
    for frame in held:
        frame.abort()
    kill(pid)
    expect_all_free(pub, sub)


def test_another_goes_on_when_one_dies_with_the_turn(beside, channel_folder):
    """While it is stopped there, a commit is refused with its name, and loses no buffer."""
    pub, sub, pid = beside
    frame = pub.acquire(timeout=PATIENCE)
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    with open(channel_folder / "cam.frames", "r+b") as file:
        own = os.pread(file.fileno(), 8, TURN + 8)
        slots = {one.pid: one.slot for one in penstock.inspect("frames:cam").members if one.role == "publication"}
        theirs = (int.from_bytes(own, "little") - slots[os.getpid()] + slots[pid]).to_bytes(8, "little")
        os.pwrite(file.fileno(), theirs, TURN)
    assert pub.offer(np.zeros(SHAPE, "u1")) is None
    with pytest.raises(penstock.Busy, match=rf"process {pid} .*is publishing here, and does not run \(stopped\?\)"):
        frame.commit()
    with pytest.raises(penstock.Busy, match=f"process {pid} "):
        penstock.publish("frames:cam")
    kill(pid)
    expect_all_free(pub, sub)
