"""An error calls a process by its number only if that process has the channel's file open here."""

import os
import shutil
import subprocess
import sys

import pytest

import penstock
from penstock._native import core as _native

READER = """
import os, sys, penstock
sub = penstock.subscribe("log:ns")
sub.try_recv()
print("pid", os.getpid(), flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_a_process_without_the_file_is_another_one(tmp_path):
    """A number that another process has here is that of a member in another PID namespace."""
    with open(tmp_path / "file", "w+b") as file:
        assert _native.process_name(os.getpid(), file.fileno()) == f"process {os.getpid()}"
        code = "import sys; print(1, flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout.readline()
            name = _native.process_name(other.pid, file.fileno())
            assert name == f"process {other.pid} of another PID namespace"
            other.stdin.close()
        assert _native.process_name(other.pid, file.fileno()) == f"process {other.pid}", "it has gone: nothing is known"


def test_a_slow_reader_in_this_namespace_is_named():
    """With its command, as everywhere."""
    with (
        penstock.publish("log:ns", capacity=1 << 16, term_length=1 << 16) as pub,
        subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader,
    ):
        assert reader.stdout.readline()
        with pytest.raises(penstock.TimedOut, match=rf"(?s)process {reader.pid} \(.*python.*\) is \d+ bytes behind"):
            while True:
                pub.send(b"x" * 1000, timeout=0)
        reader.stdin.close()


def test_a_slow_reader_of_another_namespace_is_not_ours():
    """Its number is another process's here, whose command is not in the error."""
    unshare = shutil.which("unshare")
    words = [unshare or "unshare", "--map-root-user", "--pid", "--fork"]
    if unshare is None or subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("PID namespaces cannot be made here")
    with (
        penstock.publish("log:ns", capacity=1 << 16, term_length=1 << 16) as pub,
        subprocess.Popen(
            [*words, sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reader,
    ):
        number = int(reader.stdout.readline().split()[1])
        with pytest.raises(
            penstock.TimedOut, match=rf"process {number}( of another PID namespace)? is \d+ bytes behind"
        ):
            while True:
                pub.send(b"x" * 1000, timeout=0)
        reader.stdin.close()
