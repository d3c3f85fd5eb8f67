"""`log:` channels: one total order of messages, kept for late readers; slow readers make writers wait."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import handles
from penstock.channels.checks import (
    MIB,
    TERM_LENGTH_MAX,
    TERM_LENGTH_MIN,
    check_whole,
    flag,
    manual_clock,
    patience,
    seconds,
    within,
)
from penstock.channels.handles import NativePublication, NativeSubscription
from penstock.channels.kind import Kind, Layout
from penstock.channels.storage import files, opening
from penstock.channels.storage.reopening import ReopenArgs
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue, Message
from penstock.codecs import Codec
from penstock.errors import Invalid, Unsupported


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The options of a new log. The first publication decides; `Mismatch` if a later one asks for something else.

    capacity: bytes by which writers may be ahead of the slowest subscription, from half a term to a term; a whole term unless given.
    term_length: bytes of one of the three terms, a power of two from 64 KiB to 1 GiB; unless given, the smallest that `capacity`
    fits in, or 8 MiB. The channel takes three times this in shared memory; the longest message that `offer` and `claim` take is a
    quarter of it.
    max_members: how many publications and subscriptions may exist at once, 2 to 1024.
    initial_term_id, start_position: where counting begins; for tests at the edges.
    """

    capacity: int | None = None
    term_length: int | None = None
    max_members: int = 64
    stream_id: int = 1
    initial_term_id: int = 0
    start_position: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "term_bytes", "room", "max_members", "stream_id", "initial_term_id", "start_position")
        for name in ("stream_id", "initial_term_id"):
            if not -(1 << 31) <= getattr(self, name) < 1 << 31:
                raise Invalid(f"{name} is {getattr(self, name)}: it must fit in 32 bits with a sign")
        if self.term_length is None and self.room > TERM_LENGTH_MAX:
            raise Invalid(f"capacity is {self.room}: it must be at most {TERM_LENGTH_MAX}")
        within(self, 32, "room", "term_bytes", "max_members")
        within(self, 63, "start_position")
        _native.check_log_options(self.term_bytes, self.room, self.max_members, self.start_position)

    @property
    def term_bytes(self) -> int:
        """`term_length`, or its default."""
        if self.term_length is not None:
            return self.term_length
        if not isinstance(self.capacity, int):
            return 8 * MIB
        return max(TERM_LENGTH_MIN, 1 << max(self.capacity - 1, 0).bit_length())

    @property
    def room(self) -> int:
        """`capacity`, or its default."""
        return self.term_bytes if self.capacity is None else self.capacity

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.log_file_size(self.max_members, self.term_bytes)


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
    """A publication. Creates the channel if it does not exist, and decides an open one."""
    alone, stamps = flag(exclusive, "exclusive"), manual_clock(clock)
    writer, found = opening.open_end(
        channel.kind, channel, options, codec, lambda fd, path: _native.log_writer(fd, path, alone, stamps)
    )
    return handles.publication(
        writer, ReopenArgs(channel.kind, channel, found, open_publication, {"exclusive": alone, **codecs.named(codec)})
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


@dataclass(frozen=True, repr=False, kw_only=True)
class Log(ChannelValue[Message]):
    """A `log:` channel: one total order of messages, kept for late readers. A slow reader makes the writers wait.

    capacity: bytes by which writers may be ahead of the slowest subscription, from half a term to a term. term_length: bytes of one of
    the three terms, a power of two from 64 KiB to 1 GiB; the longest message in one frame is a quarter of it. max_members: publications and
    subscriptions at once, 2 to 1024. stream_id: a number that recordings keep.

    >>> penstock.Log("robot/imu", dict, capacity="1MiB")
    Log('robot/imu', dict, capacity=1048576)
    """

    _prefix: ClassVar[str] = "log:"

    capacity: int | str | None = None
    term_length: int | str | None = None
    max_members: int | None = None
    stream_id: int | None = None


KIND = Kind(
    name="log",
    written="log:NAME",
    options=LogOptions,
    value_options=Log.option_names(),
    publish=open_publication,
    subscribe=open_subscription,
    tap=open_subscription,
    memory=Layout(
        format=_format,
        inspect=_inspect,
        open_slots=lambda options: int(options.max_members),
        details=("term_length", "limit"),
        look=_native.log_look,
    ),
    keeps=True,
)
