"""`log:` channels: one total order of messages, kept for late readers; slow readers make writers wait."""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import (
    MIB,
    TERM_LENGTH_MAX,
    TERM_LENGTH_MIN,
    check_whole,
    flag,
    manual_clock,
    patience,
    seconds,
    text_bytes,
    within,
)
from penstock.channels.kind import Kind, Layout
from penstock.channels.storage import files, inspection, opening
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue, Message
from penstock.codecs import Codec, keys
from penstock.errors import Invalid, Mismatch, NotFound, Unsupported
from penstock.util import units

if TYPE_CHECKING:  # a program that lists channels opens none
    from penstock.channels.handles import NativePublication, NativeSubscription

MEMORY_MAX = 256 * MIB
BEHIND_LIMIT = 64  # bytes of a whole term that may be cleaned already: a header, and what is not a whole frame
LAST_KEYS, LAST_MAX = 1024, 1024  # of a channel with last values: keys, and bytes of a kept message
RETENTION = ("retain", "rate", "memory_max")


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The options of a new log. The first publication decides; `Mismatch` if a later one asks for something else.

    capacity: bytes by which writers may be ahead of the slowest subscription, from half a term to a term; a whole term unless given.
    term_length: bytes of one of the three terms, a power of two from 64 KiB to 1 GiB; unless given, the smallest that `capacity`
    fits in, or 8 MiB. The channel takes three times this in shared memory; the longest message that `offer` and `claim` take is a
    quarter of it.
    retain, rate: the term is as long as `retain` (seconds, a timedelta, or a text as "30s") takes at `rate` bytes per second, so that at least
    so much of the past is kept. A message counts with its header of 32 bytes, rounded up to 32. memory_max: bytes of shared memory that the
    channel may take for that, 256 MiB unless given; `Invalid` if it needs more. With `retain`, no term_length is given.
    max_members: how many publications and subscriptions may exist at once, 2 to 1024.
    last: a field of the messages. The channel keeps the newest message of each value of it, for subscriptions with `start="last"`.
    last_keys: how many values there may be, 1,024 unless given. last_max: bytes of a message at most, 1 KiB unless given.
    initial_term_id, start_position: where counting begins; for tests at the edges.
    """

    capacity: int | None = None
    term_length: int | None = None
    retain: float | str | datetime.timedelta | None = None
    rate: int | None = None
    memory_max: int | None = None
    last: str | None = None
    last_keys: int | None = None
    last_max: int | None = None
    max_members: int = 64
    stream_id: int = 1
    initial_term_id: int = 0
    start_position: int = 0

    def __post_init__(self) -> None:
        self._check_retention()
        check_whole(self, "term_bytes", "room", "max_members", "stream_id", "initial_term_id", "start_position")
        for name in ("stream_id", "initial_term_id"):
            if not -(1 << 31) <= getattr(self, name) < 1 << 31:
                raise Invalid(f"{name} is {getattr(self, name)}: it must fit in 32 bits with a sign")
        if self.term_length is None and self.room > TERM_LENGTH_MAX:
            raise Invalid(f"capacity is {self.room}: it must be at most {TERM_LENGTH_MAX}")
        within(self, 32, "room", "term_bytes", "max_members")
        within(self, 63, "start_position")
        self._check_last()
        _native.check_log_options(self.term_bytes, self.room, self.max_members, self.start_position, *self.last_shape)

    def _check_last(self) -> None:
        if self.last is not None and (not isinstance(self.last, str) or not self.last):
            raise Invalid(f"last is {self.last!r}: it must be the name of a field of the messages")
        if self.last is not None:
            text_bytes(self.last, "last")
        for name in ("last_keys", "last_max"):
            value = getattr(self, name)
            if value is None:
                continue
            if self.last is None:
                raise Invalid(
                    f"{name} has no effect without last: name the field of the messages that is their key, as last='name'"
                )
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
                raise Invalid(f"{name} is {value!r}: it must be a whole number above 0")

    def _check_retention(self) -> None:
        for name in ("rate", "memory_max"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
                each = " per second" if name == "rate" else ""
                raise Invalid(
                    f"{name} is {value!r}: it must be a whole number of bytes{each}, from 1 on, or a text as '2MB'"
                )
        if self.retain is None:
            for name in ("rate", "memory_max"):
                if getattr(self, name) is not None:
                    raise Invalid(f"{name} has no effect without retain: give retain, or capacity instead")
            return
        units.seconds(self.retain, "retain")
        if self.rate is None:
            raise Invalid(
                f"retain={self.retain!r} needs rate=: the bytes per second that are written, as rate='2MB'. penstock doctor --before "
                "says it of a channel that is in use"
            )
        if self.term_length is not None:
            raise Invalid("retain and term_length both say how long a term is: give one of them")
        wanted, limit = 3 * self.term_bytes, MEMORY_MAX if self.memory_max is None else self.memory_max
        needs = f"retain={self.retain!r} at rate={self.rate} needs {wanted:,} bytes of shared memory"
        if self.term_bytes > TERM_LENGTH_MAX:
            raise Invalid(
                f"{needs}, and a log takes {3 * TERM_LENGTH_MAX:,} at most: give a retain of at most {longest_retain(self.rate):g} s, or send "
                "on several channels"
            )
        if wanted > limit:
            raise Invalid(f"{needs}, and memory_max is {limit:,}: give memory_max={wanted}, or a shorter retain")

    @property
    def term_bytes(self) -> int:
        """`term_length`, or its default."""
        if self.term_length is not None:
            return self.term_length
        if (
            self.retain is not None and self.rate is not None
        ):  # a whole term is kept, but for the header behind the limit
            kept = int(units.seconds(self.retain, "retain") * self.rate) + BEHIND_LIMIT
            return max(TERM_LENGTH_MIN, 1 << max(kept - 1, 0).bit_length())
        if not isinstance(self.capacity, int):
            return 8 * MIB
        return max(TERM_LENGTH_MIN, 1 << max(self.capacity - 1, 0).bit_length())

    @property
    def room(self) -> int:
        """`capacity`, or its default."""
        return self.term_bytes if self.capacity is None else self.capacity

    @property
    def last_shape(self) -> tuple[int, int]:
        """Keys and bytes of the table of last values; 0 and 0 without one."""
        if self.last is None:
            return 0, 0
        return self.last_keys or LAST_KEYS, self.last_max or LAST_MAX

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        last_keys, last_max = self.last_shape
        return _native.log_file_size(self.max_members, self.term_bytes, last_keys=last_keys, last_max=last_max)


def longest_retain(rate: int) -> float:
    """How many seconds the largest log keeps at that rate, in bytes per second. Rounded down."""
    seconds = (TERM_LENGTH_MAX - BEHIND_LIMIT) / rate
    return float(int(seconds)) if seconds >= 10 else int(seconds * 1000) / 1000


def advise_retention(before: float, rate: int) -> str:
    """The options with which a log keeps so many seconds at that rate: they are accepted as they are."""
    if (most := longest_retain(rate)) < before:
        return (
            f"retain='{most:g}s', rate={rate}, memory_max={3 * TERM_LENGTH_MAX}, the most that a log keeps at this rate"
        )
    wanted = 3 * LogOptions(retain=before, rate=rate, memory_max=3 * TERM_LENGTH_MAX).term_bytes
    more = f", memory_max={wanted}" if wanted > MEMORY_MAX else ""
    return f"retain='{before:g}s', rate={rate}{more}"


def _size_by_time(channel: Channel, options: dict[str, Any]) -> dict[str, Any]:
    """The options with a length of terms in place of `retain`. `Mismatch` if the channel exists and keeps less than that."""
    if all(options.get(name) is None for name in RETENTION):
        return options
    wanted = LogOptions(**{name: value for name, value in options.items() if value is not None and name != "prefault"})
    rest = {name: value for name, value in options.items() if name not in RETENTION}
    try:
        fd = files.open_existing(channel)
    except NotFound:
        return rest | {"term_length": wanted.term_bytes}
    try:
        there = inspection.about(channel.kind, fd, opening.place_of(channel))
    finally:
        os.close(fd)
    if "open" in there:
        return rest | {"term_length": wanted.term_bytes}
    if there["term_length"] < wanted.term_bytes:
        raise Mismatch(
            f"{opening.place_of(channel)} exists with terms of {there['term_length']:,} bytes, and retain={wanted.retain!r} at "
            f"rate={wanted.rate} needs {wanted.term_bytes:,}. Leave retain out, or {opening.start_over(channel)}"
        )
    return rest


def _format(options: LogOptions, codec: Codec, fd: int, hold: _native.OpenHold | None = None) -> None:
    if options.last is not None:
        keys.check_field(codec, options.last)
    last_keys, last_max = options.last_shape
    _native.format_log(
        fd=fd,
        term_length=options.term_bytes,
        capacity=options.room,
        slots=options.max_members,
        initial_term_id=options.initial_term_id,
        stream_id=options.stream_id,
        start_position=options.start_position,
        epoch=files.new_epoch(),
        metadata=codecs.described(
            {} if options.last is None else {"last": options.last}, codec.spec, _native.METADATA_MAX
        ),
        boot_id=files.boot_id(),
        hold=hold,
        last_keys=last_keys,
        last_max=last_max,
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    found = _native.inspect_log(fd, path)
    if not found["last_keys"]:
        return {**found, "last": None}
    counts = {"last_values": found["last_count"], "last_keys": found["last_keys"]}
    return {**found, "last": keys.field_in(found["metadata"]), "last_counts": counts}


def open_publication(
    channel: Channel,
    *,
    exclusive: bool = False,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> NativePublication:
    """A publication. Creates the channel if it does not exist, and decides an open one."""
    from penstock.channels import handles
    from penstock.channels.storage.reopening import ReopenArgs

    alone, stamps = flag(exclusive, "exclusive"), manual_clock(clock)
    options = _size_by_time(channel, options)
    last: list[str | None] = []

    def end(fd: int, path: str) -> _native.WriterEnd:
        last.append(_inspect(fd, path)["last"])
        return _native.log_writer(fd, path, alone, stamps)

    writer, found = opening.open_end(channel.kind, channel, options, codec, end)
    origin = ReopenArgs(channel.kind, channel, found, open_publication, {"exclusive": alone, **codecs.named(codec)})
    return handles.publication(writer, origin, last[-1])


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    last: int | str | None = None,
    when_slow: str | None = None,
    drop_after: float | None = None,
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    **options: Any,
) -> NativeSubscription:
    """A subscription. Without a channel it makes one that stays open until the first publication.

    last: how many of the newest messages come first; or the field by which the channel has to keep last values.
    """
    from penstock.channels import handles

    if isinstance(last, str) and last and not last.isdigit():  # "1" is a number that was not converted
        options, last = {**options, "last": last}, None
    name, position = opening.start_of(start, ("newest", "earliest", "last"), last)
    options = _size_by_time(channel, options)
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
    the three terms, a power of two from 64 KiB to 1 GiB; the longest message in one frame is a quarter of it. retain, rate, memory_max: instead,
    keep at least `retain` (as "30s") of the past at `rate` bytes per second, in at most `memory_max` bytes of shared memory, 256 MiB unless given. max_members: publications and
    subscriptions at once, 2 to 1024. stream_id: a number that recordings keep. last: a field of the messages; the channel keeps the newest
    message of each of its values, of at most `last_keys` values and `last_max` bytes a message (1,024 and 1 KiB unless given).

    >>> penstock.Log("robot/imu", dict, capacity="1MiB")
    Log('robot/imu', dict, capacity=1048576)
    """

    _prefix: ClassVar[str] = "log:"

    capacity: int | str | None = None
    term_length: int | str | None = None
    retain: float | str | datetime.timedelta | None = None
    rate: int | str | None = None
    memory_max: int | str | None = None
    last: str | None = None
    last_keys: int | None = None
    last_max: int | str | None = None
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
        waits=_native.log_waits,
    ),
    keeps=True,
)
