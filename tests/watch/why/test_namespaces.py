"""Processes of other PID namespaces: the numbers in shared memory are theirs, and other processes have these numbers here."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock
from penstock.channels.storage import files
from penstock.channels.uri.channel import parse
from penstock.channels.waiting.why import facts, look
from penstock.channels.waiting.why.records import number_of, stand_in

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
CAN_UNSHARE = (
    shutil.which("unshare") is not None and subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0
)
needs_namespaces = pytest.mark.skipif(not CAN_UNSHARE, reason="needs PID namespaces of a user's own")
WRITERS = {"sync": "join({uri!r}, name='one')", "frames": "publish({uri!r}, shape=(4,), dtype='u1')"}
READERS = {"sync": "join({uri!r}, name='two')"}


def opened(uri: str, texts: dict[str, str], default: str) -> str:
    """The expression that opens an end of a channel."""
    return "penstock." + texts.get(parse(uri).kind.name, default).format(uri=uri)


def once(find: Callable[[], penstock.types.Why], ready: Callable[[penstock.types.Why], bool]) -> penstock.types.Why:
    """The first graph that is ready."""
    while not ready(found := find()):
        time.sleep(0.002)
    return found


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program, by a command that may put it into a PID namespace of its own."""
    running: list[subprocess.Popen[str]] = []

    def start(text: str, *command: str) -> subprocess.Popen[str]:
        program = [*command, sys.executable, "-c", f"import os, sys, time, penstock; {text}"]
        made = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(made)
        assert made.stdout is not None
        assert made.stdout.readline() == "ready\n", made.communicate()[1]
        return made

    yield start
    for one in running:
        one.send_signal(signal.SIGKILL)
        one.communicate()


@needs_namespaces
@pytest.mark.parametrize("uri", ["log:far", "ring:far", "pipe:far"])
def test_two_of_the_same_number_are_two(uri: str, started: Callable[..., subprocess.Popen[str]]) -> None:
    """Two readers, each of which is process 1 in its own namespace; neither is the process 1 that is here."""
    text = f"sub = {opened(uri, READERS, 'subscribe({uri!r})')}; assert os.getpid() == 1; print('ready', flush=True); sub.recv()"
    with eval(opened(uri, WRITERS, "publish({uri!r})")):
        started(text, *UNSHARE)
        started(text, *UNSHARE)
        found = once(penstock.why, lambda found: len(found.waits) == 2)
    pids = {wait.pid for wait in found.waits}
    assert len(pids) == 2
    assert max(pids) < 0
    assert [(one.number, one.state) for one in found.processes if one.pid in pids] == [(1, "hidden")] * 2
    assert (
        sum(
            line.startswith(f"1, in another PID namespace, waits for messages of {uri}")
            for line in str(found).splitlines()
        )
        == 2
    )


@needs_namespaces
def test_error_names_each_of_the_same_number(started: Callable[..., subprocess.Popen[str]]) -> None:
    """Two readers that leave no room."""
    text = "sub = penstock.subscribe('log:far'); print('ready', flush=True); time.sleep(1000)"
    with penstock.publish("log:far", term_length=1 << 16) as pub:
        started(text, *UNSHARE)
        started(text, *UNSHARE)
        with pytest.raises(TimeoutError) as raised:
            while True:
                pub.send(bytes(1000), timeout=2)  # one that waits in vain sleeps, whatever held this process up
    told = str(raised.value)
    assert told.count("process 1 has ") == told.count(", and is in another PID namespace") == 2, told


@pytest.mark.parametrize("uri", ["log:near", "ring:near", "frames:near", "sync:near", "pipe:near"])
def test_lock_says_whose_a_number_is(uri: str, started: Callable[..., subprocess.Popen[str]]) -> None:
    """Two containers have one channel open, and their processes have the same number: each holds the lock of its own slot."""
    channel = parse(uri)
    with eval(opened(uri, WRITERS, "publish({uri!r})")), contextlib.ExitStack() as end:
        other = started(
            f"end = {opened(uri, READERS, 'subscribe({uri!r})')}; print('ready', flush=True); time.sleep(1000)"
        )
        fd = files.open_existing(channel)
        end.callback(os.close, fd)
        raw: list[dict[str, Any]] = facts.found_in(channel.kind, fd, str(channel))
        mine = [one for one in raw if one["pid"] == os.getpid()]
        others = [one for one in raw if one["pid"] == other.pid]
        assert mine
        assert others
        facts.tell_apart(channel, fd, raw)
        assert {one["pid"] for one in mine} == {os.getpid()}
        assert {one["pid"] for one in others} == {other.pid}
        for one in others:
            one["pid"] = os.getpid()  # as if its number in its namespace were ours here
        facts.tell_apart(channel, fd, raw)
        assert {one["pid"] for one in mine} == {os.getpid()}
        assert all(one["pid"] < 0 and number_of(one["pid"]) == os.getpid() for one in others)
        assert len({one["pid"] for one in others}) == len(others)


def test_process_with_other_files_is_not_the_member() -> None:
    """The process of that number here has not opened the channel."""
    with penstock.publish("log:far") as pub, penstock.subscribe("log:far") as sub:
        thread = threading.Thread(target=sub.recv)
        thread.start()
        once(penstock.why, lambda found: bool(found.waits))
        found = facts.participants_of(parse("log:far"), lambda pid: {(0, 0): (3,)})
        _, known = look.look_twice(lambda: found)
        pub.send(b"end")
        thread.join()
    assert all(one.pid < 0 for one in found)
    assert {(one.number, one.state, one.command) for one in known.values()} == {(os.getpid(), "hidden", "")}


def test_a_stand_in_keeps_the_number() -> None:
    """Stand-ins differ by their places, fit into a float of JavaScript, and are never numbers of processes."""
    numbers, channels = (1, 7, 4_194_303), ("log:a", "log:b")
    made = {stand_in(number, channel, slot) for number in numbers for channel in channels for slot in range(9)}
    assert len(made) == 54
    assert all(-(2**53) < one < 0 for one in made)
    assert {number_of(one) for one in made} == set(numbers)
    assert number_of(4711) == 4711


def test_one_that_leaves_meanwhile_is_not_called_foreign() -> None:
    """Its slot was read while it was there, and its lock when it had left."""
    channel = parse("log:leaves")
    with penstock.publish("log:leaves") as pub:
        fd = files.open_existing(channel)
        raw = facts.found_in(channel.kind, fd, str(channel))
        pub.close()
        try:
            facts.tell_apart(channel, fd, raw)
        finally:
            os.close(fd)
    assert [one["pid"] for one in raw] == [os.getpid()]
