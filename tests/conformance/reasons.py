"""Why a kind does not keep a promise. `docs/reference/kinds.md` is made of these.

`Refused`: the kind cannot do it. The same program must end with the error named here, so nothing is ignored in silence.
`Different`: the promise has no meaning for the kind, and there is nothing to refuse.
`Missing`: not built yet. The test is expected to fail, and says so as soon as it passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import penstock


@dataclass(frozen=True)
class Refused:
    """The kind cannot do it, by design."""

    text: str
    error: type[Exception] = penstock.Unsupported


@dataclass(frozen=True)
class Different:
    """The promise has no meaning here."""

    text: str


@dataclass(frozen=True)
class Missing:
    """It is not built."""

    text: str


Reason = Refused | Different | Missing

_ONE_WRITER = "One publication writes at a time: that is why a send needs no lock. A second one is `Busy` until the first closes or dies."
_ONE_PROCESS = Different("A `fake:` channel lives in one process, and in its forked children.")
_GONE = "A message goes to one reader and is gone: there is no past to start in."
_ZMQ_STREAM = "ZeroMQ keeps no stream: a reader gets the messages that are sent while it is connected."
_ZMQ_SILENT = (
    'Unless `when_full="wait"`, ZeroMQ drops messages at a slow reader\'s `max_messages`, and does not count them.'
)
_ZMQ_CODEC = "Only the message's bytes are transmitted, so both ends name the codec."
_ZMQ_LOCAL = "It is not in shared memory, so it cannot be inspected, recorded or removed."

_UDP_FIRST = "A publication keeps what it sent before its first receiver came; that one gets it."
_UDP_CODEC = "A subscription is there before it hears of a publication. The first call that receives a message of another codec raises `Mismatch`."

# (promise, subject), where the subject is a kind, `fake` for every fake channel, or `fake:KIND`.
REASONS: dict[tuple[str, str], Reason] = {
    ("several_publications", "ring"): Refused(_ONE_WRITER, penstock.Busy),
    ("several_publications", "frames"): Refused(_ONE_WRITER, penstock.Busy),
    ("several_publications", "zmq"): Refused(
        "A publication binds the address, and an address is bound once.", penstock.Busy
    ),
    ("every_reader_gets_every_message", "pipe"): Different("A pipe shares messages out: each goes to one reader."),
    ("full", "ring"): Different("A ring is never full: a slow reader is lapped."),
    ("start_earliest", "ring"): Refused(
        "A ring keeps nothing for late readers: its messages may be overwritten at any moment."
    ),
    ("start_earliest", "frames"): Refused("Buffers are reused as soon as no reader leases them."),
    ("start_earliest", "pipe"): Different("A subscription begins with the messages that wait for it, for any `start`."),
    ("start_earliest", "zmq"): Refused(_ZMQ_STREAM),
    ("start_position", "pipe"): Refused(_GONE),
    ("start_position", "zmq"): Refused(_ZMQ_STREAM),
    ("max_payload", "frames"): Different("Every frame has the channel's shape and dtype."),
    ("max_payload", "zmq"): Different("ZeroMQ has no limit but memory."),
    ("codec", "zmq"): Different(_ZMQ_CODEC),
    ("another_codec", "zmq"): Different(_ZMQ_CODEC),
    ("any_order", "frames"): Refused(
        "A frame's size is unknown before the first publication. `connect_timeout=` waits for it.", penstock.NotFound
    ),
    ("start_newest", "udp"): Different(_UDP_FIRST),
    ("another_codec", "udp"): Different(_UDP_CODEC),
    ("lag", "zmq"): Refused("ZeroMQ does not report unread messages."),
    ("received_or_counted", "zmq"): Different(_ZMQ_SILENT),
    ("objects", "frames"): Refused("Frames are arrays of one shape and dtype."),
    ("inspect", "zmq"): Refused(_ZMQ_LOCAL),
    ("recorded", "zmq"): Refused(_ZMQ_LOCAL),
    ("latency", "zmq"): Different("Its messages carry no send time."),
    ("latency", "fake"): Different("A test steps the channel, so the time that a message waited says nothing."),
    ("until_end", "member"): Refused("A member writes, too: the stream has not ended while it is there.", TypeError),
    ("remove", "zmq"): Refused(_ZMQ_LOCAL),
    ("until_end", "zmq"): Refused("ZeroMQ reconnects for ever: it does not say that a publisher has gone for good."),
    **{(promise, "fake"): _ONE_PROCESS for promise in ("killed_writer", "killed_reader", "recorded_in_a_process")},
}


_ASKS = Different("A requester sends by `request` and `submit`, and receives replies.")
_ANSWERS = Different("A replier sends by `reply`, to the one that asked.")
_NO_REQUESTS = Different("Requests and replies are for the roles request and reply.")
_ONLY_SENDS = Refused("A push only sends.")
_ONLY_RECEIVES = Refused("A pull only receives.")
_SENDING = ("socket_sends", "socket_asends", "socket_claims", "socket_aclaims")
_RECEIVING = (
    "socket_receives",
    "socket_areceives",
    "socket_iterates",
    "socket_borrows",
    "socket_polls_arrow",
    "socket_fileno",
    "socket_last",
)
_LATE = Refused(
    "ZeroMQ says only when a message is sent whether there is room, so the end of the block would block the event loop: use `asend`."
)
_ROUTED = Refused("A pipe's claim goes to the peer whose turn it is, and a router names the peer: use `send`.")
_OWNER = Refused("A request must be answered, and this would lose whose it is: use `recv` or `poll`.")

# (promise, role), where the role is that of a socket, alone or as `BACKEND:ROLE`.
SOCKETS: dict[tuple[str, str], Reason] = {
    **{(promise, "request"): _ASKS for promise in (*_SENDING, *_RECEIVING)},
    **{(promise, "reply"): _ANSWERS for promise in _SENDING},
    **{
        (promise, role): _NO_REQUESTS
        for promise in ("socket_asks", "socket_answers")
        for role in ("pair", "dealer", "router", "push", "pull")
    },
    ("socket_asks", "reply"): _ANSWERS,
    ("socket_answers", "request"): _ASKS,
    **{(promise, "push"): _ONLY_SENDS for promise in _RECEIVING},
    **{(promise, "pull"): _ONLY_RECEIVES for promise in _SENDING},
    **{("socket_aclaims", f"zmq:{role}"): _LATE for role in ("pair", "dealer", "push", "router")},
    ("socket_aclaims", "shm:router"): _ROUTED,
    ("socket_claims", "shm:router"): _ROUTED,
    ("socket_borrows", "reply"): _OWNER,
    ("socket_polls_arrow", "reply"): _OWNER,
}


def socket_reason(promise: str, role: str, backend: str) -> Reason | None:
    """Why a socket of that role does not keep a promise on a backend, or None if it does. Fakes do what pipes do."""
    over = "shm" if backend == "fake" else backend
    return next((SOCKETS[key] for key in ((promise, f"{over}:{role}"), (promise, role)) if key in SOCKETS), None)


def reason(promise: str, kind: str, backend: str) -> Reason | None:
    """Why a kind does not keep a promise on a backend, or None if it does."""
    keys = [(promise, f"fake:{kind}"), (promise, "fake")] if backend == "fake" else []
    return next((REASONS[key] for key in [*keys, (promise, kind)] if key in REASONS), None)
