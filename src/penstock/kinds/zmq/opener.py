"""`zmq+tcp:` and `zmq+ipc:` channels: ZeroMQ's PUB and SUB behind the handles that every kind has, through pyzmq.

The publication binds and subscriptions connect, unless told otherwise. The other side may be any ZeroMQ program: messages travel as
they are, with a topic in front if they have one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import codecs
from penstock.channels.channel import Channel
from penstock.channels.checks import flag, text_bytes
from penstock.errors import Invalid, Unsupported
from penstock.kinds.zmq.options import LINGER_PATTERN, LINGER_PUBLICATION, MAX_MESSAGES, ZmqOptions
from penstock.kinds.zmq.publication import ZmqPublication
from penstock.kinds.zmq.receiving import ZmqReceived
from penstock.kinds.zmq.sending import ZmqClaim
from penstock.kinds.zmq.subscription import ZmqSubscription


def open_publication(
    channel: Channel,
    *,
    codec: Any = None,
    clock: Any = None,
    prefault: bool = False,
    max_messages: int = MAX_MESSAGES,
    when_full: str = "drop_newest",
    linger: float | None = LINGER_PUBLICATION,
    bind: bool = True,
    secret_key: str | bytes | None = None,
    server_key: str | bytes | None = None,
) -> ZmqPublication:
    """The publication, bound to the address. `Busy` if another process has the address."""
    if clock is not None:
        raise Unsupported(
            f"{channel}: ZeroMQ's messages carry no time, so there is nothing for clock to stamp; log: stamps messages"
        )
    _no_memory(channel, prefault)
    if when_full == "drop_oldest":
        raise Unsupported(
            f"{channel}: a full queue of ZeroMQ drops the newest message or makes the sender wait; pipe: can drop the oldest"
        )
    if when_full not in ("drop_newest", "wait"):
        raise Invalid(f"when_full is {when_full!r}: it must be 'drop_newest' or 'wait'")
    options = ZmqOptions(max_messages=max_messages, linger=linger, secret_key=secret_key, server_key=server_key)
    return ZmqPublication(
        channel,
        codecs.resolve(codec),
        options,
        bind=flag(bind, "bind"),
        when_full=when_full,
        opener=open_publication,
    )


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    spin: float = 0,
    codec: Any = None,
    prefault: bool = False,
    until_end: bool = False,
    max_messages: int = MAX_MESSAGES,
    conflate: bool = False,
    topics: Any = None,
    linger: float | None = LINGER_PATTERN,
    bind: bool = False,
    secret_key: str | bytes | None = None,
    server_key: str | bytes | None = None,
) -> ZmqSubscription:
    """A subscription, connected to the address or trying to be."""
    if start != "newest":
        raise Unsupported(
            f"{channel}: ZeroMQ keeps no past, so start must be 'newest', not {start!r}; log: and sync: channels keep one"
        )
    if flag(until_end, "until_end"):
        raise Unsupported(
            f"{channel}: ZeroMQ does not say that a publication has closed, so a stream never ends; log: and pipe: channels say so"
        )
    _no_memory(channel, prefault)
    wanted, newest = _topics(topics), flag(conflate, "conflate")
    if newest and wanted is not None:
        raise Unsupported(
            f"{channel}: conflate=True and topics do not go together: ZeroMQ keeps only the newest part, not the newest message"
        )
    options = ZmqOptions(max_messages=max_messages, linger=linger, secret_key=secret_key, server_key=server_key)
    return ZmqSubscription(
        channel,
        codecs.resolve(codec),
        options,
        bind=flag(bind, "bind"),
        conflate=newest,
        topics=wanted,
        spin=spin,
        opener=open_subscription,
    )


def _no_memory(channel: Channel, prefault: bool) -> None:
    if flag(prefault, "prefault"):
        raise Unsupported(f"{channel}: prefault is for channels in shared memory, such as log:")


def _topics(given: Any) -> list[bytes] | None:
    """Beginnings of topics as they travel. None: every message, with all its parts."""
    if given is None:
        return None
    several = [given] if isinstance(given, str | bytes) else list(given) if isinstance(given, Iterable) else []
    if not several or not all(isinstance(topic, str | bytes) for topic in several):
        raise Invalid(f"topics is {given!r}: give a topic's beginning, or several, as text or bytes; '' is every topic")
    return [text_bytes(topic, "a topic") for topic in several]


__all__ = ["ZmqClaim", "ZmqPublication", "ZmqReceived", "ZmqSubscription", "open_publication", "open_subscription"]
