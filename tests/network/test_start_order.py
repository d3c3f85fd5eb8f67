"""Processes that start in any order, stop and go on, fork; and the command among them. Nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port

import penstock

PATIENCE = 60
QUICK = {"term_length": 1 << 16, "linger": 5.0}
COUNT = 200


@pytest.fixture
def uri():
    return f"udp://127.0.0.1:{free_port()}/7"


@contextlib.contextmanager
def command(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command `penstock` as a process. It is killed if it still runs at the end."""
    code = "from penstock.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


# ---- every order ----


@pytest.mark.parametrize("order", list(itertools.permutations(["subscribe", "publish", "record"])), ids="-".join)
def test_every_order_of_publication_subscription_and_recorder(uri, archive, order):
    pub = sub = None
    with contextlib.ExitStack() as stack:
        for step in order:
            if step == "subscribe":
                sub = stack.enter_context(penstock.subscribe(uri))
            elif step == "record":
                stack.enter_context(archive.record(uri))
            else:
                pub = stack.enter_context(penstock.publish(uri, codec="json", **QUICK))
        pub.wait_for_readers(2, timeout=PATIENCE)
        for number in range(COUNT):
            pub.send(number, timeout=PATIENCE)
            assert sub.recv(timeout=PATIENCE) == number
    (recording,) = archive.list()
    assert (recording.messages, recording.lost_bytes) == (COUNT, 0)
    assert [message.data for message in archive.replay(recording.id)] == list(range(COUNT))
    assert archive.verify() == []


@pytest.mark.parametrize("first", ["sub", "record", "pub", "library"])
def test_the_command_first_or_after_the_library(uri, tmp_path, first):
    """`sub` and `record` read what a program sends, `pub` is read by one, whichever is there first."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> subprocess.Popen[str]:
            return stack.enter_context(command(*arguments))

        sub = ("sub", uri, "-n", str(COUNT), "--json")
        record = ("record", str(tmp_path / "archive"), uri, "--seconds", "60")
        if first == "pub":
            running = start("pub", uri, "--codec", "json", "--wait")
            for number in range(COUNT):
                running.stdin.write(f"{number}\n")
            running.stdin.flush()
            with penstock.subscribe(uri) as reader:
                assert [reader.recv(timeout=PATIENCE) for _ in range(COUNT)] == list(range(COUNT))
                running.stdin.close()
                assert running.wait(PATIENCE) == 0
            return
        early = [start(*(sub if first == "sub" else record))] if first != "library" else []
        while early and not _members(uri):
            assert early[0].poll() is None, early[0].stderr.read()
        pub = stack.enter_context(penstock.publish(uri, codec="json", **QUICK))
        later = start(*(record if first == "sub" else sub))
        pub.wait_for_readers(2 if early else 1, timeout=PATIENCE)  # the late one too
        for number in range(COUNT):
            pub.send(number, timeout=PATIENCE)
        reader = early[0] if first == "sub" else later
        out, _ = reader.communicate(timeout=PATIENCE)
        assert [json.loads(line)["data"] for line in out.splitlines()] == list(range(COUNT))
        assert reader.returncode == 0
        if not early:
            return
        recorder = later if first == "sub" else early[0]
        recorder.send_signal(signal.SIGINT)
        recorder.communicate(timeout=PATIENCE)
        assert [recording.messages for recording in penstock.Archive(tmp_path / "archive").list()] == [COUNT]


def _members(uri: str) -> int:
    with contextlib.suppress(penstock.NotFound):
        return len(penstock.inspect(uri).members)
    return 0


def test_the_command_lists_the_channel_and_pub_says_what_it_sent(uri):
    with penstock.subscribe(uri) as sub:
        with command("pub", uri, "--codec", "json", "--wait") as running:
            out, err = running.communicate("1\n2\n", timeout=PATIENCE)
            assert running.returncode == 0, err
        assert [sub.recv(timeout=PATIENCE) for _ in range(2)] == [1, 2], out
        with command("ls", "--json") as running:
            listed = [json.loads(line) for line in running.communicate(timeout=PATIENCE)[0].splitlines()]
        assert [(one["channel"], one["kind"]) for one in listed] == [(uri, "udp")]


def test_sub_suggests_a_near_channel_and_never_its_own(uri):
    """It has just subscribed there, so the channel is on the list; by an Aeron URI under its other name."""
    at, _, stream = uri[6:].partition("/")
    aeron = f"aeron:udp?endpoint={at}|stream-id={stream}"
    waits = "nothing was published yet; waiting for its first publication"
    with penstock.publish(uri, **QUICK) as pub, penstock.subscribe(uri) as sub:
        pub.send(b"x", timeout=PATIENCE)
        assert sub.recv(timeout=PATIENCE) == b"x"
        for given, told in ((uri, ""), (aeron, ""), (f"{uri}7", f". Did you mean {uri}?")):
            with command("sub", given, "--timeout", "0.01") as running:
                _, err = running.communicate(timeout=PATIENCE)
            assert err.splitlines()[0] in (f"{given}: {waits}{told}", f"{given}: nothing arrived for 0.01 seconds"), err
            assert told in err


# ---- stopped, and going on ----

WRITER = """
import sys, penstock
with penstock.publish(sys.argv[1], term_length=1 << 16, linger=30) as pub:
    pub.wait_for_readers(3, timeout=60)
    for number in range(int(sys.argv[2])):
        pub.send(number.to_bytes(8, "little") + bytes(500), timeout=60)
