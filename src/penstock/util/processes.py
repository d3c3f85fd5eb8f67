"""A process as the system shows it in /proc: its state, user and command. Knows no channel."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

THREADS_MAX = 64  # threads of a process that are looked at
SHOWN_MAX = 40  # letters of a command
_STATES = {"R": "running", "T": "stopped", "t": "stopped", "Z": "dead", "X": "dead", "D": "blocked"}
_THREADS, _START = 17, 19  # of the fields behind the name: index 0 is the state


@dataclass(frozen=True)
class SystemProcess:
    """One process. state: "running" if a thread of it has a core or is ready to run, "sleeping", "blocked" in the kernel, "stopped", "dead",
    or "foreign": it belongs to another user. start: when it began, in ticks since the machine's start. user: of its effective user."""

    pid: int
    state: str
    user: int
    command: str
    start: int
    threads: int


def find(pid: int) -> SystemProcess | None:
    """The process of that number in this PID namespace. None if there is none."""
    folder = Path(f"/proc/{pid}")
    try:
        user = folder.stat().st_uid
        state, start, threads = _stat(folder)
    except (OSError, ValueError, IndexError):
        return None
    if user != os.geteuid() and os.geteuid() != 0:
        return SystemProcess(pid, "foreign", user, "", start, threads)
    if state == "sleeping" and threads > 1:
        state = _busiest(folder, state)
    return SystemProcess(pid, state, user, command_of(pid), start, threads)


def open_files(pid: int) -> dict[tuple[int, int], tuple[int, ...]] | None:
    """Device and inode of each file that the process of this number here has open, with its descriptors. None if that is not to be seen, or
    if there is no such process.

    A channel's member has the number of its own PID namespace: another process may have it here. That one has other files.
    """
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    try:
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                there = os.stat(f"/proc/{pid}/fd/{entry}")
                found[there.st_dev, there.st_ino] = (*found.get((there.st_dev, there.st_ino), ()), int(entry))
    except OSError:
        return None
    return found


def locked_bytes(pid: int, descriptors: tuple[int, ...]) -> frozenset[int]:
    """Where the locks begin that a process holds by these descriptors. Empty if the kernel does not show them."""
    found = set()
    for descriptor in descriptors:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines():
                if line.startswith("lock:"):
                    found.add(int(line.split()[-2]))
    return frozenset(found)


def exists(pid: int) -> bool:
    """Whether a process has that number in this PID namespace."""
    return os.path.exists(f"/proc/{pid}")


def identity(file: int) -> tuple[int, int]:
    """Device and inode of a descriptor's file."""
    there = os.fstat(file)
    return there.st_dev, there.st_ino


def has_thread(pid: int, thread: int) -> bool:
    """Whether a process has a thread of that number."""
    return Path(f"/proc/{pid}/task/{thread}").exists()


def command_of(pid: int) -> str:
    """The program of a process in one word: a Python program by its script. Empty if it is not to be seen."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return ""
    name = os.path.basename(words[0])
    if name.startswith(("python", "pypy")):
        name = _script(words[1:]) or name
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown[:SHOWN_MAX]


def _script(words: list[str]) -> str:
    """The script or module that Python runs. Empty for a program given as text."""
    for at, word in enumerate(words):
        if word == "-m":
            return words[at + 1] if at + 1 < len(words) else ""
        if word == "-c":
            return ""
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            continue
        if not word.startswith("-") and (at == 0 or words[at - 1] not in ("-X", "-W", "--check-hash-based-pycs")):
            return os.path.basename(word)
    return ""


def _stat(folder: Path) -> tuple[str, int, int]:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return _STATES.get(fields[0], "sleeping"), int(fields[_START]), int(fields[_THREADS])


def _busiest(folder: Path, state: str) -> str:
    """ "running" if one of the threads is. A program's main thread often only waits for the others."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for thread in sorted(os.listdir(folder / "task"))[:THREADS_MAX]:
            if _stat(folder / "task" / thread)[0] == "running":
                return "running"
    return state
