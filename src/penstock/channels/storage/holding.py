"""How far back the messages that a channel keeps in memory reach. A look, without a slot: no writer waits for it."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from penstock.channels.storage.looking import ChannelLook, looks_at
from penstock.channels.uri.channel import Channel
from penstock.errors import PenstockError

FIRST, GROWTH = 1 << 12, 1 << 4


class Held(NamedTuple):
    """What a channel keeps. seconds: since its oldest kept message was sent. is_all: nothing has been overwritten yet."""

    seconds: float
    is_all: bool


def held(channel: Channel, now_ns: int) -> Held | None:
    """What a channel keeps; of several sessions, that which reaches back least. None if it keeps no message, or if messages of its kind cannot be looked
    at."""
    found = []
    try:
        for look in looks_at(channel):
            one = _held(look, now_ns)
            if one is not None:
                found.append(one)
    except PenstockError:  # it is being removed, or damaged: others say that
        return None
    return min(found, key=lambda one: (one.is_all, one.seconds), default=None)


def _held(look: ChannelLook, now_ns: int) -> Held | None:
    oldest, end = look.oldest(), look.end()
    length = FIRST
    while oldest < end:
        times = look.times(oldest, min(end, oldest + length))
        if times:
            seconds = max(0.0, (now_ns - times[0][1]) / 1e9)
            return Held(seconds, oldest <= look.first)
        if oldest + length >= end:
            return None
        length *= GROWTH  # padding, or fragments of a long message
    return None


def measured_rate(channel: Channel) -> float:
    """Bytes of positions per second, from the oldest message that a channel keeps to the newest; 0 where that is not known. It reads all of them."""
    rates = [0.0]
    with contextlib.suppress(PenstockError):
        for look in looks_at(channel):
            times = look.times(look.oldest(), look.end())
            if len(times) > 1 and (passed := times[-1][1] - times[0][1]) > 0:
                rates.append((times[-1][0] - times[0][0]) / passed * 1e9)
    return max(rates)