"""
READER = """
import sys, penstock
with penstock.subscribe(sys.argv[1], until_end=True) as sub:
    print("ready", flush=True)
    numbers = [int.from_bytes(message[:8], "little") for message in sub]
    print(numbers == list(range(int(sys.argv[2]))), sub.lost, flush=True)
"""


@pytest.mark.parametrize("victim", ["publisher", "holder", "reader"])
def test_a_process_stopped_for_a_while_resumes_where_it_was(uri, victim):
    """The others wait for it as for any slow one. Nothing is lost."""
    count = 3_000
    run = [sys.executable, "-c"]
    with contextlib.ExitStack() as stack:
        processes: dict[str, subprocess.Popen[str]] = {}
        for name in ("holder", "reader"):
            reader = stack.enter_context(
                subprocess.Popen([*run, READER, uri, str(count)], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(reader.kill)
            assert reader.stdout.readline() == "ready\n"
            processes[name] = reader
        assert penstock.inspect(uri).details["holder"] == processes["holder"].pid
        sub = stack.enter_context(penstock.subscribe(uri, until_end=True))
        writer = stack.enter_context(subprocess.Popen([*run, WRITER, uri, str(count)]))
        stack.callback(writer.kill)
        processes["publisher"] = writer
        numbers = [int.from_bytes(sub.recv(timeout=PATIENCE)[:8], "little") for _ in range(500)]
        process = processes[victim]
        process.send_signal(signal.SIGSTOP)
        assert os.waitpid(process.pid, os.WUNTRACED)[1] & 0xFF == 0x7F
        with contextlib.suppress(penstock.TimedOut):
            while True:
                numbers.append(int.from_bytes(sub.recv(timeout=0.5)[:8], "little"))
        assert len(numbers) < count, "nobody waited for it"
        process.send_signal(signal.SIGCONT)
        numbers += [int.from_bytes(message[:8], "little") for message in sub]
        assert numbers == list(range(count))
        assert sub.lost == 0
        for name in ("holder", "reader"):
            assert processes[name].communicate(timeout=PATIENCE)[0] == "True 0\n"
        assert writer.wait(PATIENCE) == 0


# ---- fork ----

FORKS = """
import os, sys, warnings, penstock
warnings.simplefilter("ignore")
uri, count = sys.argv[1], int(sys.argv[2])
sub, back = penstock.subscribe(uri), penstock.publish(sys.argv[3], codec="json", term_length=1 << 16)
back.wait_for_readers(1, timeout=60)
assert sub.recv(timeout=60) == -1
ready, there = os.pipe()
if os.fork() == 0:
    sub.position  # in the child a handle takes a place of its own when it is first used
    sub.try_recv()
    os.write(there, b"x")
    name = "child"
else:
    os.read(ready, 1)
    name = "parent"
back.send([name, os.getpid()], timeout=60)
for number in range(count):
    assert sub.recv(timeout=60) == number
    back.send([name, number], timeout=60)
back.close()
penstock._native.core.udp_finish(60)
os._exit(0)
"""


@pytest.mark.parametrize("killed", [False, True], ids=["both live", "the parent is killed"])
def test_a_fork_with_open_handles(uri, killed):
    """The child reads and sends as another process does. If the parent, which has the socket, is killed, the child takes it over."""
    answers = f"udp://127.0.0.1:{free_port()}/8"
    with penstock.subscribe(answers) as heard, penstock.publish(uri, codec="json", **QUICK) as pub:
        with subprocess.Popen([sys.executable, "-c", FORKS, uri, str(COUNT), answers]) as process:
            pub.wait_for_readers(1, timeout=PATIENCE)
            pub.send(-1, timeout=PATIENCE)
            pids = dict(heard.recv(timeout=PATIENCE) for _ in range(2))
            assert pids["parent"] == process.pid == penstock.inspect(uri).details["holder"]
            got: dict[str, list[int]] = {"parent": [], "child": []}
            for number in range(COUNT):
                if killed and number == COUNT // 2:
                    process.kill()
                    process.wait()
                pub.send(number, timeout=PATIENCE)
                while number not in got["child"] or (not killed and number not in got["parent"]):
                    name, seen = heard.recv(timeout=PATIENCE)
                    got[name].append(seen)
            assert got["child"] == list(range(COUNT))
            assert killed or got["parent"] == list(range(COUNT))
            assert killed or process.wait(PATIENCE) == 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids["child"], signal.SIGTERM)
    assert not list(Path(f"/proc/{process.pid}").glob("task"))
