"""Benchmarks end: a rival that hangs, dies or leaves something behind is ended with all that it started, and the report says so."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from multiprocessing import shared_memory
from pathlib import Path

import psutil
import pytest
from conftest import heed_interrupts
from peers.bounds import ends

sys.path.insert(0, str(Path(__file__).parents[2]))
from bench import ipc, processes
from bench.report import Report
from evidence.bounded import Failed, bounded, program

SHORT = 1.5  # seconds: enough to start, for one that never ends
ENOUGH = 60
SOON = 15  # for one that dies: nobody waits for it


def alive(pid):
    """Whether a process still does anything: one that nobody has waited for yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def forever(*_):
    threading.Event().wait()


@pytest.fixture(autouse=True)
def tidy(tally):
    """Nothing is left of any run: no process, no shared memory, no folder."""
    before = set(os.listdir("/dev/shm"))
    processes_before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    left = {process.pid for process in psutil.Process().children(recursive=True)} - processes_before
    assert not left
    assert not [name for name in set(os.listdir("/dev/shm")) - before if f"-{os.getpid()}-" in name]
    tally("runs of rivals that end, or are ended", 1)


def rival(**parts):
    """A rival of these parts: a pipe through the file system where nothing else is said."""

    class End:
        def __init__(self, name, number=0):
            self.path = Path(tempfile.gettempdir()) / f"{name}-{number}"
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

        def send(self, data):
            self.socket.sendto(data, str(self.path))

        def recv(self):
            return self.socket.recv(1 << 16)

        def close(self):
            self.socket.close()

    def receiver(name, number, size):
        end = End(name, number)
        end.socket.bind(str(end.path))
        return end

    made = types.SimpleNamespace(sender=lambda name, readers, size: End(name), receiver=receiver)
    for name, part in parts.items():
        setattr(made, name, part)
    return made


class Hangs:
    """An end that never comes back."""

    def __init__(self, *_):
        self.recv = self.send = self.take = forever

    def close(self):
        """Nothing to do."""


class Mute(Hangs):
    """An end that swallows what it is to send."""

    def __init__(self, *_):
        super().__init__()
        self.send = lambda data: None


class Dies(Hangs):
    """An end whose process is killed."""

    def __init__(self, *_):
        self.recv = self.send = self.take = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def test_a_rival_that_works_gives_its_numbers():
    found = processes.flow(ENOUGH, rival(), 64, 50, 1)
    assert found.rate > 0
    assert found.send_ns > 0


def test_a_rival_that_runs_itself_gives_its_own_numbers():
    """What it lost and sent again is in the report."""
    own = rival(
        flow=lambda size, count, readers: processes.Flow(size, count, readers, lost=3),
        round_trips=lambda *given: [*given],
    )
    found = processes.flow(ENOUGH, own, 64, 50, 2)
    assert found == processes.Flow(64, 50, 2, 3)
    assert processes.round_trips(ENOUGH, own, 64, 50) == [64, 50]
    report = Report("log_ipc", quick=True)
    ipc.note_lost(report, "it", "64 B", [found])
    assert report.notes == ["it, 64 B: lost and sent again in each run: 3"]


HANGING = {
    "in sending": {"sender": Hangs},
    "in receiving": {"sender": Mute, "receiver": Hangs},
    "in opening": {"sender": forever},
    "in preparing": {"prepare": forever},
    "in cleaning up": {"clean": forever},
    "in a run of its own": {"flow": forever},
}


@pytest.mark.parametrize("where", HANGING)
def test_a_rival_that_hangs_is_ended_and_named(where):
    with pytest.raises(Failed, match=r"did not finish 2,000 messages within 1\.5 s"):
        processes.flow(SHORT, rival(**HANGING[where]), 64, 2000, 2)


def test_so_is_one_that_hangs_in_a_round_trip_or_a_conversation():
    with pytest.raises(Failed, match="did not finish 300 round trips within"):
        processes.round_trips(SHORT, rival(sender=Hangs), 64, 300)
    with pytest.raises(Failed, match="did not finish 10 messages of each of 4 within"):
        processes.mesh(SHORT, rival(member=Hangs), 4, 64, 10)


@pytest.mark.parametrize(
    ("parts", "who"),
    [({"sender": Dies}, "the sender"), ({"sender": Mute, "receiver": Dies}, "receiver [01]")],
    ids=["sender", "receiver"],
)
def test_a_rival_that_dies_is_not_waited_for(parts, who):
    with pytest.raises(Failed, match=f"{who} died: killed by SIGKILL"):
        processes.flow(SOON, rival(**parts), 64, 10, 2)


def test_so_with_one_that_dies_in_a_round_trip_or_a_conversation():
    with pytest.raises(Failed, match="the echo died: killed by SIGKILL"):
        processes.round_trips(ENOUGH, rival(sender=Mute, receiver=lambda *_: _echo_dies()), 64, 10)
    with pytest.raises(Failed, match=r"member \d died: killed by SIGKILL"):
        processes.mesh(ENOUGH, rival(member=Dies), 3, 64, 10)


def _echo_dies():
    here = __import__("multiprocessing").current_process()
    return Dies() if here.name == "the echo" else Hangs()


