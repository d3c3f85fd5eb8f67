"""Programs of other users, some in namespaces of their own, that do what a test says, line by line."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ANNA, BEN, CARL = 61001, 61002, 61003  # users, and their own groups
ROBOT = 61000  # the group of Anna and Ben, not of Carl
IN_GROUP = {ANNA: [ROBOT], BEN: [ROBOT], CARL: [61009]}
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--ipc")
DEADLINE = 60  # seconds for an answer: only a hang takes so long

AGENT = """
import os, signal, sys, threading, time, penstock
names = {"penstock": penstock, "os": os, "signal": signal, "threading": threading, "time": time}
print("ready", flush=True)
for line in sys.stdin:
    code, is_value = eval(line)
    try:
        answer = eval(code, names) if is_value else exec(code, names)
        print(repr((True, answer)), flush=True)
    except BaseException as error:
        print(repr((False, f"{type(error).__name__}: {error}")), flush=True)
"""


class Refused(Exception):
    """An error of the program, as text."""


def as_user(folder: Path, share: str | None = "group") -> dict[str, str]:
    """The environment of a program of another user."""
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "PENSTOCK_SEED") if name in os.environ}
    environment |= {"PENSTOCK_DIR": str(folder), "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
    return environment | ({} if share is None else {"PENSTOCK_SHARE": share})


@functools.cache
def _uncover() -> str:
    """Shell commands for a mount namespace, in which other users reach this Python: it may be below root's home, which they may not enter."""
    covered: dict[str, list[str]] = {}
    for path in sorted({os.path.realpath(one) for one in (sys.prefix, sys.base_prefix)}):
        above = [str(one) for one in reversed(Path(path).parents)]
        closed = [one for one in above if not os.stat(one).st_mode & stat.S_IXOTH]
        if closed:
            covered.setdefault(closed[0], []).append(path)
    lines = ["mount -t tmpfs -o mode=755 tmpfs /mnt"] if covered else []
    for top, paths in covered.items():
        for number, path in enumerate(paths):
            lines += [f"mkdir -p /mnt{top}/{number}", f"mount --bind {shlex.quote(path)} /mnt{top}/{number}"]
        lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(top)}"]
        for number, path in enumerate(paths):
            lines += [f"mkdir -p {shlex.quote(path)}", f"mount --bind /mnt{top}/{number} {shlex.quote(path)}"]
    return "\n".join(lines)


def as_command(
    user: int,
    words: Sequence[str],
    *,
    group: int | None = None,
    groups: Sequence[int] | None = None,
    container: bool = False,
    umask: int = 0o077,
    before: str = "",
) -> list[str]:
    """A command, run by a user with its groups. before: shell commands that root runs first, in the command's own namespaces."""
    script = "\n".join(
        line for line in ("set -e", "umask 022", _uncover(), before, f"umask {umask:o}", 'exec "$@"') if line
    )
    others = ",".join(map(str, IN_GROUP[user] if groups is None else groups))
    rights = ["setpriv", f"--reuid={user}", f"--regid={user if group is None else group}", f"--groups={others}"]
    namespaces = CONTAINER if container else ("unshare", "--mount")
    return [*namespaces, "sh", "-c", script, "sh", *rights, *words]


class Person:
    """A program of a user, which asks for sharing. container: in PID, mount and IPC namespaces of its own. how: see `as_command`."""

    def __init__(
        self, user: int, folder: Path, *, share: str | None = "group", container: bool = False, **how: Any
    ) -> None:
        self.container = container
        self._process = subprocess.Popen(
            as_command(user, [sys.executable, "-c", AGENT], container=container, **how),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=as_user(folder, share),
            cwd="/",
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def _ask(self, code: str, is_value: bool) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(repr((code, is_value)), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, f"the program ended at {code!r}"
        good, answer = ast.literal_eval(line)
        if not good:
            raise Refused(answer)
        return answer

    def do(self, code: str) -> None:
        """Runs statements."""
        self._ask(code, False)

    def value(self, code: str) -> Any:
        """The value of an expression, which is a literal."""
        return self._ask(code, True)

    @property
    def pid(self) -> int:
        """The program's number here."""
        if not self.container:
            return self._process.pid
        own = self._process.pid
        return int(Path(f"/proc/{own}/task/{own}/children").read_text().split()[0])

    def kill(self) -> None:
        """kill -9. Returns when the program has ended, and so have its locks."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(DEADLINE)
        self._close()

    def stop(self) -> None:
        """Ends it in any case."""
        if self._process.poll() is None:
            if self.container and (children := self._children()):
                os.kill(int(children[0]), signal.SIGKILL)
            else:
                self._process.kill()
            self._process.wait(DEADLINE)
        self._close()

    def _children(self) -> list[str]:
        return Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@functools.cache
def _lacking() -> str:
    """Why a test cannot have programs of other users in namespaces; empty if it can."""
    if os.geteuid() != 0:
        return "only root can start programs of other users"
    for program in ("unshare", "setpriv", "mount"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    for container in (False, True):
        command = as_command(ANNA, [sys.executable, "-c", "import penstock"], container=container)
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
        if done.returncode != 0:
            return f"another user cannot use this Python, or namespaces cannot be made: {done.stderr.strip()[-200:]}"
    return ""


def require_users() -> None:
    """Skips, with the reason, where a test cannot have programs of other users in namespaces."""
    if lacking := _lacking():
        pytest.skip(lacking)


def until(check: Callable[[], object], what: str) -> None:
    """Waits for a state of other programs. It is a hang if it does not come."""
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.01)
