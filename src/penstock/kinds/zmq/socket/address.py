"""Binds ZeroMQ sockets to addresses, and never takes over an address of another process."""

from __future__ import annotations

import errno
import socket as socketlib
import time
from typing import Any

from penstock.errors import NotFound


def bind(module: Any, socket: Any, endpoint: str, patience: float) -> None:
    """Binds a socket. A predecessor that has just closed may hold the address a moment longer: tries again for `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            if _listens(endpoint):
                raise module.ZMQError(module.EADDRINUSE)
            socket.bind(endpoint)
            return
        except module.ZMQError as error:
            if error.errno != module.EADDRINUSE or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def check_host(channel: object, endpoint: str) -> None:
    """`NotFound` for a TCP endpoint whose host's name has no address: ZeroMQ would look it up again and again, in silence."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(";")[2].rpartition(":")
    if endpoint.startswith("tcp://"):
        try:
            socketlib.getaddrinfo(host.strip("[]"), port, type=socketlib.SOCK_STREAM)
        except OSError as error:
            text = f"{channel}: there is no host {host!r}: {error.strerror or error}"
            raise NotFound(errno.ENOENT, text) from error


def _listens(endpoint: str) -> bool:
    """Whether a path has a listener already. ZeroMQ itself would replace it silently."""
    path = endpoint.removeprefix("ipc://")
    if path == endpoint or path.startswith("@"):
        return False
    with socketlib.socket(socketlib.AF_UNIX, socketlib.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # its queue of connections is full
            return True
        except OSError:
            return False
        return True
