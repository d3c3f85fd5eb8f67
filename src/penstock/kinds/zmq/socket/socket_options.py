"""libzmq's socket options by name: those that every handle sets, those that a user may set, and those that a handle needs for itself.

Knows libzmq's options, and no pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import Invalid
from penstock.util.strict import near

# A connection whose other end is gone without a word is found dead after 25 seconds; a connection is tried again every 5 seconds.
KEEP_ALIVE = {
    "tcp_keepalive": 1,
    "tcp_keepalive_idle": 10,
    "tcp_keepalive_intvl": 5,
    "tcp_keepalive_cnt": 3,
    "connect_timeout": 5_000,
}
# libzmq reads no heartbeats while a socket's queue is full, and takes a peer that waits for room for dead. So only ends
# that may lose messages have heartbeats by default, and a long timeout.
HEARTBEAT = {"heartbeat_ivl": 10_000, "heartbeat_timeout": 60_000, "heartbeat_ttl": 60_000}

_CURVE = "give secret_key=, server_key= and client_keys="
_ONLY_CURVE = "only CURVE checks who connects here: give secret_key= and client_keys="
_CALLS = "every call has a timeout="
_ROUTER = "a router reports peers that are not connected, and knows each by its name"
_TOPICS = "the publication counts its subscriptions by it"
_OWNED = {
    "linger": "give linger=",
    "routing_id": "give name=",
    "conflate": "give conflate=",
    "subscribe": "give topics=",
    "unsubscribe": "give topics=",
    "rcvtimeo": _CALLS,
    "sndtimeo": _CALLS,
    "curve_server": _CURVE,
    "curve_publickey": _CURVE,
    "curve_secretkey": _CURVE,
    "curve_serverkey": _CURVE,
    "zap_domain": _CURVE,
    "zap_enforce_domain": _CURVE,
    "plain_server": _ONLY_CURVE,
    "gssapi_server": _ONLY_CURVE,
    "router_mandatory": _ROUTER,
    "router_raw": _ROUTER,
    "router_handover": _ROUTER,
    "router_notify": _ROUTER,
    "probe_router": "the other end would receive an empty message",
    "connect_routing_id": _ROUTER,
    "xpub_nodrop": 'give when_full="wait"',
    "xpub_verbose": _TOPICS,
    "xpub_verboser": _TOPICS,
    "xpub_manual": _TOPICS,
    "xpub_manual_last_value": _TOPICS,
    "only_first_subscribe": _TOPICS,
    "xpub_welcome_msg": "give last_value=",
    "invert_matching": "topics= are beginnings of the topics to receive",
    "use_fd": "the handle opens its own address",
}
_READ_ONLY = frozenset({"fd", "events", "type", "rcvmore", "last_endpoint", "mechanism", "thread_safe", "topics_count"})
_PLAIN_VALUES = bool | int | str | bytes


def check_options(given: Any) -> dict[str, Any]:
    """`options=` as a dictionary of its own. `Invalid` if it is none; names and values are checked when they are set."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise Invalid(
            f"options is {given!r}: it must be a dictionary of socket options by name, as {{'sndbuf': 65536}}"
        )
    return dict(given)


def set_options(module: Any, socket: Any, channel: str, given: Mapping[str, Any]) -> None:
    """Sets the user's options. `Invalid` for an unknown name, for an option that the handle needs for itself, and for a wrong value."""
    known = {name.lower(): option for name, option in module.SocketOption.__members__.items()}
    canonical = {option: name.lower() for name, option in module.SocketOption.__members__.items()}
    canonical |= {known[name]: name for name in _OWNED if name in known}  # several names may stand for one option
    for name, value in given.items():
        option = known.get(name)
        if option is None:
            raise Invalid(
                f"{channel}: options has {name!r}: ZeroMQ has no such socket option{near(name, known) or '.'} "
                f"Names are those of zmq.SocketOption in lower case"
            )
        if reason := _OWNED.get(canonical[option]):
            raise Invalid(f"{channel}: options has {name!r}, which this library sets by itself: {reason}")
        if canonical[option] in _READ_ONLY:
            raise Invalid(f"{channel}: options has {name!r}, which can only be read")
        _set_option(module, socket, channel, name, option, value)


def _set_option(module: Any, socket: Any, channel: str, name: str, option: Any, value: Any) -> None:
    shown = f"{name}=…" if "password" in name else f"{name}={value!r}"
    if not isinstance(value, _PLAIN_VALUES):
        raise Invalid(f"{channel}: options has {shown}: a value is a whole number, True or False, text or bytes")
    try:
        socket.setsockopt(option, value.encode() if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError, module.ZMQError) as error:
        raise Invalid(f"{channel}: options has {shown}, which libzmq refuses: {error}") from None


def set_defaults(module: Any, socket: Any, *, heartbeat: bool) -> None:
    """Finds dead TCP connections. heartbeat: by ZMTP's heartbeats, too."""
    for name, value in {**KEEP_ALIVE, **(HEARTBEAT if heartbeat else {})}.items():
        socket.setsockopt(getattr(module, name.upper()), value)
