"""`ring:` channels: one writer that never waits; a slow reader is lapped and told what it lost."""

from __future__ import annotations

import os
import secrets
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel, parse
from penstock.codecs import Codec
from penstock.options import RingOptions, seconds
from penstock.shm import files, handles, opening
from penstock.shm.handles import Origin, Publication, Subscription
from penstock.status import ChannelStatus


def _format(options: RingOptions, codec: Codec, fd: int) -> None:
    _native.format_ring(
        fd=fd,
        capacity=options.capacity,
        slots=options.slots,
        start_position=options.start_position,
        start_sequence=options.start_sequence,
        epoch=secrets.randbits(63),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
    )


KIND = opening.Kind(RingOptions, _format, _native.inspect_ring)


def inspect(channel: Channel) -> ChannelStatus:
    """A ring's sizes, totals and members."""
    return opening.inspect(KIND, channel)


def _reopen_publication(uri: str, arguments: dict[str, Any]) -> Publication:
    return open_publication(parse(uri), **arguments)


def _reopen_subscription(uri: str, arguments: dict[str, Any]) -> Subscription:
    return open_subscription(parse(uri), **arguments)


def open_publication(
    channel: Channel, *, codec: Any = None, clock: _native.ManualClock | None = None, **options: Any
) -> Publication:
    """The publication, on a channel made now if there is none. `Busy` while another one lives."""
    fd, found = opening.open_or_make(KIND, channel, options, codec)
    try:
        sender = _native.ring_sender(fd, opening.where(channel), clock)
    finally:
        os.close(fd)
    return handles.publication(sender, Origin(channel, found, _reopen_publication, {}, inspect))


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    conflate: bool = False,
    spin: float = 20e-6,
    codec: Any = None,
    **options: Any,
) -> Subscription:
    """A subscription, on a channel made now if there is none."""
    name, position = opening.start_of(start, ("newest",))
    looking = seconds(spin, "spin")
    arguments = {"start": start, "conflate": bool(conflate), "spin": spin}
    fd, found = opening.open_or_make(KIND, channel, options, codec)
    try:
        receiver = _native.ring_receiver(fd, opening.where(channel), name, position, bool(conflate))
    finally:
        os.close(fd)
    return handles.subscription(receiver, Origin(channel, found, _reopen_subscription, arguments, inspect), looking)
