"""A pool of processes that run tasks. They import from where this process does, and end when it does.

Each is a fresh interpreter, so a program needs no guard around its main part. Tasks and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

from penstock.errors import SystemFailure

Report = Callable[[int, int], None]
Task = dict[str, Any]


def environment_of_child() -> dict[str, str]:
    """The environment of this library's own processes: NumPy starts no threads there, which would spin for a while and compute nothing."""
    own = {
        name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None
    }  # another thread may change it
    return {"OPENBLAS_NUM_THREADS": "1", **own}


class Pool:
    """Runs tasks: in this process if there is to be one only, else in that many processes. Not thread-safe.

    function: `module:name` of what does a task. An answer with `failed`, [errno, text], is a `SystemFailure`: no other task can be done.
    """

    def __init__(self, function: str, processes: int) -> None:
        self._function, self._count = function, processes
        self._children: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        if self._count > 1:
            path = [entry for entry in sys.path if isinstance(entry, str)]
            main = (
                f"import sys; sys.path[:] = {path!r}; from penstock.util.pool import serve; serve({self._function!r})"
            )
            try:
                for _ in range(self._count):
                    self._children.append(
                        subprocess.Popen(
                            [sys.executable, "-c", main],
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            env=environment_of_child(),
                        )
                    )
            except BaseException as error:  # also an interrupt
                self.__exit__()
                if not isinstance(error, OSError):
                    raise
                raise SystemFailure(error.errno or 0, f"cannot start a process of the pool: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()
        while self._children:
            child = self._children[-1]
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            self._children.pop()

    def map(self, tasks: list[Task], report: Report) -> list[Task]:
        """The tasks' answers, in the order of the tasks. `SystemFailure` if a process of the pool dies, or if a file cannot be written."""
        report(0, len(tasks))
        if not self._children:
            found, run = [], _function(self._function)
            for one in tasks:
                found.append(_check_answer(run(one)))
                report(len(found), len(tasks))
            return found
        return self._spread(tasks, report)

    def _spread(self, tasks: list[Task], report: Report) -> list[Task]:
        todo: queue.SimpleQueue[tuple[int, Task]] = queue.SimpleQueue()
        done: queue.SimpleQueue[tuple[int, Task | BaseException]] = queue.SimpleQueue()
        for numbered in enumerate(tasks):
            todo.put(numbered)
        threads = [
            threading.Thread(target=_feed, args=(child, todo, done), name="penstock-pool", daemon=True)
            for child in self._children
        ]
        for thread in threads:
            thread.start()
        answers: dict[int, Task] = {}
        while len(answers) < len(tasks):
            number, answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            answers[number] = _check_answer(answer)
            report(len(answers), len(tasks))
        for thread in threads:
            thread.join()
        return [answers[number] for number in range(len(tasks))]


def _function(name: str) -> Callable[[Task], Task]:
    module, _, function = name.partition(":")
    found: Callable[[Task], Task] = getattr(importlib.import_module(module), function)
    return found


def _check_answer(answer: Task) -> Task:
    """An answer; `SystemFailure` if the task failed, and not for damage: then no other can be done."""
    if "failed" in answer:
        raise SystemFailure(*answer["failed"])
    return answer


def _feed(child: subprocess.Popen[bytes], todo: Any, done: Any) -> None:
    """Gives one process its tasks, one after the other."""
    assert child.stdin is not None
    assert child.stdout is not None
    while True:
        try:
            number, one = todo.get_nowait()
        except queue.Empty:
            return
        try:
            child.stdin.write(json.dumps(one).encode() + b"\n")
            child.stdin.flush()
            line = child.stdout.readline()
        except (OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            status = child.wait()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            done.put((number, SystemFailure(0, f"a process of the pool ended with {how}: not all is written")))
            return
        done.put((number, json.loads(line)))


def serve(function: str) -> None:
    """The main function of a process of the pool. Ends when its parent closes the pipe, or dies."""
    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # modules that print do not disturb the answers
    run = _function(function)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        for line in sys.stdin.buffer:
            try:
                answer = run(json.loads(line))
            except SystemFailure as error:
                answer = {"failed": [error.errno or 0, str(error.strerror)]}
            out.write(json.dumps(answer).encode() + b"\n")
            out.flush()
