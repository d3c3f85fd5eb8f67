"""The patterns of `pipe:` channels over ZeroMQ: push and pull, pair, request and reply, dealer and router, with any ZeroMQ peer.

Parts of messages are ZeroMQ's own frames. Requests travel with a correlation id in front of ZeroMQ's empty delimiter, which REP
and ROUTER peers carry back; REQ peers are answered as they expect.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock import codecs
from penstock.channel import Channel
from penstock.errors import Invalid, NotFound, SystemFailure, TimedOut
from penstock.net.zeromq import _bind, _endpoint, _Handle, _hwm, _slices
from penstock.options import seconds
from penstock.patterns import Body, Made, Receiving, Routed, decoded, encoded

TYPES = {
    "push": "PUSH",
    "pull": "PULL",
    "pair": "PAIR",
    "request": "DEALER",
    "reply": "ROUTER",
    "dealer": "DEALER",
    "router": "ROUTER",
}
BINDS = ("pull", "reply", "router")  # unless told otherwise


def _frames(body: Body) -> list[Any]:
    parts = body if isinstance(body, list | tuple) else [body]
    return [encoded(part) for part in parts]


def _body(frames: list[bytes]) -> bytes | list[bytes]:
    return frames[0] if len(frames) == 1 else frames


class ZmqSocket(_Handle):
    """A peer of a pattern over ZeroMQ. Thread-safe; a context manager. What the other side's queue has no room for waits here."""

    def __init__(self, channel: Channel, role: str, name: str | None, bind: bool, hwm: int) -> None:
        super().__init__(channel, TYPES[role], codecs.BYTES, hwm, {})
        self._role = role
        if name is not None:
            self._socket.setsockopt(self._zmq.IDENTITY, name.encode())
        if self._socket.type == self._zmq.ROUTER:
            self._socket.setsockopt(self._zmq.ROUTER_MANDATORY, 1)
        if bind:
            _bind(self._zmq, self._socket, _endpoint(channel), self.close)
            return
        try:
            self._socket.connect(_endpoint(channel))
        except self._zmq.ZMQError as error:
            self.close()
            raise SystemFailure(error.errno, f"cannot connect to {channel}: {error.strerror}") from error

    @property
    def address(self) -> str:
        """Where it is bound or connected."""
        return self._socket.getsockopt_string(self._zmq.LAST_ENDPOINT)

    def _send(self, frames: list[Any], timeout: float | None) -> None:
        for left in itertools.chain([0], _slices(timeout)):
            with self._lock:
                socket = self._open()
                if left:
                    socket.poll(left, self._zmq.POLLOUT)
                try:
                    socket.send_multipart(frames, self._zmq.NOBLOCK)
                    self._position += sum(memoryview(frame).nbytes for frame in frames)
                    return
                except self._zmq.Again:
                    continue
                except self._zmq.ZMQError as error:
                    if error.errno == self._zmq.EHOSTUNREACH:
                        raise NotFound(error.errno, f"{self.channel}: no peer of that name is connected") from error
                    raise
        raise TimedOut(f"{self.channel}: no peer took the message within the timeout")

    def _take(self, timeout: float | None) -> list[bytes] | None:
        for left in itertools.chain([0], _slices(timeout)):
            with self._lock:
                socket = self._open()
                if left and not socket.poll(left):
                    continue
                try:
                    return socket.recv_multipart(self._zmq.NOBLOCK)
                except self._zmq.Again:
                    continue
        return None

    async def _stirred(self) -> None:
        await asyncio.to_thread(self._take_no, 0.02)

    def _take_no(self, limit: float) -> None:
        with self._lock:
            self._open().poll(int(limit * 1000))


class _Receiver(ZmqSocket, Receiving[list[bytes], Made]):
    """A peer that gives out what it receives."""


class ZmqTalker(_Receiver[bytes | list[bytes]]):
    """Push, pull, pair or dealer: sends and receives without addressing anybody, as far as its pattern does."""

    def send(self, body: Body, timeout: float | None = None) -> None:
        """Sends a message (bytes, any buffer, text), or a list of them as its parts. TimeoutError after `timeout` seconds."""
        if self._role == "pull":
            raise Invalid(f"{self.channel}: who pulls does not send")
        self._send(_frames(body), timeout)

    def _made(self, raw: list[bytes]) -> bytes | list[bytes]:
        return _body(raw)


