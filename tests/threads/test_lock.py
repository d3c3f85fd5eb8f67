"""The lock for rare work: a newcomer waits as long as it changes hands, and not for ever behind one holder that does not run."""

import mmap
import os
import re
import struct
import threading
import time
from pathlib import Path

import pytest

import penstock

PAGE = (Path(__file__).parents[2] / "docs" / "design" / "term_log.md").read_text()
GENERATION = 8  # within a slot


def offset(what):
    """Where the page says that this is in a log's file."""
    return int(re.search(rf"\| (\d+) \| {what}", PAGE)[1])


def holders(path, slots):
    """The lock's value while the member in each of these slots has it."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        at = [offset("slots") + 512 * slot + GENERATION for slot in slots]
        return [
            struct.unpack_from("<I", memory, where)[0] << 32 | slot + 1 for where, slot in zip(at, slots, strict=True)
        ]


def hold(path, ids, seconds, step):
    """A child that writes these holders into the lock, one after the other, and then gives it back. Its process id and a word."""
    ready_r, ready_w = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ready_w)
        return pid, ready_r
    try:
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            end, turn = time.monotonic() + seconds, 0
            while time.monotonic() < end:
                struct.pack_into("<Q", memory, offset("`lock`"), ids[turn % len(ids)])
                if turn == 0:
                    os.write(ready_w, b"x")
                turn += 1
                threading.Event().wait(step)
            struct.pack_into("<Q", memory, offset("`lock`"), 0)
    finally:
        os._exit(0)


@pytest.fixture
def members(channel_folder):
    """The file of a log with living members, and their slots."""
    with (
        penstock.publish("log:l", term_length=1 << 16),
        penstock.subscribe("log:l"),
        penstock.subscribe("log:l"),
    ):
        yield channel_folder / "l.log", [member.slot for member in penstock.inspect("log:l").members]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_that_changes_hands_is_waited_for(members, tally):
    path, slots = members
    pid, ready = hold(path, holders(path, slots), 3, 0.005)  # three times the patience with one holder
    os.read(ready, 1)
    os.close(ready)
    try:
        with penstock.subscribe("log:l") as late:
            assert late.lag == 0
    finally:
        os.waitpid(pid, 0)
    tally("waits for a lock that others hold", 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_holder_that_does_not_run_is_named_in_the_end(members, tally):
    path, slots = members
    pid, ready = hold(path, holders(path, slots)[:1], 3600, 3600)
    os.read(ready, 1)
    os.close(ready)
    try:
        with pytest.raises(penstock.Busy, match="does not run"):
            penstock.subscribe("log:l")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            struct.pack_into("<Q", memory, offset("`lock`"), 0)
    tally("waits for a lock that others hold", 1)
