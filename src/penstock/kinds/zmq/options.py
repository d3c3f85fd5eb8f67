"""Options that every handle over ZeroMQ takes: its queue, how long it lingers, CURVE keys, ZeroMQ's own by name. Checks and sets them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.channels.checks import seconds, whole
from penstock.errors import Invalid

KEY_LENGTH = 40  # of a CURVE key as text: 32 bytes in Z85
LINGER_MAX = (1 << 31) // 1000 - 1
LINGER_PUBLICATION, LINGER_PATTERN = 1.0, 10.0
MAX_MESSAGES = 1000
# Of every socket. A connection whose other side is silent for ten seconds ends, and is made anew by the end that connects. IPv4 works as
# before: a socket of IPv6 takes both. A peer cannot make this process allocate more for one message.
SOCKET_DEFAULTS = {"IPV6": 1, "HEARTBEAT_IVL": 5_000, "HEARTBEAT_TIMEOUT": 10_000, "HEARTBEAT_TTL": 10_000}
SOCKET_DEFAULTS |= {"TCP_KEEPALIVE": 1, "TCP_KEEPALIVE_IDLE": 30, "TCP_KEEPALIVE_INTVL": 5, "TCP_KEEPALIVE_CNT": 4}
MESSAGE_MAX = 1 << 30  # bytes of one part, where the socket binds
# Options of ZeroMQ that a handle sets by itself, and what says the same here.
OWN_OPTIONS = {
    "linger": "linger=",
    "routing_id": "name=",
    "identity": "name=",
    "subscribe": "topics=",
    "unsubscribe": "topics=",
    "conflate": "conflate=",
    "xpub_nodrop": "when_full='wait'",
    "curve_server": "secret_key=",
    "curve_secretkey": "secret_key=",
    "curve_publickey": "secret_key=",
    "curve_serverkey": "server_key=",
    **dict.fromkeys(
        (
            *(
                "rcvtimeo",
                "sndtimeo",
                "fd",
                "events",
                "type",
                "rcvmore",
                "use_fd",
                "hwm",
                "blocky",
                "immediate",
                "stream_notify",
            ),
            *("req_correlate", "req_relaxed", "router_mandatory", "router_raw", "router_handover", "router_notify"),
            *("probe_router", "connect_routing_id", "invert_matching", "xpub_verbose", "xpub_verboser", "xpub_manual"),
            *(
                "xpub_manual_last_value",
                "xpub_welcome_msg",
                "only_first_subscribe",
                "hello_msg",
                "disconnect_msg",
                "hiccup_msg",
            ),
        ),
        "",
    ),
}


@dataclass(frozen=True, kw_only=True)
class ZmqOptions:
    """The options of one handle.

    max_messages: ZeroMQ's high-water mark: the number of messages that may wait for one peer. 0: no limit. linger: seconds for which `close`
    waits until all messages have left; None waits for ever. secret_key, server_key: CURVE keys. The end that binds has a secret
    key. An end that connects names that server's public key. It may have a secret key of its own; otherwise one is made. options: ZeroMQ's
    socket options by name, as {"tcp_keepalive_idle": 60}: those of `zmq.SocketOption`, in small letters.
    """

    max_messages: int = MAX_MESSAGES
    linger: float | None = LINGER_PATTERN
    secret_key: str | bytes | None = None
    server_key: str | bytes | None = None
    options: Mapping[str, int | str | bytes] | None = None

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
        if self.options is not None and not isinstance(self.options, Mapping):
            raise Invalid(f"options is {self.options!r}: it must be a dict of ZeroMQ's socket options by name")

    def apply(self, module: Any, socket: Any, channel: str, *, bind: bool) -> None:
        """Sets them. `Invalid` if the keys do not fit the end, or libzmq has no CURVE: nothing is sent unencrypted then."""
        socket.setsockopt(module.SNDHWM, self.max_messages)
        socket.setsockopt(module.RCVHWM, self.max_messages)
        socket.setsockopt(module.LINGER, 0)
        for name, value in SOCKET_DEFAULTS.items():
            socket.setsockopt(getattr(module, name), value)
        if bind:
            socket.setsockopt(module.MAXMSGSIZE, MESSAGE_MAX)
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

    def apply_named(self, module: Any, socket: Any, channel: str) -> None:
        """Sets ZeroMQ's options that were given by name, after all others. `Invalid` for one that cannot be set."""
        for name, value in (self.options or {}).items():
            _set_option(module, socket, channel, name, value)

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
        return {name: getattr(self, name) for name in ("max_messages", "linger", "secret_key", "server_key", "options")}


def _set_option(module: Any, socket: Any, channel: str, name: object, value: Any) -> None:
    """Sets an option of ZeroMQ's. `Invalid` for a name that there is not, one that the handle sets, and a value that libzmq refuses."""
    known = {option.name.lower(): option for option in module.SocketOption} if isinstance(name, str) else {}
    if name not in known:
        near = difflib.get_close_matches(str(name), known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "names are those of zmq.SocketOption in small letters"
        raise Invalid(f"{channel}: ZeroMQ has no socket option {name!r}; {hint}")
    if name in OWN_OPTIONS:
        instead = f": use {OWN_OPTIONS[name]}" if OWN_OPTIONS[name] else ", and its promises rest on it"
        raise Invalid(f"{channel}: the handle sets ZeroMQ's option {name!r} by itself{instead}")
    try:
        if isinstance(value, str):
            socket.setsockopt_string(known[name], value)
        else:
            socket.setsockopt(known[name], value)
    except (module.ZMQError, TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"{channel}: libzmq refuses {value!r} for its option {name!r}: {error}") from None


def _z85(key: str | bytes | None) -> bytes:
    return key.encode("ascii") if isinstance(key, str) else key or b""
