"""A signal's handler takes no lock, and the command's wait sees every signal."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import heed_interrupts

from penstock.cli import ending
from penstock.util.clock import SystemClock

LOCKS = (type(threading.Lock()), type(threading.RLock()))


def called(number):
    """The calls of a signal's handler: the modules of Python functions, and methods of locks."""
    found = []

    def note(frame, event, about):
        if event == "call":
            found.append(frame.f_globals.get("__name__", ""))
        elif event == "c_call" and isinstance(getattr(about, "__self__", None), LOCKS):
            found.append(f"a lock's {about.__name__}")

    sys.setprofile(note)
    try:
        signal.raise_signal(number)
        sys.getrefcount(None)
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture(autouse=True)
def heeded():
    """Also where the tests' parent ignores SIGINT."""
    before = [(number, signal.getsignal(number)) for number in ending.ENDING]
    for number in ending.ENDING:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ending.ENDING)
def test_a_handler_takes_no_lock(number):
    with ending.defer_end() as wait:
        seen = called(number)
        assert wait(0) == number
        assert wait(60) == number
    assert "penstock.cli.ending" in seen
    assert [name for name in seen if name == "threading" or "lock" in name] == []


def test_a_second_signal_raises():
    with pytest.raises(ending.Signalled), ending.defer_end() as wait:
        signal.raise_signal(signal.SIGINT)
        assert wait(0) == signal.SIGINT
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_a_wait_sees_a_signal_at_any_instant():
    """The child looks all the time, so that signals interrupt it in the middle of its look."""
    for _ in range(100):
        ready, told = os.pipe()
        child = os.fork()
        if not child:
            try:
                heed_interrupts()
                signal.signal(signal.SIGINT, signal.default_int_handler)
                with ending.defer_end() as wait:
                    os.write(told, b"x")
                    while not wait(0):
                        pass
            finally:
                os._exit(0)
        os.read(ready, 1)
        os.kill(child, signal.SIGINT)
        os.waitpid(child, 0)  # a hang ends by the time limit of the tests
        os.close(ready)
        os.close(told)


WAITS = """
import os, signal, threading
from penstock.cli import ending
threading.Thread(target=threading.Event().wait, daemon=True).start()  # the kernel may give it a signal, and nothing here blocks any
try:
    with ending.signals():
        print("waits", flush=True)
        os.read(0, 1)
except BaseException as error:
    os._exit(ending.status(error))
"""


def is_in_read(pid):
    """Whether the process's main thread waits in a system call that reads, as far as the kernel says."""
    try:
        said = Path(f"/proc/{pid}/syscall").read_text()
    except OSError:
        return True  # it does not say
    return said != "running\n"


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGTERM), (signal.SIGHUP, signal.SIGINT)])
def test_a_signal_in_another_thread_ends_the_main_threads_call(numbers):
    """Of two signals at once the kernel often gives one to another thread, which takes both. A second one that comes late, when the first has ended
    the command, ends the process as it ends any."""
    for _ in range(15):
        child = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"waits\n"
        while not is_in_read(child.pid) and child.poll() is None:
            SystemClock().sleep(0.001)
        for number in numbers:
            child.send_signal(number)
        with child:
            assert child.wait(60) in {*(128 + number for number in numbers), -numbers[1]}
