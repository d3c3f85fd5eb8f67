"""pyzmq over ipc: PUB/SUB with unlimited queues would lose nothing and grow; PUSH to one socket per reader is lossless."""

from __future__ import annotations

import tempfile
from pathlib import Path

import zmq

SETTLE = 0.3


def _address(name: str, number: int) -> str:
    return f"ipc://{Path(tempfile.gettempdir()) / name}-{number}"


class _Sender:
    def __init__(self, name: str, readers: int) -> None:
        self.context = zmq.Context()
        self.sockets = []
        for number in range(readers):
            socket = self.context.socket(zmq.PUSH)
            socket.set_hwm(10_000)
            socket.bind(_address(name, number))
            self.sockets.append(socket)
        if readers == 1:
            self.send = self.sockets[0].send

    def send(self, data: bytes) -> None:
        for socket in self.sockets:
            socket.send(data)

    def close(self) -> None:
        self.context.destroy(linger=1000)


class _Receiver:
    def __init__(self, name: str, number: int) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PULL)
        self.socket.set_hwm(10_000)
        self.socket.connect(_address(name, number))
        self.recv = self.socket.recv

    def close(self) -> None:
        self.context.destroy(linger=0)


def sender(name: str, readers: int, size: int) -> _Sender:
    """A PUSH socket per reader."""
    return _Sender(name, readers)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """A PULL socket."""
    return _Receiver(name, number)


def clean(name: str) -> None:
    """Removes the socket files."""
    for path in Path(tempfile.gettempdir()).glob(f"{name}-*"):
        path.unlink()
