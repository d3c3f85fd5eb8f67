"""Options that every handle over ZeroMQ takes: its queue, how long it lingers, CURVE keys. Checks them, and sets them on a socket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.channels.checks import seconds, whole
from penstock.errors import Invalid

KEY_LENGTH = 40  # of a CURVE key as text: 32 bytes in Z85
LINGER_MAX = (1 << 31) // 1000 - 1
LINGER_PUBLICATION, LINGER_PATTERN = 1.0, 10.0
MAX_MESSAGES = 1000


@dataclass(frozen=True, kw_only=True)
class ZmqOptions:
    """The options of one handle.

    max_messages: ZeroMQ's high-water mark: the number of messages that may wait for one peer. 0: no limit. linger: seconds for which `close`
    waits until all messages have left; None waits for ever. secret_key, server_key: CURVE keys. The end that binds has a secret
    key. An end that connects names that server's public key. It may have a secret key of its own; otherwise one is made.
    """

    max_messages: int = MAX_MESSAGES
    linger: float | None = LINGER_PATTERN
    secret_key: str | bytes | None = None
    server_key: str | bytes | None = None

    def __post_init__(self) -> None:
        whole(self.max_messages, "max_messages", 0, (1 << 31) - 1)
        if self.linger is not None and seconds(self.linger, "linger") > LINGER_MAX:
            raise Invalid(f"linger is {self.linger!r}: it must be at most {LINGER_MAX} seconds, or None for ever")
        for name in ("secret_key", "server_key"):
            key = getattr(self, name)
            if key is not None and (not isinstance(key, str | bytes) or len(key) != KEY_LENGTH):
                raise Invalid(
                    f"{name} is not a CURVE key: a key has {KEY_LENGTH} characters of Z85, as zmq.curve_keypair() makes them"
                )

    def apply(self, module: Any, socket: Any, channel: str, *, bind: bool) -> None:
        """Sets them. `Invalid` if the keys do not fit the end, or libzmq has no CURVE: nothing is sent unencrypted then."""
        socket.setsockopt(module.SNDHWM, self.max_messages)
        socket.setsockopt(module.RCVHWM, self.max_messages)
        socket.setsockopt(module.LINGER, 0)
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
        return {name: getattr(self, name) for name in ("max_messages", "linger", "secret_key", "server_key")}


def _z85(key: str | bytes | None) -> bytes:
    return key.encode("ascii") if isinstance(key, str) else key or b""
