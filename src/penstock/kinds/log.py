"""`log:` channels: one total order of messages, kept for late readers; slow readers make writers wait."""

from __future__ import annotations

import secrets
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import files, handles, opening
from penstock.channels.channel import Channel
from penstock.channels.handles import NativePublication, NativeSubscription, Origin
from penstock.channels.kind import Kind, Layout
from penstock.channels.options import LogOptions, flag, manual_clock, patience, seconds
from penstock.codecs import Codec
from penstock.errors import Unsupported


def _format(options: LogOptions, codec: Codec, fd: int, hold: _native.OpenHold | None = None) -> None:
    _native.format_log(
        fd=fd,
        term_length=options.term_bytes,
        capacity=options.room,
        slots=options.max_members,
        initial_term_id=options.initial_term_id,
        stream_id=options.stream_id,
        start_position=options.start_position,
        epoch=secrets.randbits(63),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
        hold=hold,
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    return _native.inspect_log(fd, path)


def open_publication(
    channel: Channel,
    *,
    exclusive: bool = False,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> NativePublication:
    """A publication, on a channel made now if there is none, and decided if it is open."""
    alone, stamps = flag(exclusive, "exclusive"), manual_clock(clock)
    writer, found = opening.open_end(
        channel.kind, channel, options, codec, lambda fd, path: _native.log_writer(fd, path, alone, stamps)
    )
    return handles.publication(
        writer, Origin(channel.kind, channel, found, open_publication, {"exclusive": alone, **codecs.named(codec)})
    )


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    last: int | None = None,
    when_slow: str | None = None,
    drop_after: float | None = None,
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    **options: Any,
) -> NativeSubscription:
    """A subscription. Without a channel it makes one that stays open until the first publication."""
    name, position = opening.start_of(start, ("newest", "earliest"), last)
    slow = patience(when_slow, drop_after)
    if slow < 0:
        raise Unsupported(
            f"{channel}: when_slow='fail' is for sync channels; a log's writers wait, or drop a subscription"
        )
    looking, ends = seconds(spin, "spin"), flag(until_end, "until_end")
    arguments = {
        "start": start,
        "when_slow": when_slow,
        "drop_after": drop_after,
        "spin": spin,
        "until_end": ends,
        **codecs.named(codec),
    }
    reader, found = opening.open_reader(
        channel.kind,
        channel,
        options,
        codec,
        lambda fd, path: _native.log_reader(fd, path, name, position, slow),
        lambda fd, path: _native.early_log(fd, path, "log", b"", slow),
        (name, position),
    )
    return handles.subscription(reader, channel.kind, channel, found, open_subscription, arguments, looking, ends)


KIND = Kind(
    name="log",
    written="log:NAME",
    options=LogOptions,
    publish=open_publication,
    subscribe=open_subscription,
    tap=open_subscription,
    memory=Layout(
        format=_format,
        inspect=_inspect,
        open_slots=lambda options: int(options.max_members),
        details=("term_length", "limit"),
    ),
    keeps=True,
)
