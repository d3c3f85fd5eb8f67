"""Why a kind does not keep a promise. `docs/reference/kinds.md` is made of these.

`Refused`: the kind cannot do it. The same program must end with the error named here, so nothing is ignored in silence.
`Different`: the promise has no meaning for the kind, and there is nothing to refuse.
`Missing`: not built yet. The test is expected to fail, and says so as soon as it passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

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

_NO_EARLY_FRAMES = "A subscription to frames is opened once the channel is there: `connect_timeout=` waits for it."
_UDP_FIRST = "A publication keeps what it sent before its first receiver came; that one gets it."
_UDP_CODEC = "A subscription is there before it hears of a publication. The first call that receives a message of another codec raises `Mismatch`."

_FRAME_SIZE = "A frame's size is unknown before the first publication. `connect_timeout=` waits for it."
_MEMBER_DECIDES = "A member decides the channel: it is never open."
_LAST = (
    "last_message",
    "last_messages",
    "last_more_than_kept",
    "last_nothing",
    "last_of_an_open_channel",
    "last_after_the_end",
    "last_of_fragments",
    "last_awaited",
    "bad_last",
    "last_while_written",
)

# (promise, subject), where the subject is a kind, `fake` for every fake channel, or `fake:KIND`.
REASONS: dict[tuple[str, str], Reason] = {
    ("several_publications", "ring"): Refused(_ONE_WRITER, penstock.Busy),
    ("several_publications", "zmq"): Refused(
        "A publication binds the address, and an address is bound once.", penstock.Busy
    ),
    ("every_reader_gets_every_message", "pipe"): Different("A pipe shares messages out: each goes to one reader."),
    ("full", "ring"): Different("A ring is never full: a slow reader is lapped."),
    ("start_earliest", "ring"): Refused(
        "A ring keeps nothing for late readers: its messages may be overwritten at any moment."
    ),
    ("start_earliest", "frames"): Refused("Buffers are reused as soon as no reader leases them."),
    ("start_earliest", "pipe"): Refused("A subscription begins with the messages that wait for it: there is no past."),
    ("start_earliest", "zmq"): Refused(_ZMQ_STREAM),
    ("start_position", "pipe"): Refused(_GONE),
    ("start_position", "zmq"): Refused(_ZMQ_STREAM),
    ("max_payload", "frames"): Different("Every frame has the channel's shape and dtype."),
    ("max_payload", "zmq"): Different("ZeroMQ has no limit but memory."),
    ("longer_than_max_payload", "frames"): Different("Every frame has the channel's shape and dtype."),
    ("longer_than_max_payload", "zmq"): Different("ZeroMQ has no limit but memory."),
    ("codec", "zmq"): Different(_ZMQ_CODEC),
    ("another_codec", "zmq"): Different(_ZMQ_CODEC),
    ("any_order", "frames"): Refused(_FRAME_SIZE, penstock.NotFound),
    ("start_newest", "udp"): Different(_UDP_FIRST),
    ("another_codec", "udp"): Different(_UDP_CODEC),
    ("lag", "zmq"): Refused("ZeroMQ does not report unread messages."),
    ("received_or_counted", "zmq"): Different(_ZMQ_SILENT),
    ("objects", "frames"): Refused("Frames are arrays, of a shape and dtypes that the channel names."),
    ("a_reader_opened_early_holds_what_nobody_changes", "frames"): Refused(
        "A frame's size is unknown before the first publication. `connect_timeout=` waits for it.", penstock.NotFound
    ),
    ("text", "frames"): Different("Frames are arrays: a text does not fit their dtype."),
    ("text_with_a_codec", "frames"): Refused("Frames are arrays, of a shape and dtypes that the channel names."),
    ("inspect", "zmq"): Refused(_ZMQ_LOCAL),
    ("recorded", "zmq"): Refused(_ZMQ_LOCAL),
    ("latency", "zmq"): Different("Its messages carry no send time."),
    ("latency", "fake"): Different("A test steps the channel, so the time that a message waited says nothing."),
    ("until_end", "member"): Refused("A member writes, too: the stream has not ended while it is there.", TypeError),
    ("remove", "zmq"): Refused(_ZMQ_LOCAL),
    **{
        (promise, "zmq"): Refused(_ZMQ_LOCAL)
        for promise in (
            "statistics_after_remove",
            "statistics_after_another_came",
            "pickle_after_remove",
            "recorded_after_remove",
            "statistics_early",
            "pickle_early_after_remove",
        )
    },
    **{
        (promise, "frames"): Refused(_FRAME_SIZE, penstock.NotFound)
        for promise in (
            "statistics_early",
            "pickle_early_after_remove",
            "introspection_early",
            "unknown_attributes_early",
            "error_texts_early",
            "closing_early_subscription",
        )
    },
    ("statistics_early", "member"): Different(_MEMBER_DECIDES),
    ("pickle_early_after_remove", "member"): Different(_MEMBER_DECIDES),
    **{
        (promise, "udp"): Different("The name is an address, at which every publication is a session of its own.")
        for promise in ("pickle_after_remove", "pickle_early_after_remove")
    },
    ("deadline_removed", "zmq"): Different(_ZMQ_LOCAL),
    ("deadline_recorded", "zmq"): Different(_ZMQ_LOCAL),
    ("deadline_early", "frames"): Different(_NO_EARLY_FRAMES),
    ("deadline_decided_late", "frames"): Different(_NO_EARLY_FRAMES),
    ("until_end", "zmq"): Refused("ZeroMQ reconnects for ever: it does not say that a publisher has gone for good."),
    **{(promise, "pipe"): Refused(_GONE, TypeError) for promise in _LAST},
    **{(promise, "zmq"): Refused(_ZMQ_STREAM, TypeError) for promise in _LAST},
    ("last_of_an_open_channel", "frames"): Refused(_FRAME_SIZE, penstock.NotFound),
    ("last_of_fragments", "ring"): Different("A ring's messages are not cut into fragments."),
    ("last_of_fragments", "frames"): Different("Every frame has the channel's shape and dtype."),
    **{
        (promise, "fake"): _ONE_PROCESS
        for promise in ("killed_writer", "killed_reader", "recorded_in_a_process", "name_belongs_to_one")
    },
    **{
        ("name_belongs_to_one", kind): Different("Its publications and subscriptions have no names.")
        for kind in ("log", "ring", "frames", "udp", "zmq")
    },
    **{
        (promise, "zmq"): Refused(_ZMQ_LOCAL)
        for promise in ("a_killed_writer_is_not_counted", "a_killed_reader_has_no_lag", "counts_never_fall")
    },
    ("series_of_the_dead_vanish", "zmq"): Different(_ZMQ_LOCAL),
    ("series_of_the_dead_vanish", "fake"): Different("Metrics show the channels of this machine."),
}


_ASKS = Different("A requester sends by `request` and `submit`, and receives replies.")
_ANSWERS = Different("A replier sends by `reply`, to the one that asked.")
_NO_REQUESTS = Different("Requests and replies are for the roles request and reply.")
_ONLY_SENDS = Refused("A push only sends, and has no method that receives.", AttributeError)
_ONLY_RECEIVES = Refused("A pull only receives, and has no method that sends.", AttributeError)
_SENDING = ("socket_sends", "socket_asends", "socket_offers", "socket_claims", "socket_aclaims")
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
    "ZeroMQ reports only during a send whether there is room, so the end of the block would block the event loop: use `send_async`."
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
    **{
        ("a_socket_lends_what_nobody_changes", role): Different("It lends nothing: it has no `borrow`.")
        for role in ("request", "reply", "push")
    },
    ("socket_polls_arrow", "reply"): _OWNER,
}

_SERVES = Different("A server outlives its clients: it waits for the next one.")
_CLIENT = Different("Its stream ends when every peer that could answer has left.")
_RECONNECTS = Different(
    "ZeroMQ reconnects for ever: it does not say that a peer has gone for good. Messages to a peer that is away wait for it."
)
_NAMED_BY_ZMQ = Different("ZeroMQ gives a socket without a name one for each connection.")
_ENDS = (
    "socket_ends_when_its_partner_leaves",
    "socket_ends_when_its_partner_is_killed",
    "socket_that_sends_first_learns_of_a_kill",
    "socket_stopped_partner_is_there",
    "socket_partner_that_was_never_there_is_awaited",
    "socket_goes_on_with_the_next_partner",
)
_REQUEST_ENDS = ("socket_request_ends_with_its_server", "socket_request_ends_with_its_killed_server")
_OTHER_PROCESS = (
    "socket_ends_when_its_partner_is_killed",
    "socket_that_sends_first_learns_of_a_kill",
    "socket_stopped_partner_is_there",
    "socket_request_ends_with_its_killed_server",
    "socket_name_of_a_dead_one_is_free",
)
SOCKETS |= {
    **{
        (promise, f"zmq:{role}"): _RECONNECTS
        for promise in (*_ENDS, *_REQUEST_ENDS)
        for role in ("pair", "dealer", "request")
    },
    **{(promise, role): _SERVES for promise in _ENDS for role in ("router", "reply", "push", "pull")},
    **{(promise, "request"): _ASKS for promise in _ENDS},
    **{
        (promise, role): _NO_REQUESTS
        for promise in _REQUEST_ENDS
        for role in ("pair", "dealer", "router", "reply", "push", "pull")
    },
    **{("socket_server_waits_for_the_next_client", role): _CLIENT for role in ("pair", "dealer", "request")},
    **{
        (promise, f"zmq:{role}"): _NAMED_BY_ZMQ
        for promise in ("socket_drawn_names_are_unique", "socket_forked_draws_another_name")
        for role in ("pair", "dealer", "router", "request", "reply", "push", "pull")
    },
    **{
        ("dealers_get_their_own_answers", role): Different("This promise is about dealers.")
        for role in ("pair", "router", "request", "reply", "push", "pull")
    },
}


def socket_reason(promise: str, role: str, backend: str) -> Reason | None:
    """Why a socket of that role does not keep a promise on a backend, or None if it does. Fakes do what pipes do."""
    if backend == "fake" and promise in _OTHER_PROCESS:
        return _ONE_PROCESS
    over = "shm" if backend == "fake" else backend
    return next((SOCKETS[key] for key in ((promise, f"{over}:{role}"), (promise, role)) if key in SOCKETS), None)


def reason(promise: str, kind: str, backend: str) -> Reason | None:
    """Why a kind does not keep a promise on a backend, or None if it does."""
    keys = [(promise, f"fake:{kind}"), (promise, "fake")] if backend == "fake" else []
    return next((REASONS[key] for key in [*keys, (promise, kind)] if key in REASONS), None)


def marks(why: Reason | None) -> list[pytest.MarkDecorator]:
    """What is expected of a promise's test: a refusal exactly where there is a reason for one."""
    if isinstance(why, Refused):
        return [pytest.mark.xfail(reason=why.text, strict=True, raises=why.error)]
    if isinstance(why, Missing):
        return [pytest.mark.xfail(reason=why.text, strict=True)]
    return [pytest.mark.skip(reason=why.text)] if isinstance(why, Different) else []
