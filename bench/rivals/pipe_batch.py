"""Penstock's pipes in batches: offer_many and poll_arrow."""

from __future__ import annotations

import pyarrow  # noqa: F401  (loaded before the clock runs)

from bench.rivals import pipe

BATCH = 2000


class _Sender(pipe.Sender):
    def send_many(self, data: bytes, count: int) -> None:
        batch, left = [data] * BATCH, count
        while left:
            sent = self.pub.offer_many(batch if left >= BATCH else batch[:left])
            left -= sent
            if not sent:
                left -= self.pub.send(data) > 0  # full: wait like a send


class _Receiver(pipe.Receiver):
    def receive_many(self) -> int:
        got = self.sub.poll_arrow().num_rows
        if not got:
            self.sub.recv()
            return 1
        return int(got)


def sender(name: str, readers: int, size: int) -> _Sender:
    """A pusher."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int) -> _Receiver:
    """A puller."""
    return _Receiver(name, size)
