"""Ports for tests. Each process has a block of its own, so that tests beside each other never meet at one."""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator

_FIRST, _END, _SIZE = 15_200, 32_000, 200  # above Spark Connect's, below those that the kernel gives out by itself
_blocks: dict[int, Iterator[int]] = {}  # by process: a fork takes a block of its own


def _take_block() -> Iterator[int]:
    """The ports of a block, again and again. A socket without a file holds the block until this process ends."""
    blocks = range(_FIRST, _END, _SIZE)
    for first in random.SystemRandom().sample(blocks, len(blocks)):
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            holder.bind(f"\0penstock-tests-{first}")
        except OSError:
            holder.close()
        else:
            holder.detach()
            return itertools.cycle(range(first, first + _SIZE))
    raise RuntimeError("other tests have all ports")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def free_port() -> int:
    """A port at which nobody listens, and which no other process of these tests takes."""
    ports = _blocks.get(os.getpid())
    if ports is None:
        ports = _blocks[os.getpid()] = _take_block()
    return next(port for port in ports if _is_free(port))
