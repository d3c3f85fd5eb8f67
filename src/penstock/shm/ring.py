"""`ring:` channels: one writer that never waits; a slow reader is lapped and told what it lost."""

from __future__ import annotations

import secrets
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.options import RingOptions, seconds
from penstock.shm import files, handles, opening
from penstock.shm.handles import Origin, Publication, Subscription


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


def open_publication(
    channel: Channel, *, codec: Any = None, clock: _native.ManualClock | None = None, **options: Any
) -> Publication:
    """The publication, on a channel made now if there is none. `Busy` while another one lives."""
    sender, found = opening.open_end(
        KIND, channel, options, codec, lambda fd, path: _native.ring_sender(fd, path, clock)
    )
    return handles.publication(sender, Origin(KIND, channel, found, open_publication, {}))


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
    receiver, found = opening.open_end(
        KIND, channel, options, codec, lambda fd, path: _native.ring_receiver(fd, path, name, position, bool(conflate))
    )
    return handles.subscription(receiver, Origin(KIND, channel, found, open_subscription, arguments), looking)
