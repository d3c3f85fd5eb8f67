"""Children that kill themselves at a chosen moment: before or after the n-th of the calls that make an effect last."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

CALLS = [(os, name) for name in ("replace", "rename", "fsync", "pwrite", "unlink", "mkdir", "ftruncate", "open")]


def moments(work: Callable[[], Any], more: list[tuple[Any, str]], step: int = 1) -> Iterator[int]:
    """Runs `work` in a child that dies at moment 0, then in one that dies at moment `step`, and so on until one comes through.

    Yields after each death. more: calls, as (object, name), that count besides those of the system.
    """
    moment = 0
    while not _dies(work, [*CALLS, (fcntl, "flock"), *more], moment):
        moment += step
        yield moment


def _dies(work: Callable[[], Any], calls: list[tuple[Any, str]], moment: int) -> bool:
    """Whether the child came to its end before the moment came."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            left = [moment]
            for owner, name in calls:
                setattr(owner, name, _mortal(getattr(owner, name), left))
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
    return True


def _mortal(call: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def tick() -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    def mortal(*given: Any, **named: Any) -> Any:
        tick()
        result = call(*given, **named)
        tick()
        return result

    return mortal


_COMMITTING = """
import os, sys
from penstock import tables
from penstock.tables.delta import table as delta
left, when = int(sys.argv[3]), sys.argv[4]
def dies(real):
    def commit(*given, **named):
        global left
        left -= 1
        if left < 0 and when == "before":
            os._exit(9)
        made = real(*given, **named)
        if left < 0:
            os._exit(9)
        return made
    return commit
delta.Table.commit, delta.Table.create = dies(delta.Table.commit), dies(delta.Table.create)
tables.run(sys.argv[1], sys.argv[2], range_bytes=int(sys.argv[5]), commit_bytes=4096)
"""


def run_until_commit(
    archive: os.PathLike[str], out: object, commits: int, when: str, *, range_bytes: int
) -> subprocess.CompletedProcess[bytes]:
    """A run of the pipeline in another process, which exits with 9 before or after its commit of that number, and with 0 if it has fewer."""
    arguments = [str(archive), str(out), str(commits), when, str(range_bytes)]
    return subprocess.run([sys.executable, "-c", _COMMITTING, *arguments], capture_output=True)
