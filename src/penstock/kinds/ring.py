"""`ring:` channels: one writer that never waits; a slow reader skips messages and counts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import MIB, check_whole, flag, manual_clock, seconds, within
from penstock.channels.kind import Kind, Layout
from penstock.channels.storage import files, opening
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue, Message
from penstock.codecs import Codec

if TYPE_CHECKING:  # a program that lists channels opens none
    from penstock.channels.handles import NativePublication, NativeSubscription


@dataclass(frozen=True, kw_only=True)
class RingOptions:
    """The options of a new ring. The first publication decides; `Mismatch` if a later one asks for something else.

    capacity: bytes of the ring, a power of two from 64 KiB to 1 GiB: how far a reader may fall behind before it is lapped.
    The longest message is a quarter of it. All of it is allocated now, so that no later write can fail.
    max_members: how many subscriptions may exist at once, 1 to 1024.
    start_position, start_sequence: where counting begins; for tests at the edges.
    """

    capacity: int = 8 * MIB
    max_members: int = 64
    start_position: int = 0
    start_sequence: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "capacity", "max_members", "start_position", "start_sequence")
        within(self, 32, "capacity", "max_members")
        within(self, 63, "start_position")
        within(self, 64, "start_sequence")
        _native.check_ring_options(self.capacity, self.max_members, self.start_position)

    @property
    def file_size(self) -> int:
        """Bytes of shared memory that the channel takes."""
        return _native.ring_file_size(self.max_members, self.capacity)


def _format(options: RingOptions, codec: Codec, fd: int, hold: _native.OpenHold | None = None) -> None:
    _native.format_ring(
        fd=fd,
        capacity=options.capacity,
        slots=options.max_members,
        start_position=options.start_position,
        start_sequence=options.start_sequence,
        epoch=files.new_epoch(),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
        hold=hold,
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    return _native.inspect_ring(fd, path)


def open_publication(
    channel: Channel, *, codec: Any = None, clock: _native.ManualClock | None = None, **options: Any
) -> NativePublication:
    """The publication. Creates the channel if it does not exist, and decides an open one. `Busy` while another publication is open."""
    from penstock.channels import handles
    from penstock.channels.storage.reopening import ReopenArgs

    stamps = manual_clock(clock)
    writer, found = opening.open_end(
        channel.kind, channel, options, codec, lambda fd, path: _native.ring_writer(fd, path, stamps)
    )
    return handles.publication(writer, ReopenArgs(channel.kind, channel, found, open_publication, codecs.named(codec)))


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    last: int | None = None,
    conflate: bool = False,
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    **options: Any,
) -> NativeSubscription:
    """A subscription. Without a channel it makes one that stays open until the first publication."""
    from penstock.channels import handles

    name, position = opening.start_of(start, ("newest",), last)
    looking, ends = seconds(spin, "spin"), flag(until_end, "until_end")
    newest = flag(conflate, "conflate")
    opening.refuse_last(newest, last)
    arguments = {"start": start, "conflate": newest, "spin": spin, "until_end": ends, **codecs.named(codec)}
    reader, found = opening.open_reader(
        channel.kind,
        channel,
        options,
        codec,
        lambda fd, path: _native.ring_reader(fd, path, name, position, newest),
        lambda fd, path: _native.early_ring(fd, path, newest),
        (name, position),
    )
    return handles.subscription(reader, channel.kind, channel, found, open_subscription, arguments, looking, ends)


@dataclass(frozen=True, repr=False, kw_only=True)
class Ring(ChannelValue[Message]):
    """A `ring:` channel: one publication that never waits. A slow reader skips messages and counts them.

    capacity: bytes of the ring, a power of two from 64 KiB to 1 GiB; the longest message is a quarter of it. max_members: subscriptions
    at once, 1 to 1024.
    """

    _prefix: ClassVar[str] = "ring:"

    capacity: int | str | None = None
    max_members: int | None = None


KIND = Kind(
    name="ring",
    written="ring:NAME",
    options=RingOptions,
    value_options=Ring.option_names(),
    publish=open_publication,
    subscribe=open_subscription,
    tap=open_subscription,
    memory=Layout(
        format=_format,
        inspect=_inspect,
        open_slots=lambda options: int(options.max_members),
        look=_native.ring_look,
        waits=_native.ring_waits,
    ),
    lossy=True,
)
