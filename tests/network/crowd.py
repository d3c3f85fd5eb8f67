"""A crowd of strangers for the tests of shares: sockets of one address or of a hundred, a thread that sends and answers for them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable

from network import frames

Address = tuple[str, int]


def hosts(count: int) -> list[str]:
    """So many addresses of loopback, each of them another host for a receiver or a publication."""
    return [f"127.0.{1 + number // 250}.{1 + number % 250}" for number in range(count)]


class Crowd:
    """Strangers that send what `say(index, round)` gives, to one address, until the block ends.

    answers: they send measurements of the round trip back, so their addresses are proved. hear(index, datagram) gets all else that
    comes, and gives what is sent back at once.
    """

    def __init__(
        self,
        sources: Iterable[str],
        to: Address,
        say: Callable[[int, int], Iterable[bytes]],
        *,
        answers: bool = False,
        pause: float = 0.05,
        hear: Callable[[int, bytes], Iterable[bytes]] = lambda index, datagram: (),
    ) -> None:
        self.to, self.say, self.answers, self.pause, self.hear = to, say, answers, pause, hear
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in sources]
        for made, source in zip(self.sockets, sources, strict=True):
            made.bind((source, 0))
            made.setblocking(False)
        self.sent = [0] * len(self.sockets)  # bytes
        self.drawn = [0] * len(self.sockets)
        self.rounds = 0
        self.acted = threading.Condition()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._act)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        for made in self.sockets:
            made.close()

    def wait(self, rounds: int, patience: float) -> None:
        """Until they have spoken so many times more."""
        with self.acted:
            until = self.rounds + rounds
            assert self.acted.wait_for(lambda: self.rounds >= until, patience)

    def _act(self) -> None:
        while not self._ends.wait(self.pause):
            for index, made in enumerate(self.sockets):
                for datagram in self.say(index, self.rounds):
                    self._send(index, made, datagram)
                self._listen(index, made)
            with self.acted:
                self.rounds += 1
                self.acted.notify_all()

    def _send(self, index: int, made: socket.socket, datagram: bytes) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            self.sent[index] += made.sendto(datagram, self.to)

    def _listen(self, index: int, made: socket.socket) -> None:
        for _ in range(1000):
            try:
                datagram = made.recv(1 << 16)
            except (BlockingIOError, ConnectionRefusedError):
                return
            self.drawn[index] += len(datagram)
            if frames.kind(datagram) == frames.RTT and datagram[5] == frames.REPLY:
                if self.answers:
                    self._send(index, made, datagram[:5] + b"\0" + datagram[6:])
                continue
            for answer in self.hear(index, datagram):
                self._send(index, made, answer)


def session_of(setup: bytes) -> tuple[int, int, int]:
    """The session, the active term and the offset that a SETUP names."""
    offset, session, _, _, term = struct.unpack_from("<iiiii", setup, 8)
    return session, term, offset
