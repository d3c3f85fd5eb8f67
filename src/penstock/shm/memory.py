"""Channels that exist in this process only, for tests: memory without a name, and a gate for each.

Everything else about them is as in shared memory: the same bytes, the same code.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from penstock._native import core as _native
from penstock.channel import Channel
from penstock.errors import NotFound


@dataclass(frozen=True)
class _Place:
    fd: int
    gate: _native.Gate


_places: dict[tuple[str, str], _Place] = {}


def _place(channel: Channel) -> _Place:
    try:
        return _places[channel.kind, channel.name]
    except KeyError:
        raise NotFound(errno.ENOENT, f"there is no channel {channel} in this process") from None


def open_existing(channel: Channel) -> int:
    """A descriptor of the channel's memory. `NotFound` if there is none."""
    return os.dup(_place(channel).fd)


def create(channel: Channel, size: int, fill: Callable[[int], None]) -> bool:
    """Makes a channel of `size` bytes, filled by `fill(fd)`; False if there is one."""
    fd = os.memfd_create(f"penstock-{channel.name}", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        fill(fd)
    except BaseException:
        os.close(fd)
        raise
    if _places.setdefault((channel.kind, channel.name), _Place(fd, _native.Gate())).fd != fd:
        os.close(fd)
        return False
    return True


def unlink(channel: Channel) -> None:
    """Forgets a channel. Those who have it open keep it; `NotFound` if there is none."""
    place = _place(channel)
    del _places[channel.kind, channel.name]
    os.close(place.fd)


def gate(channel: Channel) -> _native.Gate:
    """Where a test stands between the channel and its subscriptions. `NotFound` if there is no such channel."""
    return _place(channel).gate
