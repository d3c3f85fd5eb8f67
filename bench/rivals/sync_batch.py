"""Penstock's sync queue, in batches: written from lists, read as Arrow."""

from __future__ import annotations

import pyarrow  # noqa: F401  (loaded before the clock runs)

from bench.rivals import sync

BATCH = 500


class _Sender(sync._Sender):
    def send_many(self, data: bytes, count: int) -> None:
        batch = [data] * BATCH
        for done in range(0, count, BATCH):
            part = batch[: count - done]
            while part := part[self.queue.offer_many(part) :]:
                self.queue.send(part.pop())  # waits for room


class _Receiver(sync._Receiver):
    def receive_many(self) -> int:
        got = int(self.queue.poll_arrow().num_rows)
        if not got:
            self.take()  # waits, in place of asking again and again
        return got or 1


def sender(name: str, readers: int, size: int) -> _Sender:
    """A member that writes."""
    return _Sender(name, size)


def receiver(name: str, number: int, size: int) -> _Receiver:
    """A member that reads."""
    return _Receiver(name, number, size)