class ZmqRouter(_Receiver[Routed]):
    """Receives from every dealer, and sends to the one it names."""

    def send(self, to: str, body: Body, timeout: float | None = None) -> None:
        """Sends to the dealer of that name. `NotFound` if none is connected; TimeoutError after `timeout` seconds."""
        self._send([encoded(to), *_frames(body)], timeout)

    def _made(self, raw: list[bytes]) -> Routed:
        sender, *frames = raw
        return Routed(decoded(sender), _body(frames))


class ZmqPending:
    """A request on its way. Made by `ZmqRequester.submit`."""

    def __init__(self, requester: ZmqRequester, number: int) -> None:
        self._requester, self.number = requester, number

    def result(self, timeout: float | None = None) -> bytes | list[bytes]:
        """The reply. TimeoutError after `timeout` seconds."""
        return self._requester._wait(self.number, timeout)


class ZmqRequester(ZmqSocket):
    """Asks REP, ROUTER or `reply` peers in turn. Many requests may be under way; ZeroMQ does not say whether a server died: give a timeout."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._number = itertools.count(1)
        self._waiting: set[int] = set()
        self._replies: dict[int, list[bytes]] = {}
        self._account = threading.Lock()
        self.late = 0  # replies that nobody waited for any more

    def request(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> bytes | list[bytes]:
        """A request and its reply. TimeoutError after `timeout` seconds, for each of `retries` more attempts."""
        for _ in range(retries):
            try:
                return self.submit(body, timeout=timeout).result(timeout)
            except TimeoutError:
                continue
        return self.submit(body, timeout=timeout).result(timeout)

    def submit(self, body: Body, *, timeout: float | None = None) -> ZmqPending:
        """Sends a request without waiting for its reply; waits for a server to connect up to `timeout` seconds."""
        number = next(self._number)
        with self._account:
            self._waiting.add(number)
        try:
            self._send([struct.pack("<Q", number), b"", *_frames(body)], timeout)
        except BaseException:
            self._forget(number)
            raise
        return ZmqPending(self, number)

    def _forget(self, number: int) -> None:
        with self._account:
            self._waiting.discard(number)
            self._replies.pop(number, None)

    def _wait(self, number: int, timeout: float | None) -> bytes | list[bytes]:
        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while True:
            with self._account:
                found = self._replies.pop(number, None)
            if found is not None:
                return _body(found)
            left = 0.05 if deadline is None else min(deadline - time.monotonic(), 0.05)
            frames = self._take(max(left, 0))
            if frames is not None:
                self._note(frames)
            elif left <= 0:
                self._forget(number)
                raise TimedOut(f"{self.channel}: no reply within the timeout")

    def _note(self, frames: list[bytes]) -> None:
        number = struct.unpack("<Q", frames[0])[0] if len(frames) > 1 and len(frames[0]) == 8 else 0
        with self._account:
            if number in self._waiting and frames[1] == b"":
                self._waiting.discard(number)
                self._replies[number] = frames[2:]
            else:
                self.late += 1


class ZmqRequest(NamedTuple):
    """A request received. `reply` answers it."""

    body: bytes | list[bytes]
    replier: ZmqReplier
    envelope: list[bytes]

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Answers. False, and nothing else, if whoever asked is gone."""
        try:
            self.replier._send([*self.envelope, b"", *_frames(body)], timeout)
        except NotFound:
            return False
        return True


class ZmqReplier(_Receiver[ZmqRequest]):
    """A server for REQ, DEALER or `request` peers: takes requests, and answers them in any order."""

    def serve(self, answer: Callable[[Any], Body], count: int | None = None) -> None:
        """Answers requests with what `answer` makes of their bodies, until the handle closes, or `count` are answered."""
        for request in itertools.islice(self, count):
            request.reply(answer(request.body))

    def _made(self, raw: list[bytes]) -> ZmqRequest:
        end = raw.index(b"", 1) if b"" in raw[1:] else 0
        return ZmqRequest(_body(raw[end + 1 :]), self, raw[: end or 1])


SOCKETS: dict[str, type[ZmqSocket]] = {
    **dict.fromkeys(("push", "pull", "pair", "dealer"), ZmqTalker),
    "request": ZmqRequester,
    "reply": ZmqReplier,
    "router": ZmqRouter,
}


def open_socket(
    channel: Channel, *, role: str | None, name: str | None = None, bind: bool | None = None, hwm: int = 1000
) -> ZmqSocket:
    """A peer of that role. Pull, reply and router bind unless told otherwise, the others connect."""
    if role not in SOCKETS:
        raise Invalid(f"role is {role!r}: it must be one of {', '.join(SOCKETS)}")
    return SOCKETS[role](channel, role, name, role in BINDS if bind is None else bind, _hwm(hwm))
