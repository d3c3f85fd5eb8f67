"""Python stacks of other processes: by a handler that the process installed, or by py-spy.

A process that called `install_stack_handler` has a file in a folder beside the channels. Its name says the process, when it began, and the signal
that makes the handler write the stacks of all threads into it. PID namespaces that share the folder have the same numbers, so the name ends at
random. A signal is sent only to a process that has such a file open, and only while it catches that signal: another one would end by it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

from penstock.channels.checks import whole
from penstock.channels.storage import files
from penstock.channels.waiting.why.records import WaitingProcess
from penstock.errors import Invalid
from penstock.util import processes

FOLDER = ".stacks"
PATIENCE = 1.0  # seconds for an answer
LOOK_SECONDS = 0.02  # between looks
ADVICE = "no stack: call penstock.install_stack_handler() in the program, or install py-spy (pip install py-spy)"
_installed: dict[tuple[int, int], Path] = {}  # by process and signal; the handler keeps the file open


def install_stack_handler(signum: int = signal.SIGUSR2) -> None:
    """Lets `penstock why --stack` show the stacks of this process, also while its main thread is in a call that does not return.

    signum: the signal that asks for them; its earlier handler is replaced. Only this user's processes can ask. A forked child installs its own.
    `Invalid` for anything but a signal that can be caught. Call it in the main thread.
    """
    signum = whole(signum, "signum", 1, signal.NSIG - 1)
    found = processes.find(os.getpid())
    if found is None:
        raise Invalid("this process is not to be seen in /proc: its stacks cannot be asked for")
    folder = files.private_folder(FOLDER, create=True)
    _sweep(folder)
    path = folder / f"{found.pid}.{found.start}.{signum}.{secrets.token_hex(4)}"
    file = _locked(path)
    try:
        faulthandler.register(signum, file=file, all_threads=True)
    except (ValueError, RuntimeError, OSError) as error:
        file.close()
        path.unlink(missing_ok=True)
        raise Invalid(f"signal {signum} cannot be used for stacks: {error}") from error
    before = _installed.get((found.pid, signum))
    _installed[found.pid, signum] = path
    if before is not None:
        before.unlink(missing_ok=True)


def _locked(path: Path) -> IO[bytes]:
    """A process's own file, with a lock that lasts until the process and its forked children end."""
    while True:
        file = open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_APPEND | os.O_NOFOLLOW, 0o600))  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_SH)
        if os.fstat(file.fileno()).st_nlink:  # else it was swept before it was locked
            return file
        file.close()


def stack_of(process: WaitingProcess) -> str:
    """The Python stacks of a process, or one line that says why there are none. Takes up to a few seconds."""
    if process.state == "dead":
        return "no stack: it is dead"
    if process.state == "foreign":
        return f"no stack: pid {process.pid} is of user {process.user}"
    if process.state == "hidden":
        return "no stack: it is in another PID namespace"
    return _by_handler(process.pid) or _by_py_spy(process.pid) or ADVICE


def _by_handler(pid: int) -> str:
    """What its handler writes. Empty if it has none."""
    found = processes.find(pid)
    if found is None:
        return ""
    for path in _files_of(found):
        signum = int(path.name.split(".")[2])
        if not _catches(pid, signum):
            continue
        if found.state == "stopped":
            return "no stack: it is stopped, and answers when it continues (kill -CONT)"
        return _ask(path, pid, signum)
    return ""


def _files_of(found: processes.SystemProcess) -> list[Path]:
    """The files that a process has open of those with its name. All of them where that is not to be seen: it has changed its user."""
    opened = processes.open_files(found.pid)
    named = sorted(files.private_folder(FOLDER).glob(f"{found.pid}.{found.start}.*"))
    return [path for path in named if opened is None or _identity_of(path) in opened]


def _identity_of(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):  # it was swept meanwhile
        there = path.stat()
        return there.st_dev, there.st_ino
    return None


def _catches(pid: int, signum: int) -> bool:
    """Whether a process has a handler for a signal, which would end it otherwise."""
    return _has(f"/proc/{pid}/status", "SigCgt:", signum)


def _has(status: str, name: str, signum: int) -> bool:
    """Whether a signal is in a mask of a process or of a thread."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        mask = next(line for line in Path(status).read_text().splitlines() if line.startswith(name))
        return bool(int(mask.split()[1], 16) >> (signum - 1) & 1)
    return False


def _blocking(pid: int, signum: int) -> set[str]:
    """The threads of a process in which a signal is blocked, as it is in one that handles it."""
    with contextlib.suppress(OSError):
        threads = os.listdir(f"/proc/{pid}/task")
        return {thread for thread in threads if _has(f"/proc/{pid}/task/{thread}/status", "SigBlk:", signum)}
    return set()


def _ask(path: Path, pid: int, signum: int) -> str:
    """What a handler appends to the file. It writes in pieces: once it has begun, it is at its end when no thread handles the signal any more."""
    before, blocking = path.stat().st_size, _blocking(pid, signum)
    os.kill(pid, signum)
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        time.sleep(LOOK_SECONDS)
        if path.stat().st_size > before and not _blocking(pid, signum) - blocking:
            return path.read_bytes()[before:].decode("utf-8", "replace").strip()
    return "no stack: its handler did not answer within a second"


def _by_py_spy(pid: int) -> str:
    """What py-spy says. Empty if it is not installed, or may not look."""
    program = shutil.which("py-spy")
    if program is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        ran = subprocess.run(
            [program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=10, check=False
        )
        if ran.returncode == 0:
            return ran.stdout.strip()
        return f"no stack: py-spy: {(ran.stderr.strip().splitlines() or ['failed'])[-1]}"
    return ""


def _sweep(folder: Path) -> None:
    """Removes the files of processes that have ended. A process that lives holds a lock on its own, also in another PID namespace, where its
    number says nothing here."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError), open(path, "rb") as file:  # of another user: that one removes it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
