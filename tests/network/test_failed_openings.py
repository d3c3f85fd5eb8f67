"""An opening that fails leaves nothing behind: no file, no option for the next one, no descriptor, no thread."""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG
from ports import free_port

import penstock
from evidence.build import patience
from penstock._native import core as _native

PATIENCE = 60

FAILS = """
import json, os, sys, penstock
verb, uri, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
seen = lambda: (os.listdir("/proc/self/fd"), os.listdir("/proc/self/task"), sorted(os.listdir(os.environ["PENSTOCK_DIR"])))
penstock.publish("log:warm-up").close()  # imports, and what a process keeps of its first channel
if verb == "record":
    penstock.Archive(options["archive"])
before = seen()
problem = None
try:
    if verb == "record":
        penstock.Archive(options["archive"]).record(uri)
    else:
        getattr(penstock, verb)(uri, **options)
except Exception as error:
    problem = f"{type(error).__name__}: {error}"
print(json.dumps([problem, before, seen()]))
"""


def failed(verb: str, uri: str, **options: Any) -> str:
    """The error of an opening in a process of its own, which was left as it had been."""
    done = subprocess.run(
        [sys.executable, "-c", FAILS, verb, uri, json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    problem, before, after = json.loads(done.stdout)
    assert after == before, problem
    assert problem is not None, "it opened"
    return str(problem)


@pytest.fixture
def at() -> tuple[str, int]:
    """A host and a port."""
    return "127.0.0.1", free_port()


@pytest.mark.parametrize("verb", ["subscribe", "record"])
def test_a_subscription_without_a_port_leaves_nothing_behind(at, verb, tmp_path):
    uri = f"udp://{at[0]}:{at[1]}/7"
    options = {"archive": str(tmp_path)} if verb == "record" else {"window": 1 << 16}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(at)
        assert "Address already in use" in failed(verb, uri, **options)
    with penstock.subscribe(uri) as sub, penstock.publish(uri, linger=1.0) as pub:
        pub.send(b"x", timeout=PATIENCE)
        assert sub.recv(timeout=PATIENCE) == b"x"


@pytest.mark.parametrize(
    ("verb", "name", "options"),
    [
        ("subscribe", "udp://203.0.113.1:{port}/7", {}),
        ("subscribe", "udp://224.0.1.77:{port}/7", {"interface": "203.0.113.1"}),
        ("subscribe", "udp://[::1]:{port}/7", {"control": "127.0.0.1:{port}"}),
        ("publish", "udp://224.0.1.77:{port}/7", {"interface": "203.0.113.1"}),
        ("publish", "udp://224.0.1.77:{port}/7", {"control": "127.0.0.1:{port}"}),
        ("publish", "udp://127.0.0.1:{port}/7", {"control": "203.0.113.1:{port}"}),
        ("publish", "udp://127.0.0.1:{port}/7", {"control": "[::1]:{port}"}),
        ("publish", "udp://127.0.0.1:{port}/7", {"destinations": ["[::1]:{port}"]}),
        ("publish", "udp://nowhere.invalid:{port}/7", {}),
        ("subscribe", "udp://nowhere.invalid:{port}/7", {}),
    ],
)
def test_no_opening_that_fails_leaves_anything(at, verb, name, options):
    filled = json.loads(json.dumps(options).replace("{port}", str(at[1])))
    failed(verb, name.format(port=at[1]), **filled)


@pytest.mark.parametrize("verb", ["subscribe", "publish"])
def test_an_opening_without_descriptors_leaves_nothing(at, verb, channel_folder):
    """Each number of free descriptors, from none up to those that are enough."""
    uri = f"udp://{at[0]}:{at[1]}/7"
    opener = penstock.subscribe if verb == "subscribe" else penstock.publish
    with penstock.publish(f"udp://{at[0]}:{free_port()}/8", linger=0):  # the conductor is there
        _native.udp_finish(6.0)  # publications of other tests linger no more: descriptors stay as they are
        gc.collect()
        before = sorted(os.listdir("/proc/self/fd")), sorted(os.listdir(channel_folder))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(map(int, before[0]))
        fill = [os.open("/dev/null", os.O_RDONLY) for _ in range(used - len(before[0]) + 2)]
        problems = []
        try:
            for room in range(40):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(fill) + 1 + room, limits[1]))
                try:
                    handle = opener(uri)
                except OSError as error:
                    problems.append(error.errno)
                    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                    assert sorted(os.listdir(channel_folder)) == before[1], room
                    continue
                handle.close()
                break
            else:
                raise AssertionError("it never opened")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in fill:
                os.close(fd)
        assert len(problems) > 3
        assert set(problems) <= {errno.EMFILE, errno.ENOENT}


def test_an_opening_without_memory_leaves_nothing(at, channel_folder):
    uri = f"udp://{at[0]}:{at[1]}/7"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, before[1]))
    try:
        for opener in (penstock.publish, penstock.subscribe):
            with pytest.raises(OSError, match="allocate"):
                opener(uri)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(channel_folder) == []


