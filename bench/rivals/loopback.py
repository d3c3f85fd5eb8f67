"""Ports on loopback for rivals that talk over the network: chosen before any process is forked, so that all know them."""

from __future__ import annotations

import contextlib
import socket

_ports: dict[str, int] = {}


def prepare(name: str, readers: int, size: int) -> None:
    """A port that nobody holds now, for UDP and for TCP."""
    with contextlib.ExitStack() as stack:
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        _ports[name] = udp.getsockname()[1]


def port(name: str) -> int:
    """The port of a name."""
    return _ports[name]


def clean(name: str) -> None:
    """Forgets it."""
    _ports.pop(name, None)
