"""Python's own sockets: one datagram for each message, with a window by hand, since UDP alone would lose messages.

Messages that no datagram holds are sent in parts of 60,000 bytes.
"""

from __future__ import annotations

import math
import socket

from bench.rivals.loopback import clean, port, prepare

__all__ = ["clean", "prepare", "receiver", "sender"]
PART = 60_000
WINDOW = 1 << 18  # bytes on their way; a datagram of 64 bytes is charged as 832


def _every(size: int) -> int:
    """Messages between two acknowledgements; two such lots may be on their way."""
    return max(1, WINDOW // max(size, 832) // 2)


class _Sender:
    def __init__(self, name: str, size: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.socket.connect(("127.0.0.1", port(name)))
        self.every = _every(size)
        self.sent = 0

    def send(self, data: bytes) -> None:
        if self.sent % self.every == 0 and self.sent >= 2 * self.every:
            self.socket.recv(1)
        self.sent += 1
        for at in range(0, len(data), PART):
            self.socket.send(data[at : at + PART] if at or len(data) > PART else data)

    def close(self) -> None:
        self.socket.close()


class _Receiver:
    def __init__(self, name: str, size: int, spin: float) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(("127.0.0.1", port(name)))
        self.parts = math.ceil(size / PART)
        self.every, self.got = _every(size), 0
        self.from_: tuple[str, int] | None = None
        self.flags = socket.MSG_DONTWAIT if spin else 0

    def _part(self) -> bytes:
        if self.flags:
            while True:
                try:
                    return self.socket.recv(65536, self.flags)
                except BlockingIOError:
                    continue
        return self.socket.recv(65536)

    def recv(self) -> bytes:
        if self.from_ is None:
            found, self.from_ = self.socket.recvfrom(65536)
            self.socket.connect(self.from_)
        else:
            found = self._part()
        if self.parts > 1:
            found += b"".join([self._part() for _ in range(self.parts - 1)])
        self.got += 1
        if self.got % self.every == 0:
            self.socket.send(b"!")
        return found

    def close(self) -> None:
        self.socket.close()


def sender(name: str, readers: int, size: int) -> _Sender:
    """A connected socket."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int, spin: float = 0, **options: float) -> _Receiver:
    """A bound socket, connected to the sender once it is known."""
    return _Receiver(name, size, spin)
