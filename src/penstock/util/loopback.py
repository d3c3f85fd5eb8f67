"""This machine's loopback as a server sees it: its address, the Host headers that name it, a socket that listens, a bound on connections.

Knows no protocol above.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable

from penstock.errors import SystemFailure

LOOPBACK = "127.0.0.1"
CONNECTIONS = 64  # of one server at once
CLIENT_SECONDS = 10.0  # that a server waits for a client: for the whole of its request, or until it reads the answer
BACKLOG = 128
ANSWER_BYTES = 16  # a shorter answer is none: the kernel counts the opening as a byte
_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)


def is_local(host: str) -> bool:
    """Whether a Host header names this machine. A server refuses others, or a web page could read it under its own name."""
    return _LOCAL.fullmatch(host) is not None


def listening(port: int) -> socket.socket:
    """A socket that listens on the loopback. port: 0 takes a free one. `SystemFailure` if it is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((LOOPBACK, port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise unusable(port, error) from error
    return made


def unusable(port: int, error: OSError) -> SystemFailure:
    """The error of a port that cannot be served on."""
    return SystemFailure(error.errno or 0, f"cannot serve on port {port}: {error.strerror}")


class Connections:
    """The connections of a server: a bounded number, and none whose client keeps the server waiting for longer than `seconds`.

    Where one too many connects, the one that has waited the longest for its client ends; the new one, if all are at work. `end`
    functions must not block. Any thread may call.
    """

    def __init__(
        self,
        most: int = CONNECTIONS,
        seconds: float = CLIENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._ends: dict[Hashable, Callable[[], None]] = {}
        self._since: dict[
            Hashable, float
        ] = {}  # those that wait for their clients; the first one has waited the longest
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, one: Hashable, end: Callable[[], None]) -> None:
        """A connection was accepted. It waits for its client."""
        with self._lock:
            given_up = [] if len(self._ends) < self._most else [next(iter(self._since), one)]
            ends = [end if each == one else self._pop(each) for each in given_up]
            if one not in given_up:
                self._ends[one], self._since[one] = end, self._clock()
        for each in ends:
            each()

    def at_work(self) -> bool:
        """Whether the limit is reached, and no connection waits for its client."""
        with self._lock:
            return len(self._ends) >= self._most and not self._since

    def work(self, one: Hashable) -> None:
        """The connection's client has to wait for the server."""
        with self._lock:
            self._since.pop(one, None)

    def wait(self, one: Hashable) -> None:
        """The server has to wait for the connection's client, from now on."""
        with self._lock:
            if one in self._ends:
                self._since.pop(one, None)
                self._since[one] = self._clock()

    def remove(self, one: Hashable) -> None:
        """The connection has ended."""
        with self._lock:
            self._since.pop(one, None)
            self._ends.pop(one, None)

    def end_late(self) -> None:
        """Ends those that have waited too long for their clients. To be called now and then."""
        due = self._clock() - self._seconds
        with self._lock:
            ends = [self._pop(one) for one in [one for one, since in self._since.items() if since <= due]]
        for end in ends:
            end()

    def end_all(self) -> None:
        """Ends every one."""
        with self._lock:
            ends = [self._pop(one) for one in list(self._ends)]
        for end in ends:
            end()

    def _pop(self, one: Hashable) -> Callable[[], None]:
        self._since.pop(one, None)
        return self._ends.pop(one)


def own_sockets(port: int) -> tuple[bool, dict[int, Callable[[], None]]]:
    """Sockets at this port that another library of this process has: whether one listens, and connections to which nothing was sent.

    Each of these by its number, with a function that ends it: a server that sends nothing has not received a complete request.
    """
    listens, silent = False, {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family != socket.AF_INET or one.type != socket.SOCK_STREAM or one.getsockname()[1] != port:
                    continue
                if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    listens = True
                elif _read_acknowledged(one) < ANSWER_BYTES:
                    silent[os.fstat(one.fileno()).st_ino] = _ender(int(name), os.fstat(one.fileno()).st_ino)
        except OSError as error:  # closed in the meantime
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
    return listens, silent


def _read_acknowledged(one: socket.socket) -> int:
    """The bytes of this connection that the other side has acknowledged: tcpi_bytes_acked of linux/tcp.h."""
    return int(struct.unpack_from("<Q", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), 120)[0])


def _ender(number: int, inode: int) -> Callable[[], None]:
    def end() -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            if os.fstat(one.fileno()).st_ino == inode:
                one.shutdown(socket.SHUT_RDWR)

    return end
