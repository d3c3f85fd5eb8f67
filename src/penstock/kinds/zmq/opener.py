"""The kinds `zmq+tcp:` and `zmq+ipc:`: their channels as values, and their openers, which check options.

ZeroMQ carries their messages, through pyzmq: nothing is in shared memory. The other side may be any ZeroMQ program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock import codecs
from penstock.channels.checks import flag, text_bytes
from penstock.channels.kind import Kind
from penstock.channels.uri.channel import Channel
from penstock.channels.uri.value import ChannelValue, Message
from penstock.errors import Invalid, Unsupported
from penstock.kinds.zmq import addresses
from penstock.kinds.zmq.peers import ZmqDealer, ZmqPair, ZmqPuller, ZmqPusher, ZmqRouter, ZmqSocket
from penstock.kinds.zmq.publication import ZmqPublication
from penstock.kinds.zmq.requests import ZmqReplier, ZmqRequester
from penstock.kinds.zmq.socket.options import LINGER_PUBLICATION, ZmqOptions
from penstock.kinds.zmq.subscription import ZmqSubscription

BINDS = ("pull", "reply", "router")  # by default
SOCKETS: dict[str, type[ZmqSocket]] = {
    "push": ZmqPusher,
    "pull": ZmqPuller,
    "pair": ZmqPair,
    "dealer": ZmqDealer,
    "request": ZmqRequester,
    "reply": ZmqReplier,
    "router": ZmqRouter,
}


def open_publication(
    channel: Channel,
    *,
    codec: Any = None,
    clock: Any = None,
    prefault: bool = False,
    when_full: str = "drop_newest",
    last_value: bool = False,
    bind: bool = True,
    **options: Any,
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
    if flag(last_value, "last_value") and when_full == "wait":
        raise Unsupported(
            f'{channel}: last_value=True and when_full="wait" exclude each other: while one queue is full, ZeroMQ sends a late '
            f"subscription nothing"
        )
    return ZmqPublication(
        channel,
        codecs.resolve(codec),
        ZmqOptions(**{"linger": LINGER_PUBLICATION, **options}),
        bind=flag(bind, "bind"),
        when_full=when_full,
        last_value=last_value,
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
    conflate: bool = False,
    topics: Any = None,
    bind: bool = False,
    **options: Any,
) -> ZmqSubscription:
    """A subscription, connected to the address or trying to be."""
    if start != "newest":
        raise Unsupported(
            f"{channel}: ZeroMQ keeps no past, so start must be 'newest', not {start!r}; log: and sync: channels keep one"
        )
    if flag(until_end, "until_end"):
        raise Unsupported(
            f"{channel}: ZeroMQ does not report that a publication has closed, so a stream never ends; log: and pipe: channels report it"
        )
    _no_memory(channel, prefault)
    wanted, newest = _topics(topics), flag(conflate, "conflate")
    if newest and wanted is not None:
        raise Unsupported(
            f"{channel}: conflate=True and topics exclude each other: ZeroMQ keeps only the newest part, not the newest message"
        )
    return ZmqSubscription(
        channel,
        codecs.resolve(codec),
        ZmqOptions(**options),
        bind=flag(bind, "bind"),
        conflate=newest,
        topics=wanted,
        spin=spin,
        opener=open_subscription,
    )


def open_socket(
    channel: Channel,
    *,
    role: str | None = None,
    name: str | None = None,
    codec: Any = None,
    spin: float = 0,
    bind: bool | None = None,
    **options: Any,
) -> ZmqSocket:
    """A peer of that role. By default, pull, reply and router bind, and the others connect."""
    if role not in SOCKETS:
        raise Invalid(f"{channel}: role is {role!r}: it must be one of {', '.join(SOCKETS)}")
    if name is not None and (not isinstance(name, str) or not 1 <= len(text_bytes(name, "name")) <= 255):
        raise Invalid(f"{channel}: name is {name!r}: it is text of 1 to 255 bytes")
    if role == "push" and spin:
        raise Invalid(f"{channel}: spin has no effect on a push, which receives nothing")
    return SOCKETS[role](
        channel,
        role,
        name,
        role in BINDS if bind is None else flag(bind, "bind"),
        codecs.resolve(codec),
        ZmqOptions(**options),
        spin,
        open_socket,
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


@dataclass(frozen=True, repr=False, kw_only=True)
class Zmq(ChannelValue[Message]):
    """A `zmq+tcp:` or `zmq+ipc:` channel: ZeroMQ carries it, to any ZeroMQ program. name: `tcp://HOST:PORT` or `ipc://PATH`.

    ZeroMQ does not transmit the codec: both ends name it.
    """

    _prefix: ClassVar[str] = "zmq+"


def _kind(transport: str) -> Kind:
    return Kind(
        name=f"{addresses.PREFIX}{transport}",
        written=f"{addresses.PREFIX}{transport}://{addresses.WRITTEN[transport]}",
        prefix="//",
        named=lambda text: addresses.check_address(transport, text),
        options=ZmqOptions,
        publish=open_publication,
        subscribe=open_subscription,
        join=open_socket,
        has_roles=True,
        lossy=True,
        in_process=False,
    )


TCP, IPC = _kind("tcp"), _kind("ipc")
