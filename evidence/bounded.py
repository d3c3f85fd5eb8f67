"""Runs one measurement with a bound on its time: what does not finish is killed, with every process that it started, and its
leftovers are removed.

Three processes: the benchmark, which only waits; a warden, which inherits orphans, kills and cleans up; and the measurement in a
session of its own. Knows no library that is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil

context = multiprocessing.get_context("fork")
MEMORY = "/dev/shm"
GRACE = 10  # seconds that the warden may take to clean up
TRACKER_GRACE = 2  # seconds that a tracker of shared memory may take to remove what it knows
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Failed(RuntimeError):
    """A measurement gave no result; the text says why, for a report."""


def bounded(limit: float, what: str, measure: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of `measure` returns. `Failed` if it raised, died, or did not finish `what` within `limit` seconds.

    It runs in a process of its own, with folders of its own for channels and temporary files. In any case, all processes that it started are gone afterwards, and so is the shared memory that they had made.
    """
    folder = tempfile.mkdtemp(prefix=f"penstock-bench-{os.getpid()}-", dir=MEMORY)
    answers, answer = context.Pipe(duplex=False)
    warden = context.Process(target=_ward, args=(answer, folder, limit, what, measure, args, options))
    warden.start()
    answer.close()
    try:
        if not answers.poll(limit + GRACE):
            raise Failed(f"did not finish {what} within {limit:g} s")
        good, value = answers.recv()
        warden.join(GRACE)
    except EOFError:
        raise Failed("its warden died") from None
    finally:
        answers.close()
        if warden.is_alive():
            warden.terminate()  # it kills what it wards
            warden.join(GRACE)
            warden.kill()
            warden.join()
        shutil.rmtree(folder, ignore_errors=True)
    if not good:
        raise Failed(value)
    return value


def program(limit: float, what: str, command: list[Any]) -> str:
    """A program's output, bounded in the same way."""
    printed: str = bounded(limit, what, _program, [str(part) for part in command])
    return printed


def _program(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"{os.path.basename(command[0])} died: {ending(done.returncode)}: {done.stderr[-300:].strip()}")
    return done.stdout


def _ward(answer: Any, folder: str, limit: float, what: str, measure: Any, args: Any, options: Any) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.setsid()  # Ctrl-C is for the benchmark, which then ends this
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    before = set(_there())
    results, result = context.Pipe(duplex=False)
    runner = context.Process(target=_run, args=(result, folder, measure, args, options))
    runner.start()
    result.close()
    outcome: tuple[bool, Any] = False, f"did not finish {what} within {limit:g} s"
    try:
        exited = os.pidfd_open(runner.pid or 0)
        ready, _, _ = select.select([results, exited], [], [], limit)
        try:
            if results.poll(0):
                outcome = results.recv()
            elif ready:
                raise EOFError
        except (EOFError, OSError):
            runner.join()
            outcome = False, f"died: {ending(runner.exitcode)}"
    finally:
        held = _kill_all() - before
        for path in held:
            with contextlib.suppress(OSError):
                os.unlink(path)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            answer.send(outcome)
        os._exit(0)


def _run(result: Any, folder: str, measure: Any, args: Any, options: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    tracker: Any = resource_tracker._resource_tracker  # one of its own: this one's ends with this run
    tracker._fd = tracker._pid = None
    for variable, name in (("TMPDIR", "tmp"), ("PENSTOCK_DIR", "channels")):
        path = os.environ[variable] = os.path.join(folder, name)
        os.mkdir(path, 0o700)
    tempfile.tempdir = None
    try:
        outcome = True, measure(*args, **options)
    except BaseException as error:
        outcome = False, str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    result.send(outcome)
    threading.Event().wait()  # the warden ends this, and with it whatever would hold it up at its exit


def _prctl(what: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0)


def _there() -> Iterator[str]:
    """The files in shared memory."""
    with os.scandir(MEMORY) as found:
        yield from (entry.path for entry in found)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return any("resource_tracker" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _kill_all() -> set[str]:
    """Kills every descendant of this process, orphans among them; the files in shared memory that they had open.

    A tracker of shared memory comes last: it removes what it knows as soon as nobody is left who could use it.
    """
    held: set[str] = set()
    waiting_for_tracker = time.monotonic() + TRACKER_GRACE
    while found := _descendants():
        for process in found:
            held |= _held(process.pid)
        others = [process for process in found if not _is_tracker(process)]
        if not others and time.monotonic() < waiting_for_tracker:
            time.sleep(0.01)
        doomed = others or (found if time.monotonic() >= waiting_for_tracker else [])
        for process in doomed:  # all stand still first: none starts another, or complains that its partner is gone
            with contextlib.suppress(psutil.Error):
                process.suspend()
        for process in doomed:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return held


def _held(pid: int) -> set[str]:
    """Files in shared memory that a process has mapped or open."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            found.add(line.split(maxsplit=5)[-1])
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return {path for path in found if path.startswith(f"{MEMORY}/") and path.count("/") == 3}


def ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"


# ---- for measurements that start processes ----


def child(name: str, target: Any, *args: Any) -> Any:
    """A process that runs `target`; `name` is for the report, should it die."""
    process = context.Process(name=name, target=target, args=args, daemon=True)
    process.start()
    return process


def all_well(processes: list[Any]) -> None:
    """`Failed` if one of these died."""
    for process in processes:
        if process.exitcode:
            raise Failed(f"{process.name} died: {ending(process.exitcode)}")


@contextlib.contextmanager
def watched(processes: list[Any]) -> Iterator[None]:
    """While the block waits for whatever a library waits for: `Failed` as soon as one of these dies."""
    before = signal.signal(signal.SIGCHLD, lambda *_: all_well(processes))
    try:
        all_well(processes)
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def until(semaphore: Any, processes: list[Any]) -> None:
    """Waits for a semaphore that one of these processes releases."""
    while not semaphore.acquire(timeout=0.1):
        all_well(processes)


class Results:
    """A queue of results whose senders wait until the others are done with their messages."""

    def __init__(self) -> None:
        self.queue, self.done = context.SimpleQueue(), context.Event()

    def put(self, value: Any) -> None:
        """Gives a result."""
        self.queue.put(value)

    def get(self, processes: list[Any]) -> Any:
        """Takes one that one of these processes gives."""
        while not self.queue._reader.poll(0.1):
            all_well(processes)
        return self.queue.get()

    def wait(self) -> None:
        """Until everybody is done."""
        self.done.wait()


def join(processes: list[Any]) -> None:
    """Lets these end; the warden ends those that do not."""
    for process in processes:
        process.join(10)
