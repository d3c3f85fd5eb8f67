"""`log:` channels: one total order of messages, kept for late readers; slow readers make writers wait."""

from __future__ import annotations

import secrets
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.options import LogOptions, seconds
from penstock.shm import files, handles, opening
from penstock.shm.handles import Origin, Publication, Subscription


def _format(options: LogOptions, codec: Codec, fd: int) -> None:
    _native.format_log(
        fd=fd,
        term_length=options.term_length,
        window=options.effective_window,
        slots=options.slots,
        initial_term_id=options.initial_term_id,
        stream_id=options.stream_id,
        start_position=options.start_position,
        epoch=secrets.randbits(63),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
    )


KIND = opening.Kind(LogOptions, _format, _native.inspect_log)


def open_publication(
    channel: Channel,
    *,
    exclusive: bool = False,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> Publication:
    """A publication, on a channel made now if there is none."""
    sender, found = opening.open_end(
        KIND, channel, options, codec, lambda fd, path: _native.log_sender(fd, path, exclusive, clock)
    )
    return handles.publication(sender, Origin(KIND, channel, found, open_publication, {"exclusive": exclusive}))


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    drop_after: float | None = None,
    spin: float = 20e-6,
    codec: Any = None,
    **options: Any,
) -> Subscription:
    """A subscription, on a channel made now if there is none."""
    name, position = opening.start_of(start, ("newest", "earliest"))
    patience = seconds(drop_after, "drop_after")
    if drop_after is not None and patience == 0:
        patience = 1e-9
    looking = seconds(spin, "spin")
    arguments = {"start": start, "drop_after": drop_after, "spin": spin}
    receiver, found = opening.open_end(
        KIND, channel, options, codec, lambda fd, path: _native.log_receiver(fd, path, name, position, patience)
    )
    return handles.subscription(receiver, Origin(KIND, channel, found, open_subscription, arguments), looking)
