"""Programs of other users, some in namespaces of their own, that do what a test says, line by line."""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import json
import os
import select
import shlex
import shutil
import signal
import socket
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

# A server of forks, as root in a mount namespace of its own: it has imported what programs use, and forks one for each request. A process
# between them waits for the program, which is the first one of its PID namespace in a container, and tells its number and its end.
SERVER = """
import ctypes, json, os, signal, socket, subprocess, sys, threading, time
import numpy, penstock
penstock.publish, penstock.subscribe, penstock.join, penstock.inspect, penstock.list_channels
libc = ctypes.CDLL(None, use_errno=True)
def system(call, *given):
    if call(*given) != 0:
        raise OSError(ctypes.get_errno(), call.__name__)
def answer_lines(stdin, stdout):
    names = {"penstock": penstock, "os": os, "signal": signal, "threading": threading, "time": time}
    print("ready", file=stdout, flush=True)
    for line in stdin:
        code, is_value = eval(line)
        try:
            answer = eval(code, names) if is_value else exec(code, names)
            print(repr((True, answer)), file=stdout, flush=True)
        except BaseException as error:
            print(repr((False, f"{type(error).__name__}: {error}")), file=stdout, flush=True)
def be_the_user(user, group, groups, umask, environment, before, container):
    if container:
        system(libc.mount, b"proc", b"/proc", b"proc", 14, None)  # MS_NOSUID | MS_NODEV | MS_NOEXEC
    subprocess.run(["sh", "-c", f"set -e\\numask 022\\n{before}"], check=True)
    os.umask(umask)
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    system(libc.prctl, 4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as after an exec
    os.environ.clear()
    os.environ.update(environment)
def wait_for_program(read, write, told, asked):
    if asked["container"]:
        system(libc.unshare, 0x28020000)  # CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWNS
        system(libc.mount, b"none", b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
    program = os.fork()
    if program == 0:
        os.close(told)
        be_the_user(**asked)
        answer_lines(open(read), open(write, "w"))
        return
    os.close(read)
    os.close(write)
    os.write(told, b"%d\\n" % program)
    os.waitpid(program, 0)
requests = socket.socket(fileno=0)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    asked, fds, _, _ = socket.recv_fds(requests, 1 << 16, 3)
    if not asked:
        break
    if os.fork() == 0:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            wait_for_program(*fds, json.loads(asked))
        finally:
            os._exit(0)
    for fd in fds:
        os.close(fd)
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


@functools.cache
def _server() -> socket.socket:
    """The server of forks: it ends with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = "\n".join(line for line in ("set -e", "umask 022", _uncover(), 'exec "$@"') if line)
    command = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", SERVER]
    server = subprocess.Popen(
        command, stdin=its, cwd="/", env=as_user(Path("/nowhere"), None) | {"OPENBLAS_NUM_THREADS": "1"}
    )
    its.close()

    def end(owner: int) -> None:
        if os.getpid() == owner:  # not a fork of it
            ours.shutdown(socket.SHUT_RDWR)
            server.wait(DEADLINE)

    atexit.register(end, os.getpid())
    return ours


class Person:
    """A program of a user, which asks for sharing. container: in PID, mount and IPC namespaces of its own. before: shell commands that root
    runs first, in the program's own namespaces."""

    def __init__(
        self,
        user: int,
        folder: Path,
        *,
        share: str | None = "group",
        container: bool = False,
        group: int | None = None,
        umask: int = 0o077,
        before: str = "",
    ) -> None:
        asked = {
            "user": user,
            "group": user if group is None else group,
            "groups": IN_GROUP[user],
            "umask": umask,
            "environment": as_user(folder, share),
            "before": before,
            "container": container,
        }
        (its_in, our_out), (our_in, its_out), (our_end, its_end) = (os.pipe() for _ in range(3))
        socket.send_fds(_server(), [json.dumps(asked).encode()], [its_in, its_out, its_end])
        for fd in (its_in, its_out, its_end):
            os.close(fd)
        self._input, self._output, self._end = os.fdopen(our_out, "w"), os.fdopen(our_in), os.fdopen(our_end)
        self.pid = int(self._end.readline())  # the program's number here
        assert self._output.readline() == "ready\n"

    def _ask(self, code: str, is_value: bool) -> Any:
        print(repr((code, is_value)), file=self._input, flush=True)
        line = self._output.readline()
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

    def kill(self) -> None:
        """kill -9. Returns when the program has ended, and so have its locks."""
        os.kill(self.pid, signal.SIGKILL)
        self._close()

    def stop(self) -> None:
        """Ends it in any case."""
        if not self._end.closed:
            if not select.select([self._end], [], [], 0)[0]:
                os.kill(self.pid, signal.SIGKILL)
            self._close()

    def _close(self) -> None:
        assert select.select([self._end], [], [], DEADLINE)[0], "the program does not end"
        for pipe in (self._input, self._output, self._end):
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
