"""pyaeron over aeron:udp: Aeron's C client with a media driver in each process, default settings.

pyaeron 0.1 forgets half a message between two polls if the handler is another object, so there is one handler for each receiver.
A side that has nothing to do yields, or sleeps 20 µs while messages stream: else the drivers get no core.
"""

from __future__ import annotations

import os
import tempfile
import time

import pyaeron

from bench.rivals.loopback import clean, port, prepare

__all__ = ["clean", "prepare", "receiver", "sender"]
SETTLE = 0.5
PAUSE_S = 20e-6


class _End:
    def __init__(self) -> None:
        folder = os.path.join(tempfile.gettempdir(), f"aeron-{os.getpid()}-{id(self)}")
        self.driver = pyaeron.MediaDriver(dir=folder, threading="shared")
        self.aeron = pyaeron.Aeron(dir=self.driver.dir)

    def close(self) -> None:
        self.aeron.close()
        self.driver.close()


class _Sender(_End):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.pub = self.aeron.add_exclusive_publication(f"aeron:udp?endpoint=127.0.0.1:{port(name)}", 7)

    def begin(self) -> None:
        self.pub.await_connected()

    def send(self, data: bytes) -> None:
        offer = self.pub.offer
        while offer(data) is not True:
            time.sleep(PAUSE_S)


class _Receiver(_End):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.sub = self.aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port(name)}", 7)
        self.got: list[bytes] = []
        self.keep = self._keep

    def _keep(self, buffer: object, header: object) -> None:
        self.got.append(bytes(buffer))  # type: ignore[call-overload]

    def recv(self) -> bytes:
        while not self.got:
            if not self.sub.poll(self.keep, 1):
                os.sched_yield()
        return self.got.pop(0)

    def receive_many(self) -> int:
        self.sub.poll(self.keep, 256)
        count = len(self.got)
        if not count:
            time.sleep(PAUSE_S)
        self.got.clear()
        return count


def sender(name: str, readers: int, size: int) -> _Sender:
    """A publication with a driver of its own."""
    return _Sender(name)


def receiver(name: str, number: int, size: int, **options: float) -> _Receiver:
    """A subscription with a driver of its own."""
    return _Receiver(name)
