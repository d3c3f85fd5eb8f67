"""pyzmq over ipc: REQ and REP."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import zmq

SETTLE = 0.3


class _Asker:
    def __init__(self, name: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.REQ)
        self.socket.connect(f"ipc://{Path(tempfile.gettempdir()) / name}")

    def request(self, data: bytes) -> bytes:
        self.socket.send(data)
        return self.socket.recv()

    def close(self) -> None:
        self.context.destroy(linger=0)


class _Server:
    def __init__(self, name: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.REP)
        self.socket.bind(f"ipc://{Path(tempfile.gettempdir()) / name}")

    def serve(self, answer: Any, count: int) -> None:
        for _ in range(count):
            self.socket.send(answer(self.socket.recv()))

    def close(self) -> None:
        self.context.destroy(linger=1000)


def requester(name: str, **options: float) -> _Asker:
    """A REQ socket."""
    return _Asker(name)


def replier(name: str, **options: float) -> _Server:
    """A REP socket."""
    return _Server(name)
