"""`pipe:` channels: each message goes to exactly one subscription; the messages of a dead subscription are redelivered to another.

The patterns in which peers answer are in `sockets.py`; both are made of pipes from one peer to another.
"""

from __future__ import annotations

import contextlib
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Self

from penstock import codecs
from penstock._native import core as _native
from penstock.channels.checks import flag, manual_clock, seconds, text_bytes
from penstock.channels.handles import (
    EncodingPublication,
    Message,
    NativePublication,
    NativeSubscription,
)
from penstock.channels.interfaces import roles
from penstock.channels.kind import Layout
from penstock.channels.storage import files, opening
from penstock.channels.storage.reopening import ReopenArgs
from penstock.channels.uri.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Closed, Invalid, Unsupported
from penstock.kinds.pipe.options import PipeOptions

if TYPE_CHECKING:
    from penstock.channels.handles import NativePublication as _Publication
else:  # a mixin beside one compiled base, without its own compiled base
    _Publication = {Message: object}


def _format(options: PipeOptions, codec: Codec, fd: int, hold: _native.OpenHold | None = None) -> None:
    _native.format_pipe(
        fd=fd,
        capacity=options.capacity,
        max_members=options.max_members,
        max_pipes=options.max_pipes,
        max_messages=options.max_messages,
        start_position=options.start_position,
        epoch=files.new_epoch(),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
        hold=hold,
    )


def _inspect(fd: int, path: str) -> dict[str, Any]:
    about = _native.inspect_pipe(fd, path)
    return {**about, **about["details"]}


def name_bytes(name: str) -> bytes:
    """A peer's encoded name."""
    if not isinstance(name, str):
        raise Invalid(f"a peer's name is text, not {type(name).__name__}")
    found = text_bytes(name, "a peer's name")
    if not 1 <= len(found) <= _native.NAME_MAX or b"\0" in found:
        raise Invalid(f"name is {name!r}: it takes 1 to {_native.NAME_MAX} bytes, none of them 0")
    return found


def peer_name(name: str | None) -> _native.MemberName:
    """A peer's name. If none is given, one is drawn that no other peer has."""
    return _native.MemberName(b"" if name is None else name_bytes(name))


def given_options(
    prefault: bool,
    capacity: int | None,
    max_messages: int | None,
    max_pipes: int | None,
    max_members: int | None,
    start_position: int | None,
) -> dict[str, Any]:
    """The options of a channel that were given; None means not given."""
    named = {
        "prefault": prefault,
        "capacity": capacity,
        "max_messages": max_messages,
        "max_pipes": max_pipes,
        "max_members": max_members,
        "start_position": start_position,
    }
    return {name: value for name, value in named.items() if value is not None}


def _check_when_full(when_full: str) -> None:
    """`Invalid` for an unknown `when_full`."""
    if when_full not in _native.WHEN_FULL:
        raise Invalid(f"when_full is {when_full!r}: it must be one of {', '.join(_native.WHEN_FULL)}")


def open_peer(
    channel: Channel,
    role: str,
    called: _native.MemberName,
    when_full: str,
    clock: _native.ManualClock | None,
    codec: Any,
    options: dict[str, Any],
) -> tuple[_native.PipePeer, Codec]:
    """A peer that writes. Creates the channel if it does not exist, and decides an open one."""
    _check_when_full(when_full)
    stamps = manual_clock(clock)
    return opening.open_end(
        channel.kind, channel, options, codec, lambda fd, path: _peer(fd, path, role, called, when_full, stamps)
    )


def _peer(
    fd: int, path: str, role: str, name: _native.MemberName, when_full: str, clock: _native.ManualClock | None = None
) -> _native.PipePeer:
    return _native.PipePeer(fd, path, _native.ROLES.index(role), name, _native.WHEN_FULL.index(when_full), clock)


class PipePusher(_Publication[Message]):
    """Gives each message to one subscription, in turn among those whose pipe has room.

    `position` counts the bytes that this publication has written, to whichever subscriptions.
    """

    __slots__ = ()
    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(GenericAlias)

    @property
    def unread_messages(self) -> int:
        """Messages sent here that no subscription has acknowledged."""
        return _native.pipe_unread(self)


class BytesPush(PipePusher, NativePublication):
    """A publication on a channel of bytes."""


class EncodingPush(PipePusher, EncodingPublication):
    """A publication on a channel with a codec: takes objects."""


