"""A bad link: a relay on loopback that loses a share of the datagrams in both directions. Knows UDP sockets; opens no channel."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
DATAGRAM_MAX = 65_536
BUFFER_BYTES = 4 << 20


def free_ports(count: int) -> list[int]:
    """UDP ports of loopback that are not in use."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(_socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def relay(links: dict[int, int], loss: float, seed: int, end: Any) -> Counter[tuple[str, str]]:
    """Forwards datagrams from each port to its target port, and the answers back, until `end` is set.

    Of the datagrams of each direction it loses the share `loss`. Returns how many it passed and lost: ("to the receivers", "lost") …
    """
    chance, counts = random.Random(seed), Counter[tuple[str, str]]()
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        for port, target in links.items():
            front, back = (opened.enter_context(_socket()) for _ in range(2))
            front.bind((HOST, port))
            back.connect((HOST, target))
            client: list[Any] = []  # the source of the last datagram: answers are sent there
            selector.register(front, selectors.EVENT_READ, _Way("to the receivers", front, back, True, client))
            selector.register(back, selectors.EVENT_READ, _Way("to the senders", back, front, False, client))
        while not end.is_set():
            for key, _ in selector.select(0.1):
                _pass(key.data, lambda: chance.random() < loss, counts)
    return counts


@dataclass
class _Way:
    name: str
    source: socket.socket
    target: socket.socket
    forward: bool
    client: list[Any]


def _pass(way: _Way, loses: Callable[[], bool], counts: Counter[tuple[str, str]]) -> None:
    """Forwards all datagrams that wait at one end. A datagram that the system refuses is lost, as in a network."""
    with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
        while True:
            datagram, at = way.source.recvfrom(DATAGRAM_MAX)
            if way.forward:
                way.client[:] = [at]
            lost = loses()
            counts[way.name, "lost" if lost else "passed"] += 1
            if lost:
                continue
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                if way.forward:
                    way.target.send(datagram)
                elif way.client:
                    way.target.sendto(datagram, way.client[0])


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return made
