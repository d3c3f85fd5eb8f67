"""`pipe:` channels: each message to exactly one of those who wait for work; what a dead one held goes to another.

The patterns in which peers answer are in `sockets.py`; both are made of pipes from one peer to another.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import Any

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.errors import Invalid
from penstock.options import PipeOptions, seconds
from penstock.shm import files, opening
from penstock.shm.handles import DecodingSubscription, EncodingPublication, Origin, Publication, Subscription

ROLES = ("none", "push", "pull", "pair", "request", "reply", "dealer", "router", "tap")
WHEN_FULL = ("wait", "drop_newest", "drop_oldest")
NAME_MAX = 64


def _format(options: PipeOptions, codec: Codec, fd: int) -> None:
    _native.format_pipe(
        fd=fd,
        capacity=options.capacity,
        peers=options.peers,
        pipes=options.pipes,
        mark=options.mark,
        start_position=options.start_position,
        epoch=secrets.randbits(63),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
    )


KIND = opening.Kind(PipeOptions, _format, _native.inspect_pipe)


def peer_name(name: str | None) -> bytes:
    """A peer's name as it is kept; the process id unless given."""
    text = str(os.getpid()) if name is None else name
    if not isinstance(text, str):
        raise Invalid(f"a peer's name is text, not {type(text).__name__}")
    found = text.encode("utf-8", "surrogateescape")
    if not 1 <= len(found) <= NAME_MAX or b"\0" in found:
        raise Invalid(f"name is {text!r}: it takes 1 to {NAME_MAX} bytes, none of them 0")
    return found


def open_peer(
    channel: Channel,
    role: str,
    name: str | None,
    when_full: str,
    clock: _native.ManualClock | None,
    codec: Any,
    options: dict[str, Any],
) -> tuple[_native.PipePeer, Codec]:
    """A peer of a channel that is made now if there is none."""
    if channel.fake:
        raise Invalid(
            f"{channel}: pipes have no fake; name a pipe channel in a folder of the test's own (PENSTOCK_DIR)"
        )
    if when_full not in WHEN_FULL:
        raise Invalid(f"when_full is {when_full!r}: it must be one of {', '.join(WHEN_FULL)}")
    called = peer_name(name)
    make: Callable[[int, str], Any] = lambda fd, path: _native.PipePeer(  # noqa: E731
        fd, path, ROLES.index(role), called, WHEN_FULL.index(when_full), clock
    )
    return opening.open_end(KIND, channel, options, codec, make)


class PushPublication(Publication):
    """Gives each message to one of those who pull, in turn among those with room."""

    @property
    def waiting(self) -> int:
        """Messages sent here that nobody has done yet."""
        return _native.pipe_waiting(self)


class EncodingPushPublication(EncodingPublication):
    """The same on a channel with a codec: takes objects."""

    waiting = PushPublication.waiting


class PullSubscription(Subscription):
    """Takes messages, each of which nobody else gets. Done with it is who asks for the next, or closes.

    If a process dies, what it had taken and not done goes to another, which sees `redelivered`. So it does when a `with` block
    ends by an exception. With `acknowledge="manual"` only `acknowledge()` says that all that was received is done.
    """

    def acknowledge(self) -> None:
        """All that was received so far is done: nobody will get it again."""
        _native.pipe_acknowledge(self)

    @property
    def redelivered(self) -> bool:
        """Whether the message received last had been given to somebody who died, or gave up, with it: perhaps it was done."""
        return _native.pipe_redelivered(self)

    def close(self) -> None:
        """Leaves; what was received counts as done. Safe to call twice."""
        if not self.closed and self._origin.arguments.get("acknowledge") != "manual":
            _native.pipe_acknowledge(self)
        Subscription.close(self)

    def __exit__(self, *error: object) -> None:
        if error[0] is not None and not self.closed:
            _native.pipe_keep(self)
            Subscription.close(self)
        self.close()


class DecodingPullSubscription(DecodingSubscription):
    """The same on a channel with a codec: gives objects."""

    acknowledge = PullSubscription.acknowledge
    redelivered = PullSubscription.redelivered

    close, __exit__ = PullSubscription.close, PullSubscription.__exit__


def open_publication(
    channel: Channel,
    *,
    name: str | None = None,
    when_full: str = "wait",
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> Publication:
    """One who pushes, on a channel made now if there is none."""
    peer, found = open_peer(channel, "push", name, when_full, clock, codec, options)
    origin = Origin(KIND, channel, found, open_publication, {"name": name, "when_full": when_full})
    made = PushPublication if found.kind == "bytes" else EncodingPushPublication
    return made(_native.pipe_sender(peer), origin)


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    name: str | None = None,
    acknowledge: str = "next",
    spin: float = 20e-6,
    codec: Any = None,
    **options: Any,
) -> Subscription:
    """One who pulls, on a channel made now if there is none. `start` is not for pipes: whoever comes takes what waits."""
    if acknowledge not in ("next", "manual"):
        raise Invalid(f"acknowledge is {acknowledge!r}: it must be 'next' or 'manual'")
    if isinstance(start, bool) or not (isinstance(start, int) or start in ("newest", "earliest")):
        raise Invalid(f"start is {start!r}: pipes have no start, whoever pulls takes what waits")
    peer, found = open_peer(channel, "pull", name, "wait", None, codec, options)
    arguments = {"name": name, "acknowledge": acknowledge, "spin": spin}
    made = PullSubscription if found.kind == "bytes" else DecodingPullSubscription
    receiver = _native.pipe_receiver(peer, acknowledge == "manual")
    return made(receiver, Origin(KIND, channel, found, open_subscription, arguments), seconds(spin, "spin"))


MISSING = 32  # bytes of a recording's stream that a missing message counts for


def open_tap(
    channel: Channel, *, start: str | int = "newest", drop_after: float | None = None, **options: Any
) -> Subscription:
    """A recorder's: gets a copy of all that is sent from now on, and takes nothing away. Only whole runs are read from it.

    start: the position from which its own count goes on. drop_after: None makes senders wait for it; 0 lets it miss messages
    instead, which it is told of.
    """
    if drop_after not in (None, 0):
        raise Invalid(
            f"drop_after is {drop_after!r}: who sends to a pipe waits for its recorder (None) or does not (0)"
        )
    peer, found = open_peer(
        channel, "tap", "recorder", "wait" if drop_after is None else "drop_newest", None, None, options
    )
    position = (
        0 if isinstance(start, str) else start + MISSING
    )  # what was sent meanwhile is missing, however much that was
    return Subscription(_native.pipe_tap(peer, position), Origin(KIND, channel, found, open_tap, {}), 0.0)


def describe(channel: Channel) -> dict[str, Any]:
    """What a recording keeps of a pipe channel: it has no terms, and says of each message who sent it."""
    found = opening.describe(KIND, channel)
    return {**found, "term_length": 0, "codec": {"kind": "pipe", "of": found["codec"]}}


__all__ = [
    "KIND",
    "PullSubscription",
    "PushPublication",
    "describe",
    "open_peer",
    "open_publication",
    "open_subscription",
    "open_tap",
]
