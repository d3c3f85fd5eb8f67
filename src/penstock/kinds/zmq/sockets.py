"""Opens the sockets of the patterns over ZeroMQ: each role, its class and its options."""

from __future__ import annotations

from typing import Any

from penstock import codecs
from penstock.channels.channel import Channel
from penstock.channels.checks import flag, text_bytes
from penstock.errors import Invalid
from penstock.kinds.zmq.options import LINGER_PATTERN, MAX_MESSAGES, ZmqOptions
from penstock.kinds.zmq.peers import ZmqDealer, ZmqPair, ZmqPuller, ZmqPusher, ZmqRouter, ZmqSocket
from penstock.kinds.zmq.requests import ZmqReplier, ZmqRequester

BINDS = ("pull", "reply", "router")  # unless told otherwise
SOCKETS: dict[str, type[ZmqSocket]] = {
    "push": ZmqPusher,
    "pull": ZmqPuller,
    "pair": ZmqPair,
    "dealer": ZmqDealer,
    "request": ZmqRequester,
    "reply": ZmqReplier,
    "router": ZmqRouter,
}


def open_socket(
    channel: Channel,
    *,
    role: str | None = None,
    name: str | None = None,
    codec: Any = None,
    spin: float = 0,
    max_messages: int = MAX_MESSAGES,
    linger: float | None = LINGER_PATTERN,
    bind: bool | None = None,
    secret_key: str | bytes | None = None,
    server_key: str | bytes | None = None,
) -> ZmqSocket:
    """A peer of that role. Pull, reply and router bind unless told otherwise, the others connect."""
    if role not in SOCKETS:
        raise Invalid(f"{channel}: role is {role!r}: it must be one of {', '.join(SOCKETS)}")
    if name is not None and (not isinstance(name, str) or not 1 <= len(text_bytes(name, "name")) <= 255):
        raise Invalid(f"{channel}: name is {name!r}: it is text of 1 to 255 bytes")
    return SOCKETS[role](
        channel,
        role,
        name,
        role in BINDS if bind is None else flag(bind, "bind"),
        codecs.resolve(codec),
        ZmqOptions(max_messages=max_messages, linger=linger, secret_key=secret_key, server_key=server_key),
        spin,
        open_socket,
    )


__all__ = ["BINDS", "SOCKETS", "ZmqReplier", "ZmqRequester", "ZmqRouter", "ZmqSocket", "open_socket"]
