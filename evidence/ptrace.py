"""Forked children under ptrace: their system calls are counted, made to fail, or are the last thing they do. x86-64."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
TRACEME, PEEKUSER, POKEUSER, SYSCALL, SETOPTIONS = 0, 3, 6, 24, 0x4200
SYSGOOD, EXITKILL = 1, 0x100000
ORIG_RAX, RAX, RDI = 15 * 8, 10 * 8, 14 * 8

NAMES = {
    0: "read", 1: "write", 2: "open", 3: "close", 5: "fstat", 6: "lstat", 4: "stat", 8: "lseek", 9: "mmap", 16: "ioctl",
    17: "pread64", 18: "pwrite64", 40: "sendfile", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 77: "ftruncate",
    82: "rename", 83: "mkdir", 86: "link", 87: "unlink", 90: "chmod", 91: "fchmod", 217: "getdents64", 257: "openat",
    258: "mkdirat", 262: "newfstatat", 263: "unlinkat", 264: "renameat", 265: "linkat", 285: "fallocate", 316: "renameat2",
    318: "getrandom", 319: "memfd_create", 332: "statx", 41: "socket", 42: "connect", 49: "bind", 51: "getsockname",
    54: "setsockopt", 55: "getsockopt", 233: "epoll_ctl", 271: "ppoll", 283: "timerfd_create", 290: "eventfd2",
    291: "epoll_create1", 299: "recvmmsg", 307: "sendmmsg", 434: "pidfd_open",
}  # fmt: skip


def supported() -> str:
    """Why this cannot run here, or nothing."""
    if platform.machine() != "x86_64":
        return f"the tracer knows x86-64, this is {platform.machine()}"
    try:
        with Child(lambda: None) as child:
            child.run()
    except OSError as error:
        return f"ptrace is not allowed here: {error}"
    return ""


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    ctypes.set_errno(0)
    result = _libc.ptrace(request, pid, address, data)
    number = ctypes.get_errno()
    if result == -1 and number != 0:
        raise OSError(number, f"ptrace request {request}: {os.strerror(number)}")
    return int(result)


@dataclass(frozen=True)
class Call:
    """One system call of a child."""

    number: int
    name: str


class Child:
    """Runs `act` in a fork. Its exit status says how: 0 well, 1 an exception that `act` should not have let out."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                _ptrace(TRACEME, 0)
                os.kill(os.getpid(), signal.SIGSTOP)
                act()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        self.status: int | None = None
        os.waitpid(self.pid, 0)
        _ptrace(SETOPTIONS, self.pid, 0, SYSGOOD | EXITKILL)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """kill -9; gone when this returns."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            while True:
                _, status = os.waitpid(self.pid, 0)
                if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                    self.status = status
                    return

    def _to_next(self) -> bool:
        """Stops at the next entry to, or exit from, a system call; false when the child has ended."""
        passed = 0
        while True:
            _ptrace(SYSCALL, self.pid, 0, passed)
            _, status = os.waitpid(self.pid, 0)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self.status = status
                return False
            stopped = os.WSTOPSIG(status)
            if stopped == signal.SIGTRAP | 0x80:
                return True
            passed = 0 if stopped in (signal.SIGTRAP, signal.SIGSTOP) else stopped

    def run(self, *, fail_at: int = -1, number: int = 0, kill_at: int = -1) -> list[Call]:
        """Lets it run. The `fail_at`-th call of those in `NAMES` fails with errno `number` and does nothing; at the
        `kill_at`-th, once it was made, the child is killed."""
        calls: list[Call] = []
        while self._to_next():
            call = _ptrace(PEEKUSER, self.pid, ORIG_RAX)
            known = call in NAMES
            index = len(calls)
            if known:
                calls.append(Call(call, NAMES[call]))
            if known and index == fail_at:
                _ptrace(POKEUSER, self.pid, ORIG_RAX, -1)
            if not self._to_next():
                break
            if known and index == fail_at:
                _ptrace(POKEUSER, self.pid, RAX, -number)
            if known and index == kill_at:
                self.kill()
                break
        return calls

    @property
    def verdict(self) -> str:
        """The fault in the way it ended, or nothing."""
        assert self.status is not None
        if os.WIFSIGNALED(self.status):
            return f"died by signal {os.WTERMSIG(self.status)}"
        return "" if os.WEXITSTATUS(self.status) == 0 else "let out an exception that is not this library's"
