"""pyzmq PUB/SUB over ipc with unlimited queues: nothing is lost, and the queues grow instead."""

from __future__ import annotations

import tempfile
from pathlib import Path

import zmq

SETTLE = 0.5  # a subscriber that is not yet connected misses what is sent


def _address(name: str) -> str:
    return f"ipc://{Path(tempfile.gettempdir()) / name}-pub"


class _End:
    def __init__(self, name: str, kind: int) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.set_hwm(0)
        if kind == zmq.PUB:
            self.socket.bind(_address(name))
            self.send = self.socket.send
        else:
            self.socket.subscribe(b"")
            self.socket.connect(_address(name))
            self.recv = self.socket.recv

    def close(self) -> None:
        self.context.destroy(linger=1000)


def sender(name: str, readers: int, size: int) -> _End:
    """A PUB socket."""
    return _End(name, zmq.PUB)


def receiver(name: str, number: int, size: int, **options: float) -> _End:
    """A SUB socket."""
    return _End(name, zmq.SUB)


def clean(name: str) -> None:
    """Removes the socket file."""
    for path in Path(tempfile.gettempdir()).glob(f"{name}-pub"):
        path.unlink()
