"""pyzmq over tcp: PUSH to PULL, which loses nothing."""

from __future__ import annotations

import zmq

from bench.rivals.loopback import clean, port, prepare

__all__ = ["clean", "prepare", "receiver", "sender"]
SETTLE = 0.3


class _End:
    def __init__(self, name: str, kind: int) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.set_hwm(10_000)
        address = f"tcp://127.0.0.1:{port(name)}"
        (self.socket.bind if kind == zmq.PULL else self.socket.connect)(address)
        self.send, self.recv = self.socket.send, self.socket.recv

    def close(self) -> None:
        self.context.destroy(linger=1000)


def sender(name: str, readers: int, size: int) -> _End:
    """A PUSH socket."""
    return _End(name, zmq.PUSH)


def receiver(name: str, number: int, size: int, **options: float) -> _End:
    """A PULL socket."""
    return _End(name, zmq.PULL)