def test_errors_and_deaths_of_the_measurement_itself():
    with pytest.raises(Failed, match="ZeroDivisionError"):
        bounded(ENOUGH, "it", lambda: 1 // 0)
    with pytest.raises(Failed, match="died: killed by SIGUSR1"):
        bounded(ENOUGH, "it", lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with pytest.raises(Failed, match="died: exit status 3"):
        bounded(ENOUGH, "it", lambda: os._exit(3))
    with pytest.raises(Failed, match="died: exit status 7: why"):
        program(ENOUGH, "it", ["sh", "-c", "echo why >&2; exit 7"])
    with pytest.raises(Failed, match=r"did not finish its work within 1\.5 s"):
        program(SHORT, "its work", ["sleep", "100"])
    assert program(ENOUGH, "it", ["echo", 5]) == "5\n"


def _leaves_children(pids, end):
    """Children of every kind: in a session of its own, an orphan, one that will not hear SIGTERM."""
    kinds = (
        ["sleep", "100"],
        ["setsid", "sleep", "101"],
        ["sh", "-c", "(setsid sleep 102 &) ; exec sleep 103"],
        ["sh", "-c", "trap '' TERM INT HUP; sleep 104; sleep 105"],
    )
    for kind in kinds:
        subprocess.Popen(kind, start_new_session=kind[0] == "sleep", stdout=subprocess.DEVNULL)
    while len(found := psutil.Process().children(recursive=True)) < 5:
        os.sched_yield()
    for process in found:
        pids.send(process.pid)
    pids.send(None)
    return end()


@pytest.mark.parametrize("end", ["value", "hang", "death"])
def test_no_child_of_a_rival_outlives_it(end):
    ends = {"value": lambda: 5, "hang": forever, "death": lambda: os._exit(1)}
    read, write = __import__("multiprocessing").get_context("fork").Pipe(duplex=False)
    if end == "value":
        assert bounded(ENOUGH, "it", _leaves_children, write, ends[end]) == 5
    else:
        with pytest.raises(Failed):
            bounded(5, "it", _leaves_children, write, ends[end])
    pids = []
    while read.poll(ENOUGH) and (pid := read.recv()) is not None:
        pids.append(pid)
    assert len(pids) >= 5
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


_held = []


def _leaves_memory(names, end):
    """Memory that nobody will remove: of this process, of a killed child, and some that no tracker knows of."""
    memory = shared_memory.SharedMemory(create=True, size=4096)
    untracked = Path(f"/dev/shm/penstock-test-{os.getpid()}")
    file = untracked.open("wb")
    file.write(b"x")
    Path(tempfile.gettempdir(), "socket").touch()
    Path(os.environ["PENSTOCK_DIR"], "x").touch()
    _held.extend((memory, file))  # open until the process ends
    names.send([memory.name, untracked.name, os.path.dirname(tempfile.gettempdir())])
    return end()


@pytest.mark.parametrize("end", ["value", "hang", "death"])
def test_no_shared_memory_of_a_rival_outlives_it(end, capfd):
    ends = {"value": lambda: 5, "hang": forever, "death": lambda: os.kill(os.getpid(), signal.SIGKILL)}
    read, write = __import__("multiprocessing").get_context("fork").Pipe(duplex=False)
    if end == "value":
        assert bounded(ENOUGH, "it", _leaves_memory, write, ends[end]) == 5
    else:
        with pytest.raises(Failed):
            bounded(5, "it", _leaves_memory, write, ends[end])
    psm, untracked, folder = read.recv()
    assert not Path("/dev/shm", psm).exists()
    assert not Path(folder).exists()
    if end != "death":  # the files that a process had open when it died are unknown
        assert not Path("/dev/shm", untracked).exists()
    else:
        Path("/dev/shm", untracked).unlink(missing_ok=True)


ENDLESS = """
import os, subprocess, threading
from evidence.bounded import bounded
def measure():
    child = subprocess.Popen(["setsid", "sleep", "100"])
    print(os.getppid(), os.getpid(), child.pid, os.path.dirname(os.environ["TMPDIR"]), flush=True)
    threading.Event().wait()
bounded(1000, "it", measure)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_benchmark_that_is_ended_takes_its_rivals_with_it(end):
    root = Path(__file__).parents[2]
    bench = subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=heed_interrupts,
    )
    *pids, folder = bench.stdout.readline().split()
    bench.send_signal(end)
    with ends("ending the benchmark"):
        bench.wait()
        while any(alive(int(pid)) for pid in pids):
            os.sched_yield()
    bench.stdout.close()
    assert not Path(folder).exists()


@pytest.mark.slow
def test_the_report_says_what_did_not_finish_and_goes_on(capsys):
    report = Report("a question", quick=True)
    type(report).limit, before = SHORT, type(report).limit
    try:
        for readers in (1, 2, 3):
            ipc.throughput(report, {"hangs": rival(sender=Hangs)}, 64, readers)
        ipc.latency(report, {"hangs": rival(sender=Hangs)}, 64, ours=None)
    finally:
        type(report).limit = before
    assert report.missing == {
        "hangs, 64 B, 1 subscriber": "did not finish 2,000 messages within 1.5 s",
        "hangs, 64 B, 2 subscribers": "did not finish 2,000 messages within 1.5 s",
        "hangs, 64 B, 3 subscribers": "not tried: it failed in 2 cases before",
        "hangs, 64 B, round trip": "not tried: it failed in 2 cases before",
    }
    report.print()
    assert "missing: hangs, 64 B, 1 subscriber: did not finish 2,000 messages within 1.5 s" in capsys.readouterr().out
