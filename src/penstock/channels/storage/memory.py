"""Channels that exist in this process only, for tests: memory without a name, and a gate for each.

Everything else about them is as in shared memory: the same bytes, the same code.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from penstock._native import core as _native
from penstock.errors import NotFound


class Channel(Protocol):
    """A channel of this process."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def kind(self) -> Any:
        """Its kind, which has a name too."""


class _Place(NamedTuple):
    fd: int
    gate: _native.Gate


_places: dict[tuple[str, str], _Place] = {}
_made = 0


def _place(channel: Channel) -> _Place:
    try:
        return _places[channel.kind.name, channel.name]
    except KeyError:
        raise NotFound(errno.ENOENT, f"there is no channel {channel} in this process") from None


def open_existing(channel: Channel) -> int:
    """A descriptor of the channel's memory. `NotFound` if there is none."""
    # A separate open file description: its lock ends when it is closed, as for a file that was opened.
    return os.open(f"/proc/self/fd/{_place(channel).fd}", os.O_RDWR | os.O_CLOEXEC)


def create(channel: Channel, size: int, fill: Callable[[int], None]) -> bool:
    """Makes a channel of `size` bytes, filled by `fill(fd)`; False if there is one."""
    fd = os.memfd_create(f"penstock-{channel.name}", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        fill(fd)
    except BaseException:
        os.close(fd)
        raise
    if _places.setdefault((channel.kind.name, channel.name), _Place(fd, _native.Gate())).fd != fd:
        os.close(fd)
        return False
    global _made
    _made += 1
    return True


def count() -> tuple[int, int]:
    """How many channels there are, and how many were ever made."""
    return len(_places), _made


def identity(channel: Channel) -> int:
    """A number that changes when a channel is removed and created again."""
    return os.fstat(_place(channel).fd).st_ino


def unlink(channel: Channel) -> None:
    """Forgets a channel. Handles that are open keep it; `NotFound` if there is none."""
    place = _place(channel)
    del _places[channel.kind.name, channel.name]
    os.close(place.fd)


def names(channel: Channel, fd: int) -> bool:
    """Whether the channel's memory is still this descriptor's."""
    place = _places.get((channel.kind.name, channel.name))
    return place is not None and os.path.sameopenfile(place.fd, fd)


def listing() -> list[tuple[str, str]]:
    """The channels of this process: the names of their kinds, and their own, sorted by these."""
    return sorted(_places, key=lambda place: (place[1], place[0]))


def gate(channel: Channel) -> _native.Gate:
    """The gate between the channel and its subscriptions, for tests. `NotFound` if there is no such channel."""
    return _place(channel).gate
