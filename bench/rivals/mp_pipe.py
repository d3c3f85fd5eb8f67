"""multiprocessing.Pipe, one per reader."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

_pipes: dict[str, list[tuple[Connection, Connection]]] = {}


def prepare(name: str, readers: int, size: int) -> None:
    """Pipes must exist before the children do."""
    _pipes[name] = [multiprocessing.Pipe(duplex=False) for _ in range(readers)]


class _Sender:
    def __init__(self, name: str) -> None:
        self.ends = [write for _, write in _pipes[name]]

    def send(self, data: bytes) -> None:
        for end in self.ends:
            end.send_bytes(data)

    def close(self) -> None:
        for end in self.ends:
            end.close()


class _Receiver:
    def __init__(self, name: str, number: int) -> None:
        self.end = _pipes[name][number][0]
        self.recv = self.end.recv_bytes
        self.close = self.end.close


def sender(name: str, readers: int, size: int) -> _Sender:
    """The writing ends."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """A reading end."""
    return _Receiver(name, number)


def clean(name: str) -> None:
    """Forgets the pipes."""
    for read, write in _pipes.pop(name):
        read.close()
        write.close()
