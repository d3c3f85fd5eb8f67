"""Peers of a pipe channel that answer: pair, request and reply, dealer and router.

Each is a peer with a pipe to and from every other that its role talks to. Messages are bytes, or lists of bytes that arrive together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self, cast

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel
from penstock.errors import Closed, Invalid, NotFound, TimedOut
from penstock.options import seconds
from penstock.patterns import Body, Made, Receiving, Routed, decoded, encoded
from penstock.shm import handles, opening, pipe
from penstock.shm.handles import Origin, Publication, Subscription
from penstock.status import ChannelStatus

Found = tuple[
    int, int, int, bytes, int
]  # from whom, its number, its kind, the body; and whom what was sent before went to
SLICE = 0.02


def pack(body: Body) -> tuple[Any, int]:
    """A message as it travels, and what kind it is."""
    if type(body) is bytes:
        return body, 0
    if not isinstance(body, list | tuple):
        return encoded(body), 0
    return codecs.join_parts([bytes(encoded(part)) for part in body]), codecs.PARTS


def unpack(data: bytes, kind: int) -> bytes | list[bytes]:
    """What `pack` was given. Raises `Invalid` for what it did not make."""
    if not kind & codecs.PARTS:
        return data
    try:
        return codecs.split_parts(data)
    except ValueError as error:
        raise Invalid(str(error)) from None


class Socket:
    """What peers of every pattern have. Thread-safe; a context manager. Pickles to a child process as a new peer by its own name."""

    def __init__(self, channel: Channel, role: str, name: str | None, spin: float, arguments: dict[str, Any]) -> None:
        self._channel, self._role, self._arguments = channel, role, arguments
        options = {key: value for key, value in arguments.items() if key not in ("when_full", "clock")}
        peer, _ = pipe.open_peer(
            channel, role, name, arguments.get("when_full", "wait"), arguments.get("clock"), None, options
        )
        origin = Origin(pipe.KIND, channel, codecs.BYTES, open_socket, {})
        self._name = name
        self._pub = Publication(_native.pipe_sender(peer), origin)
        self._sub = Subscription(_native.pipe_receiver(peer, False), origin, seconds(spin, "spin"))
        self._spin = spin
        self._names: dict[int, str] = {}

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    @property
    def name(self) -> str:
        """What this peer is called."""
        return str(os.getpid()) if self._name is None else self._name

    @property
    def peers(self) -> list[str]:
        """The names of the living peers that this one talks to."""
        return [self._name_of(peer) for peer in _native.pipe_others(self._pub)]

    @property
    def waiting(self) -> int:
        """Messages written here that nobody has read yet."""
        return _native.pipe_waiting(self._pub)

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._pub.closed

    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment."""
        return opening.inspect(pipe.KIND, self._channel)

    def wait_for_peers(self, count: int = 1, timeout: float | None = None) -> None:
        """Until so many peers are there that this one talks to; TimeoutError after `timeout` seconds."""
        self._pub.wait_for_readers(count, timeout)

    def fileno(self) -> int:
        """Readable while there is something to read, for selectors."""
        return self._sub.fileno()

    def close(self) -> None:
        """Leaves. What was written can still be read by those who are there. Safe to call twice."""
        self._sub.close()
        self._pub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel} as {self.name!r}{' closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._channel, self._role, self._name, self._spin, self._arguments)

    def _name_of(self, peer: int) -> str:
        found = self._names.get(peer)  # a peer keeps its name, and its number is never another's
        if found is None:
            found = decoded(_native.pipe_name_of(self._pub, peer))
            if len(self._names) >= 1024:
                self._names.clear()
            self._names[peer] = found
        return found

    def _send(self, to: int, number: int, body: Body, kind: int, timeout: float | None) -> int:
        data, parts = pack(body)
        went = cast("int | None", _native.pipe_send(self._pub, to, number, kind | parts, data, timeout))
        if went is None:
            raise TimedOut(f"{self.channel}: no room within the timeout: {self.waiting} messages wait to be read")
        return went

    def _take(self, timeout: float | None) -> Found | None:
        return cast("Found | None", _native.pipe_take(self._sub, timeout))

    async def _stirred(self) -> None:
        await handles.readable(self.fileno())


class _Receiver(Socket, Receiving[Found, Made]):
    """A peer that gives out what it receives."""


class _Talker(_Receiver[bytes | list[bytes]]):
    """A peer that sends and receives without addressing anybody."""

    def send(self, body: Body, timeout: float | None = None) -> None:
        """Sends a message (bytes, any buffer, text) or a list of them that arrives as one. TimeoutError after `timeout` seconds."""
        self._send(0, 0, body, 0, timeout)

    def offer(self, body: Body) -> bool:
        """The same without ever blocking: whether there was room."""
        data, kind = pack(body)
        return _native.pipe_send(self._pub, 0, 0, kind, data, 0) is not None

    def _made(self, raw: Found) -> bytes | list[bytes]:
        return unpack(raw[3], raw[2])


class Pair(_Talker):
    """One of two that talk to each other. A third is refused (`Busy`); one that died is succeeded."""


class Dealer(_Talker):
    """Sends to whichever router's turn it is; receives what any router addresses to its name."""


class Router(_Receiver[Routed]):
    """Receives from every dealer, and sends to the one it names."""

    def send(self, to: str, body: Body, timeout: float | None = None) -> None:
        """Sends to the dealer of that name. `NotFound` if there is none; TimeoutError after `timeout` seconds."""
        peer = _native.pipe_named(self._pub, pipe.peer_name(to))
        if peer == 0:
            raise NotFound(2, f"{self.channel}: no peer is called {to!r}; there are {', '.join(self.peers) or 'none'}")
        self._send(peer, 0, body, 0, timeout)

    def _made(self, raw: Found) -> Routed:
        return Routed(self._name_of(raw[0]), unpack(raw[3], raw[2]))


class Pending:
    """A request on its way. Made by `Requester.submit`."""

    def __init__(self, requester: Requester, body: Body, retries: int) -> None:
        self._requester, self._body, self._retries = requester, body, retries
        self._reply: bytes | list[bytes] | None = None
        self._error: Exception | None = None
        self.done = False

    def result(self, timeout: float | None = None) -> bytes | list[bytes]:
        """The reply. TimeoutError after `timeout` seconds; `Closed` if the server died and no retry is left."""
        self._requester._wait(self, timeout)
        if self._error is not None:
            raise self._error
        assert self._reply is not None
        return self._reply

    def cancel(self) -> None:
        """Forgets the request: a reply that comes after all is ignored and counted."""
        self._requester._forget(self)


class Requester(Socket):
    """Asks whichever server's turn it is, and gets its reply. Many requests may be under way at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pending: dict[int, tuple[Pending, int] | None] = {}  # None: whoever asked waits for it himself
        self._answers: dict[int, Found] = {}  # which another thread received for him
        self._number, self._turn, self._pid = 0, 0, os.getpid()
        self._looked = 0.0
        self.late = 0  # replies that nobody waited for any more

    def request(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> bytes | list[bytes]:
        """A request and its reply. TimeoutError after `timeout` seconds in all.

        If the server dies with it, `Closed`, or another server is asked, up to `retries` times: then it may be done twice.
        """
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        if self._pending or self._pid != os.getpid():
            pending = self._submit(body, retries, timeout)
        else:  # the short way while nothing else is under way: one call sends, and waits a little for what comes
            self._number = number = self._number + 1
            self._pending[number] = None
            data, kind = pack(body)
            patience = SLICE if timeout is None else min(SLICE, timeout)
            try:
                found = _native.pipe_ask(self._pub, self._sub, number, kind, data, timeout, patience)
            except BaseException:
                self._pending.pop(number, None)
                raise
            if type(found) is tuple and found[1] == number:
                self._pending.pop(number, None)
                return unpack(found[3], found[2])
            pending = self._wait_on(number, found, body, retries)
        try:
            return pending.result(None if deadline is None else max(deadline - time.monotonic(), 0))
        except BaseException:
            self._forget(pending)
            raise

    def _wait_on(self, number: int, found: Found | int | None, body: Body, retries: int) -> Pending:
        """What was asked the short way, and did not get its reply at once, as any other request."""
        if found is None:
            self._pending.pop(number, None)
            raise TimedOut(f"{self.channel}: no room within the timeout: {self.waiting} messages wait to be read")
        pending = Pending(self, body, retries)
        if number in self._pending:
            self._pending[number] = pending, found if isinstance(found, int) else found[4]
        if isinstance(found, tuple):
            self._note(found)
        self._hand_over(number, pending)
        return pending

    def _hand_over(self, number: int, pending: Pending) -> None:
        """Gives a request the reply that another thread received before it knew for whom."""
        answer = self._answers.pop(number, None)
        if answer is not None:
            self._pending.pop(number, None)
            pending._reply, pending.done = unpack(answer[3], answer[2]), True

    def submit(self, body: Body, *, retries: int = 0, timeout: float | None = None) -> Pending:
        """Sends a request without waiting for its reply; waits for a server, and for room, up to `timeout` seconds."""
        return self._submit(body, retries, timeout)

    async def arequest(self, body: Body, *, retries: int = 0) -> bytes | list[bytes]:
        """`request` in the running event loop. Cancelling it forgets the request."""
        pending = self._submit(body, retries, None)
        try:
            while not pending.done:
                if not self._receive(0):
                    await handles.readable(self.fileno())
            return pending.result(0)
        except BaseException:
            self._forget(pending)
            raise

    def _submit(self, body: Body, retries: int, timeout: float | None) -> Pending:
        if self._pid != os.getpid():  # the parent's requests are the parent's
            self._pid = os.getpid()
            self._pending.clear()
        pending = Pending(self, body, retries)
        self._dispatch(pending, timeout)
        return pending

    def _dispatch(self, pending: Pending, timeout: float | None) -> None:
        self._number += 1
        number = self._number
        # Known before it is sent: another thread may receive the reply first.
        self._pending[number] = pending, 0
        try:
            went = self._send(0, number, pending._body, 0, timeout)
        except BaseException:
            self._pending.pop(number, None)
            raise
        if number in self._pending:
            self._pending[number] = pending, went

    def _wait(self, pending: Pending, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while not pending.done:
            left = SLICE if deadline is None else min(deadline - time.monotonic(), SLICE)
            if not self._receive(max(left, 0)) and left <= 0 and not pending.done:
                raise TimedOut(f"{self.channel}: no reply within the timeout")

    def _receive(self, timeout: float) -> bool:
        found = self._take(timeout)
        if found is not None:
            self._note(found)
        now = time.monotonic()
        if found is None and now - self._looked > SLICE / 2:
            self._looked = now
            self._look_for_the_dead()
        return found is not None

    def _note(self, found: Found) -> None:
        number = found[1]
        try:
            waiting = self._pending.pop(number)
        except KeyError:
            self.late += 1
            return
        if waiting is None:  # he who asked the short way looks there after he has said that he goes the long one
            self._answers[number] = found
            waiting = self._pending.pop(number, None)
            if waiting is not None:
                self._hand_over(number, waiting[0])
        else:
            waiting[0]._reply, waiting[0].done = unpack(found[3], found[2]), True

    def _look_for_the_dead(self) -> None:
        there = set(_native.pipe_others(self._pub))
        for number, entry in list(self._pending.items()):
            if entry is None:
                continue
            pending, went = entry
            if went in there or went == 0 or self._pending.pop(number, None) is None:
                continue
            pending._retries -= 1
            try:
                if pending._retries < 0:
                    raise Closed(f"{self.channel}: the server died before it replied")
                self._dispatch(pending, SLICE)
            except TimedOut:  # nobody is there now: look again
                pending._retries += 1
                self._pending[number] = pending, went
            except Closed as error:
                pending._error, pending.done = error, True

    def _forget(self, pending: Pending) -> None:
        for number, entry in list(self._pending.items()):
            if entry is not None and entry[0] is pending:
                self._pending.pop(number, None)
        pending.done = True


class Request(NamedTuple):
    """A request received. `reply` answers it."""

    body: bytes | list[bytes]
    sender: str
    replier: Replier
    peer: int
    number: int

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Answers. False, and nothing else, if whoever asked is gone; TimeoutError if it does not read its replies."""
        return self.replier._reply(self.peer, self.number, body, timeout)


class Replier(_Receiver[Request]):
    """A server: takes requests, in turn from all who ask, and answers them in any order."""

    def serve(self, answer: Callable[[Any], Body], count: int | None = None) -> None:
        """Answers requests with what `answer` makes of their bodies, until the handle closes, or `count` are answered."""
        found: Found | None = None
        try:
            while count is None or count > 0:
                peer, number, kind, data, _ = found or self._expect(None)
                found = None
                body = answer(unpack(data, kind))
                count = None if count is None else count - 1
                if count == 0:
                    self._reply(peer, number, body, None)
                else:  # one call sends, and waits for the next request
                    reply, parts = pack(body)
                    found = _native.pipe_answer(self._pub, self._sub, peer, number, parts, reply)
        except Closed:
            if not self.closed:
                raise

    def _reply(self, peer: int, number: int, body: Body, timeout: float | None) -> bool:
        try:
            self._send(peer, number, body, 0, timeout)
        except Closed:
            if self.closed:
                raise
            return False
        return True

    def _made(self, raw: Found) -> Request:
        peer, number, kind, data, _ = raw
        return Request(unpack(data, kind), self._name_of(peer), self, peer, number)


SOCKETS: dict[str, type[Socket]] = {
    "pair": Pair,
    "request": Requester,
    "reply": Replier,
    "dealer": Dealer,
    "router": Router,
}


def open_socket(
    channel: Channel, *, role: str | None, name: str | None = None, spin: float = 20e-6, **arguments: Any
) -> Socket:
    """A peer of that role, on a channel made now if there is none."""
    if role not in SOCKETS:
        raise Invalid(
            f"role is {role!r}: it must be one of {', '.join(SOCKETS)}. To push, use penstock.publish; to pull, penstock.subscribe"
        )
    return SOCKETS[role](channel, role, name, spin, arguments)


def _reopen(channel: Channel, role: str, name: str | None, spin: float, arguments: dict[str, Any]) -> Socket:
    return open_socket(channel, role=role, name=name, spin=spin, **arguments)


__all__: Sequence[str] = ["Dealer", "Pair", "Pending", "Replier", "Request", "Requester", "Routed", "Router", "Socket"]
