"""Shared by the tests of start order: every kind's wishes, a writer, children in processes of their own."""

from __future__ import annotations

import json
import os
import random
import signal
import warnings
from collections.abc import Callable

import penstock

SMALL = 1 << 16
WISHES = {  # the options of a publication, and those of another one
    "log": ({"term_length": SMALL, "max_members": 12}, {"term_length": 2 * SMALL}),
    "ring": ({"capacity": SMALL}, {"capacity": 2 * SMALL, "max_members": 9}),
    "sync": ({"capacity": SMALL}, {"capacity": 2 * SMALL}),
    "pipe": ({"capacity": SMALL, "max_messages": 40, "max_pipes": 12, "max_members": 12}, {"max_messages": 41}),
    "fake:log": ({"term_length": SMALL, "max_members": 12}, {"term_length": 2 * SMALL}),
}
KINDS = list(WISHES)


def uri(kind: str) -> str:
    return f"{kind}:order"


class Writer:
    """A writer of any kind of channel, which sends numbers."""

    def __init__(self, kind: str, options: dict) -> None:
        if kind == "sync":  # a member: joining decides as a publication does
            self.handle = penstock.join(uri(kind), name="w", codec="json", **options)
        else:
            self.handle = penstock.publish(uri(kind), codec="json", **options)

    def send(self, number: int) -> None:
        self.handle.send(number, timeout=20)


def number_in(message: object) -> int:
    while isinstance(message, dict):
        message = message["body"]
    return int(message)


def receive(subscription: penstock.types.Subscription, count: int) -> list[int]:
    return [number_in(subscription.recv(timeout=20)) for _ in range(count)]


def opened(kind: str, options: dict) -> Writer | str:
    """A writer, or what the error says: which must name the way out."""
    try:
        return Writer(kind, options)
    except penstock.Mismatch as error:
        text = str(error)
    assert "penstock.remove(" in text, text
    assert "penstock rm" in text, text
    return text


def in_child(act: Callable[[int], object]) -> tuple[int, int]:
    """Runs `act(write)` in a forked child that ends without ado; its process id, and what it wrote, to read."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    status = 1
    try:
        os.close(read)
        act(write)
        status = 0
    finally:
        os._exit(status)


def answer(read: int, pid: int) -> object:
    data = b""
    while chunk := os.read(read, 1 << 16):
        data += chunk
    os.close(read)
    _, status = os.waitpid(pid, 0)
    assert status == 0, (status, data)
    return json.loads(data)


def dawdle(rng: random.Random) -> None:
    """Some time passes, or none."""
    for _ in range(rng.choice((0, 0, rng.randrange(100_000)))):
        pass


def ends_within(rng: random.Random, seconds: float) -> None:
    """In a child: the kernel ends it at a random moment, wherever it is, as a kill would."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(rng.uniform(0, seconds), 1e-6))
