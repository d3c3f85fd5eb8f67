"""pyaeron over aeron:ipc: Aeron's C client and media driver, the driver in the benchmark's parent process.

pyaeron 0.1 forgets half a message between two polls, so messages of several fragments are put together here.
"""

from __future__ import annotations

import pyaeron

SETTLE = 0.5
MTU = 65504  # the longest that Aeron allows: fewest fragments
END = 0x40
_driver = None


def prepare(name: str, readers: int, size: int) -> None:
    """One media driver for all runs."""
    global _driver
    if _driver is None:
        _driver = pyaeron.MediaDriver()


def _stream(name: str) -> int:
    return sum(name.encode()) * 1000 + int(name[-7:-1] if not name[-1].isdigit() else name[-6:]) % 1000000


def _channel(size: int) -> str:
    return f"aeron:ipc?term-length={max(1 << 24, size * 16)}|mtu={MTU}"


class _Sender:
    def __init__(self, name: str, readers: int, size: int) -> None:
        self.aeron = pyaeron.Aeron.connect(dir=_driver.dir)
        self.pub = self.aeron.add_publication(_channel(size), _stream(name))

    def send(self, data: bytes) -> None:
        offer = self.pub.offer
        while not offer(data):
            pass

    def close(self) -> None:
        self.pub.close()
        self.aeron.close()


class _Receiver:
    def __init__(self, name: str, size: int) -> None:
        self.aeron = pyaeron.Aeron.connect(dir=_driver.dir)
        self.sub = self.aeron.add_subscription(_channel(size), _stream(name))
        self.sub.await_connected()
        self.got: list[bytes] = []
        self.parts: list[bytes] = []
        self.keep = self._keep if size < MTU - 32 else self._keep_part

    def _keep(self, buffer: object, header: object) -> None:
        self.got.append(bytes(buffer))

    def _keep_part(self, buffer: object, header: object) -> None:
        self.parts.append(bytes(buffer))
        if header.flags & END:
            self.got.append(b"".join(self.parts))
            self.parts.clear()

    def recv(self) -> bytes:
        while not self.got:
            self.sub.poll(self.keep, 1, assemble=False)
        return self.got.pop()

    def receive_many(self) -> int:
        self.sub.poll(self.keep, 256, assemble=False)
        count = len(self.got)
        self.got.clear()
        return count

    def close(self) -> None:
        self.sub.close()
        self.aeron.close()


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication."""
    return _Sender(name, readers, size)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """A subscription."""
    return _Receiver(name, size)