def test_a_session_number_of_another_publication_stays_its_own(at, channel_folder):
    uri = f"udp://{at[0]}:{at[1]}/7"
    with penstock.publish(uri, session=5, linger=1.0) as pub, penstock.subscribe(uri) as sub:
        pub.wait_for_readers(1, timeout=PATIENCE)
        there = sorted(os.listdir(channel_folder))
        with pytest.raises(penstock.Busy, match="session 5 is another publication's"):
            penstock.publish(uri, session=5)
        assert sorted(os.listdir(channel_folder)) == there
        pub.send(b"still here", timeout=PATIENCE)
        assert sub.recv(timeout=PATIENCE) == b"still here"


def test_a_failed_opening_leaves_the_endpoint_of_others(at, channel_folder):
    """Options that were decided by a subscription that opened stay, whatever fails afterwards."""
    uri = f"udp://{at[0]}:{at[1]}/7"
    penstock.subscribe(uri, window=1 << 16).close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(at)
        with pytest.raises(OSError, match="Address already in use"):
            penstock.subscribe(uri, window=1 << 16)
    with pytest.raises(penstock.Mismatch, match="window=65536"):
        penstock.subscribe(uri)
    assert [Path(name).suffix for name in os.listdir(channel_folder)] == [".udp"]


WAITS = """
import sys, penstock
for _ in range(int(sys.argv[3])):
    try:
        penstock.subscribe(sys.argv[1], window=int(sys.argv[2])).close()
        print("opened")
    except OSError as error:
        print(error.errno)
    except penstock.Mismatch:
        print("mismatch")
"""


@pytest.mark.slow
def test_many_that_fail_at_once_leave_nothing(at, channel_folder):
    """They find each other's files while these are made and removed."""
    uri = f"udp://{at[0]}:{at[1]}/7"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(at)
        command = [sys.executable, "-c", WAITS, uri, str(1 << 16), "200" if LONG else "50"]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        try:
            said = [process.communicate(timeout=patience(PATIENCE))[0].split() for process in running]
        finally:
            for process in running:
                process.kill()
                process.communicate()
    assert all(process.returncode == 0 for process in running)
    assert {word for words in said for word in words} == {str(errno.EADDRINUSE)}
    assert os.listdir(channel_folder) == []


def test_the_log_of_a_session_number_that_is_used_again_stays(at, channel_folder):
    """The first publication's object goes when the second one has the number already."""
    uri = f"udp://{at[0]}:{at[1]}/7"
    first = penstock.publish(uri, session=5, linger=0)
    first.close()
    while os.listdir(channel_folder):
        penstock._native.core.udp_finish(PATIENCE)
    with penstock.publish(uri, session=5, linger=0):
        there = sorted(os.listdir(channel_folder))
        assert len(there) == 2
        del first
        gc.collect()
        assert sorted(os.listdir(channel_folder)) == there


def test_a_number_is_free_at_once_without_linger(at):
    for _ in range(20):
        penstock.publish(f"udp://{at[0]}:{at[1]}/7", session=5, linger=0).close()


def test_a_new_endpoint_leaves_a_publications_files_alone(at, channel_folder):
    uri = f"udp://{at[0]}:{at[1]}/7"
    making = [f"{at[0]}:{at[1]}@7.udp.00000005.{what}.new" for what in ("log", "counts")]
    left = f"{at[0]}:{at[1]}@7.udp.3.image"
    penstock.publish("log:there").close()  # the folder is there
    for name in [*making, left]:
        (channel_folder / name).touch()
    penstock.subscribe(uri).close()
    assert set(making) <= set(os.listdir(channel_folder))
    assert left not in os.listdir(channel_folder)


DIES = "import os, sys, penstock; pub = penstock.publish(sys.argv[1], session=5); os._exit(0)"


def test_a_sweep_of_a_dead_log_spares_the_new_one_of_its_name(at, channel_folder, monkeypatch):
    """Another process sweeps, too, and is faster; then a publication takes the number."""
    uri = f"udp://{at[0]}:{at[1]}/7"
    subprocess.run([sys.executable, "-c", DIES, uri], check=True, timeout=PATIENCE)
    (log,) = channel_folder.glob("*.00000005.log")
    core = penstock._native.core
    inspect, opened = core.inspect_log, []

    def slow(fd: int, path: str) -> Any:
        found = inspect(fd, path)
        if not opened:
            opened.append(None)  # the opening below sweeps, too
            opened[0] = penstock.publish(uri, session=5, linger=0)
        return found

    monkeypatch.setattr(core, "inspect_log", slow)
    with penstock.publish(uri, linger=0):
        assert log.exists()
        opened[0].close()


AGAIN = """
import os, sys, time, penstock
uri, log, until = sys.argv[1], sys.argv[2], time.monotonic() + 1.5
while time.monotonic() < until:
    try:
        with penstock.publish(uri, session=5, linger=0, term_length=1 << 16):
            assert os.path.exists(log)
            assert len(penstock.inspect(uri).members) == 1
    except penstock.Busy:
        pass
"""


@pytest.mark.slow
def test_processes_that_take_one_number_in_turn_keep_their_files(at, channel_folder):
    log = str(channel_folder / f"{at[0]}:{at[1]}@7.udp.00000005.log")
    with (
        subprocess.Popen([sys.executable, "-c", AGAIN, f"udp://{at[0]}:{at[1]}/7", log]) as one,
        subprocess.Popen([sys.executable, "-c", AGAIN, f"udp://{at[0]}:{at[1]}/7", log]) as other,
    ):
        assert (one.wait(PATIENCE), other.wait(PATIENCE)) == (0, 0)
    assert os.listdir(channel_folder) == []
