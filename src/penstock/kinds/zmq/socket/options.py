"""Options that every handle over ZeroMQ takes: its queue, how long it lingers, CURVE keys, endpoints. Checks them, and sets them on a socket."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from penstock.channels.checks import seconds, texts, whole
from penstock.errors import Invalid
from penstock.kinds.zmq import addresses
from penstock.kinds.zmq.socket import socket_options

KEY_LENGTH = 40  # of a CURVE key as text: 32 bytes in Z85
LINGER_MAX = (1 << 31) // 1000 - 1
LINGER_PUBLICATION, LINGER_PATTERN = 1.0, 10.0
MAX_MESSAGES = 1000
# Parts that an end which binds receives from strangers: messages, and topics of subscriptions.
PART_MAX, TOPIC_MAX = 256 << 20, 1 << 20


@dataclass(frozen=True, kw_only=True)
class ZmqOptions:
    """The options of one handle.

    max_messages: ZeroMQ's high-water mark: the number of messages that may wait for one peer. 0: no limit. linger: seconds for which `close`
    waits until all messages have left; None waits for ever. secret_key, server_key: CURVE keys. The end that binds has a secret
    key. An end that connects names that server's public key. It may have a secret key of its own; otherwise one is made.
    client_keys: of an end that binds: the public keys of the clients that may connect; None: any.
    endpoints: more addresses, as `tcp://HOST:PORT` or `ipc://PATH`, to which the handle binds or connects. options: libzmq's
    socket options by their names in lower case.
    """

    max_messages: int = MAX_MESSAGES
    linger: float | None = LINGER_PATTERN
    secret_key: str | bytes | None = None
    server_key: str | bytes | None = None
    client_keys: Sequence[str | bytes] | None = None
    endpoints: Sequence[str] = ()
    options: Mapping[str, int | str | bytes] | None = None

    def __post_init__(self) -> None:
        whole(self.max_messages, "max_messages", 0, (1 << 31) - 1)
        if self.linger is not None and seconds(self.linger, "linger") > LINGER_MAX:
            raise Invalid(f"linger is {self.linger!r}: it must be at most {LINGER_MAX} seconds, or None for ever")
        for name in ("secret_key", "server_key"):
            if (key := getattr(self, name)) is not None:
                _check_key(key, name)
        if self.client_keys is not None:
            object.__setattr__(self, "client_keys", _check_keys(self.client_keys))
        found = texts(() if self.endpoints is None else self.endpoints, "endpoints", "addresses as tcp://HOST:PORT")
        object.__setattr__(self, "endpoints", tuple(map(addresses.endpoint_of, found)))
        if self.options is not None:
            object.__setattr__(self, "options", socket_options.check_options(self.options))
            if self.max_messages != MAX_MESSAGES and (both := {"sndhwm", "rcvhwm"} & set(self.options)):
                raise Invalid(
                    f"max_messages and {' and '.join(sorted(both))} of options set the same: give one of them"
                )

    def apply(self, module: Any, socket: Any, channel: str, *, bind: bool, heartbeat: bool) -> None:
        """Sets them. `Invalid` if the keys do not fit the end, or libzmq has no CURVE: nothing is sent unencrypted then.

        `client_keys` is left to the caller.
        """
        socket.setsockopt(module.SNDHWM, self.max_messages)
        socket.setsockopt(module.RCVHWM, self.max_messages)
        socket.setsockopt(module.LINGER, 0)
        socket_options.set_defaults(module, socket, heartbeat=heartbeat)
        if bind:
            only_topics = socket.getsockopt(module.TYPE) == module.XPUB
            socket.setsockopt(module.MAXMSGSIZE, TOPIC_MAX if only_topics else PART_MAX)
        socket_options.set_options(module, socket, channel, self.options or {})
        if self.client_keys is not None and (self.secret_key is None or not bind):
            raise Invalid(
                f"{channel}: client_keys is for an end that binds and has a secret_key: the other ends let nobody in"
            )
        if self.secret_key is None and self.server_key is None:
            return
        if bind and (self.secret_key is None or self.server_key is not None):
            raise Invalid(f"{channel}: this end binds and is the CURVE server: it takes secret_key, and no server_key")
        if not bind and self.server_key is None:
            raise Invalid(f"{channel}: this end connects: name the public key of the end that binds by server_key")
        if not module.has("curve"):
            raise Invalid(
                f"{channel}: this libzmq ({module.zmq_version()}) has no CURVE, so nothing can be encrypted: install pyzmq's wheel"
            )
        try:
            self._curve(module, socket, bind)
        except (module.ZMQError, ValueError, UnicodeError) as error:
            raise Invalid(
                f"{channel}: libzmq refuses the CURVE keys: they are not Z85, or not a pair ({error})"
            ) from None
        if socket.getsockopt(module.MECHANISM) != module.CURVE:
            raise Invalid(f"{channel}: libzmq did not take the CURVE keys")

    def allowed(self) -> frozenset[bytes] | None:
        """The keys of the clients that may connect, 32 bytes each; None: any may. `Invalid` for a key that is none."""
        if self.client_keys is None:
            return None
        from zmq.utils import z85

        try:
            return frozenset(z85.decode(_z85(key)) for key in self.client_keys)
        except (ValueError, KeyError, OverflowError, struct.error) as error:
            raise Invalid(f"one of client_keys is not a CURVE key: it is not Z85 ({error})") from None

    def _curve(self, module: Any, socket: Any, bind: bool) -> None:
        if bind:
            socket.setsockopt(module.CURVE_SERVER, 1)
            socket.setsockopt(module.CURVE_SECRETKEY, _z85(self.secret_key))
            return
        if self.secret_key is None:
            public, secret = module.curve_keypair()
        else:
            secret = _z85(self.secret_key)
            public = module.curve_public(secret)
        socket.setsockopt(module.CURVE_SERVERKEY, _z85(self.server_key))
        socket.setsockopt(module.CURVE_PUBLICKEY, public)
        socket.setsockopt(module.CURVE_SECRETKEY, secret)

    @property
    def arguments(self) -> dict[str, Any]:
        """The options in the form that an opener expects."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _check_key(key: Any, name: str) -> None:
    if not isinstance(key, str | bytes) or len(key) != KEY_LENGTH:
        raise Invalid(
            f"{name} is not a CURVE key: a key has {KEY_LENGTH} characters of Z85, as zmq.curve_keypair() makes them"
        )


def _check_keys(given: Any) -> tuple[str | bytes, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise Invalid(f"client_keys is {given!r}: it must be a list of clients' public keys")
    keys = tuple(given)
    if not keys:
        raise Invalid(
            "client_keys is empty, so nobody could connect: name the clients' public keys, or give None for any"
        )
    for key in keys:
        _check_key(key, "one of client_keys")
    return keys


def _z85(key: str | bytes | None) -> bytes:
    return key.encode("ascii") if isinstance(key, str) else key or b""
