"""Snapshots that end early: by a signal, by an interrupt, by a file that may not grow."""

import re
import resource
import signal
import subprocess
import sys

import pytest
from conftest import heed_interrupts

import penstock

COMMAND = (sys.executable, "-m", "penstock", "snapshot", "log:x", "--before", "1h")


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_seals_the_snapshot(name, tmp_path):
    with penstock.publish("log:x") as pub:
        pub.send(b"1")
        child = subprocess.Popen(
            [*COMMAND, "--after", "1h", "--to", tmp_path / "a"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=heed_interrupts,
        )
        pub.wait_for_readers(1, timeout=60)
        pub.send(b"2")
        child.send_signal(getattr(signal, f"SIG{name}"))
        out, err = child.communicate(timeout=60)
    assert child.returncode == 128 + getattr(signal, f"SIG{name}")
    assert err == f"SIG{name} has ended the snapshot early\n"
    assert "2 messages" in out
    (info,) = penstock.Archive(tmp_path / "a").list()
    assert (info.state, info.messages) == ("closed", 2)


INTERRUPTED = """
import signal, sys, penstock

def interrupt(number, frame):
    names, inner = [], frame.f_code.co_filename
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    if "_finish" in names and inner.endswith("threading.py"):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
penstock.Archive(sys.argv[1]).snapshot("log:x", before=3600, after=3600)
"""


def test_an_interrupt_of_its_wait_seals_the_snapshot(tmp_path):
    """Python takes a thread for ended if an interrupt ends the wait for it."""
    with penstock.publish("log:x") as pub:
        pub.send(b"1")
        done = subprocess.run([sys.executable, "-c", INTERRUPTED, tmp_path / "a"], capture_output=True, text=True)
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert [info.state for info in penstock.Archive(tmp_path / "a").list()] == ["closed"]


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_one_line(tmp_path):
    with penstock.publish("log:x", capacity="4MiB") as pub:
        for _ in range(20):
            pub.send(bytes(100_000))
    for _ in range(3):  # the catalog is written meanwhile, in another thread
        done = subprocess.run(
            [*COMMAND, "--to", tmp_path / "a"],
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch("penstock: cannot write .*: File too large\n", done.stderr)
        assert not (tmp_path / "a").exists()
