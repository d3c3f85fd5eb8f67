"""Children that kill themselves at a chosen moment: before or after the n-th of the calls that make an effect last."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
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


def exit_status(work: Callable[..., Any], *arguments: Any) -> int:
    """How `work` ends, in a process of its own with this one's environment: 0, 1 after an error, or as it ends itself. It comes from the
    server of forks, which has loaded what it needs."""
    child = multiprocessing.get_context("forkserver").Process(target=_work, args=(dict(os.environ), work, arguments))
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode


def _work(environment: dict[str, str], work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    work(*arguments)


def run_until_commit(archive: os.PathLike[str], out: object, commits: int, when: str, *, range_bytes: int) -> int:
    """The exit status of a run of the pipeline: 9 before or after its commit of that number, and 0 if it has fewer."""
    return exit_status(_commit, str(archive), str(out), commits, when, range_bytes)


def _commit(archive: str, out: str, left: int, when: str, range_bytes: int) -> None:
    from penstock import tables
    from penstock.tables.delta.table import Table

    def dies(real: Callable[..., Any]) -> Callable[..., Any]:
        def commit(*given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0 and when == "before":
                os._exit(9)
            made = real(*given, **named)
            if left < 0:
                os._exit(9)
            return made

        return commit

    Table.commit, Table.create = dies(Table.commit), dies(Table.create)  # type: ignore[method-assign]
    tables.run(archive, out, range_bytes=range_bytes, commit_bytes=4096)