class PipePuller(NativeSubscription[Message]):
    """Takes messages that no other subscription gets. Asking for the next message, or closing, acknowledges the last one.

    If a process dies, the messages that it had taken and not acknowledged go to another subscription, which sees `redelivered`. The
    same happens when a `with` block ends by an exception. With `acknowledge="manual"` only `acknowledge()` acknowledges.

    `position` counts the bytes that this subscription has read, and `lag` those that wait for it.
    """

    def acknowledge(self) -> None:
        """Acknowledges every message received so far: they will not be redelivered."""
        _native.pipe_acknowledge(self)

    @property
    def redelivered(self) -> bool:
        """Whether the last message was given to another subscription before, which died or ended with an exception. It may have been processed already."""
        return _native.pipe_redelivered(self)

    def close(self) -> None:
        """Leaves, and acknowledges the messages received unless `acknowledge="manual"`. Safe to call twice."""
        if not self.closed and self._origin.arguments.get("acknowledge") != "manual":
            with contextlib.suppress(Closed):  # another thread closes it at the same time
                _native.pipe_acknowledge(self)
        super().close()

    def __exit__(self, *error: object) -> None:
        if error[0] is not None and not self.closed:
            with contextlib.suppress(Closed):
                _native.pipe_requeue_on_close(self)
            super().close()
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as a new subscription, which joins and gets waiting messages."""
        reopen, (opener, channel, arguments, *opened) = super().__reduce__()
        return reopen, (opener, channel, {**arguments, "start": "newest"}, *opened)


roles.Pusher.register(PipePusher)
roles.Puller.register(PipePuller)


def open_publication(
    channel: Channel,
    *,
    name: str | None = None,
    when_full: str = "wait",
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    prefault: bool = False,
    capacity: int | None = None,
    max_messages: int | None = None,
    max_pipes: int | None = None,
    max_members: int | None = None,
    start_position: int | None = None,
) -> NativePublication:
    """A publication. Creates the channel if it does not exist, and decides an open one."""
    options = given_options(prefault, capacity, max_messages, max_pipes, max_members, start_position)
    peer, found = open_peer(channel, "push", peer_name(name), when_full, clock, codec, options)
    arguments = {"name": name, "when_full": when_full, **codecs.named(codec)}
    origin = ReopenArgs(channel.kind, channel, found, open_publication, arguments)
    made = BytesPush if found.kind == "bytes" else EncodingPush
    return made(_native.pipe_writer(peer), origin)


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    name: str | None = None,
    acknowledge: str = "next",
    spin: float = 20e-6,
    until_end: bool = False,
    codec: Any = None,
    prefault: bool = False,
    capacity: int | None = None,
    max_messages: int | None = None,
    max_pipes: int | None = None,
    max_members: int | None = None,
    start_position: int | None = None,
) -> NativeSubscription:
    """A subscription. Without a channel it makes one that stays open until the first publication.

    start: only "newest". A message waits in its pipe for one subscription. Without one, it waits for the next that joins.
    """
    if acknowledge not in ("next", "manual"):
        raise Invalid(f"acknowledge is {acknowledge!r}: it must be 'next' or 'manual'")
    if opening.start_of(start, ("newest", "earliest"))[0] != "newest":
        raise Unsupported(
            f"{channel}: start is {start!r}, and a pipe keeps no message that was read: leave start out; messages that wait "
            "are read in any case. A log keeps its messages"
        )
    looking, ends = seconds(spin, "spin"), flag(until_end, "until_end")
    options = given_options(prefault, capacity, max_messages, max_pipes, max_members, start_position)
    called, by_hand = peer_name(name), acknowledge == "manual"

    def end(fd: int, path: str) -> _native.ReaderEnd:
        return _native.pipe_reader(_peer(fd, path, "pull", called, "wait"), by_hand)

    def early(fd: int, path: str) -> _native.ReaderEnd:
        return _native.early_pipe(fd, path, called, by_hand)

    reader, found = opening.open_reader(channel.kind, channel, options, codec, end, early)
    arguments = {"name": name, "acknowledge": acknowledge, "spin": spin, "until_end": ends, **codecs.named(codec)}
    origin = ReopenArgs(channel.kind, channel, found or codecs.BYTES, open_subscription, arguments)
    return PipePuller(reader, origin, found, looking, ends)


class Tap(_native.Tap):
    """A recorder's end of a pipe channel: it reads a copy of every message sent from now on, in whole runs, and consumes none.

    Users record a channel with `Archive.record`. A context manager. `position`, `lag`, `lost` and `lost_messages` as a subscription's.
    """

    def __init__(self, end: _native.StreamEnd, channel: Channel) -> None:
        super().__init__(end)
        self._channel = channel

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_tap(channel: Channel, *, start: str | int = "newest", drop_after: float | None = None) -> Tap:
    """A recorder's tap.

    start: the position of the recording at which it continues. drop_after: None makes senders wait for the recorder; with 0 they do
    not, and messages that the recorder missed are recorded as a gap.
    """
    if drop_after not in (None, 0):
        raise Unsupported(
            f"{channel}: drop_after is {drop_after!r}: senders on a pipe wait for a recorder (None) or do not (0); "
            "a log waits for a number of seconds"
        )
    if start == "earliest":
        raise Unsupported(f"{channel}: start is 'earliest', and a pipe keeps nothing to begin with: leave start out")
    # All messages sent in the meantime are missing.
    position = 0 if isinstance(start, str) else start + _native.MISSING_LENGTH
    called, when_full = _native.MemberName(b"recorder", own=False), "wait" if drop_after is None else "drop_newest"

    def end(fd: int, path: str) -> _native.StreamEnd:
        return _native.pipe_tap(_peer(fd, path, "tap", called, when_full), position)

    def early(fd: int, path: str) -> _native.StreamEnd:
        return _native.early_tap(fd, path, called, _native.WHEN_FULL.index(when_full), position)

    made, _ = opening.open_reader(channel.kind, channel, {}, None, end, early)
    return Tap(made, channel)


def recorded_as(about: dict[str, Any]) -> dict[str, Any]:
    """A recording of pipes has no terms, and each message has its sender's name."""
    return {**about, "term_length": 0, "codec": {"kind": "pipe", "of": about["codec"]}}


LAYOUT = Layout(
    format=_format,
    inspect=_inspect,
    open_slots=lambda options: int(options.max_members),
    details=("pipes", "max_pipes", "max_messages", "unread_messages", "redelivered", "taken_over"),
    waits=_native.pipe_waits,
)

__all__ = [
    "LAYOUT",
    "PipePuller",
    "PipePusher",
    "open_peer",
    "open_publication",
    "open_subscription",
    "open_tap",
    "recorded_as",
]
