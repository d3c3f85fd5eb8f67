"""This machine's loopback as a server sees it: its address, the Host headers that name it, a socket that listens. Knows no protocol above."""

from __future__ import annotations

import re
import socket

from penstock.errors import SystemFailure

LOOPBACK = "127.0.0.1"
_LOCAL = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)


def is_local(host: str) -> bool:
    """Whether a Host header names this machine. A server refuses others, or a web page could read it under a name of its own."""
    return _LOCAL.fullmatch(host) is not None


def listening(port: int) -> socket.socket:
    """A socket that listens on the loopback. port: 0 takes a free one. `SystemFailure` if it is taken."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((LOOPBACK, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise unusable(port, error) from error
    return made


def unusable(port: int, error: OSError) -> SystemFailure:
    """The error of a port that cannot be served on."""
    return SystemFailure(error.errno or 0, f"cannot serve on port {port}: {error.strerror}")
