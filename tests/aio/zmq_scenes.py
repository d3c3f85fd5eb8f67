"""Scenes of the waiting calls that handles over ZeroMQ have besides `recv_async`: sending into full queues, requests, readers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from aio.scenes import OUTSTANDING, WAIT, Asking, Receives, Receiving, Scene, name_of

import penstock

BODY = bytes(1 << 16)
SETTLES = 0.1  # seconds without room: the network has moved what it could


class Sending(Scene):
    """A message to a peer that does not read, and whose queue is full."""

    local = True  # no other process has the other end

    def __init__(self, make: Callable[[str], tuple[Any, Any]], **where: Any) -> None:
        self.handle, self.reader = make(name_of("zmq+ipc:"))
        self.where = where
        self.read: list[bytes] = []
        self.filling, self.full = threading.Lock(), False

    def fill(self) -> None:
        """Until there is no room, and the network moves nothing more."""
        with self.filling, contextlib.suppress(penstock.TimedOut):
            while not self.full:
                self.put_filler()
        self.full = True

    def put_filler(self) -> None:
        """Sends a message that nobody counts. `TimedOut` if there is no room."""
        self.handle.send(BODY, SETTLES, **self.where)

    async def wait(self, number: int) -> Any:
        """The position after the message."""
        await asyncio.to_thread(self.fill)
        return await self.handle.send_async(b"%d " % number + BODY, **self.where)

    def let(self) -> None:
        self.fill()
        self.read += self.reader.poll(OUTSTANDING)

    def settled(self, done: list[tuple[int, Any]]) -> None:
        while penstock.wait([self.reader], 0.3):
            self.let()
        mine = [int(body.split(b" ")[0]) for body in self.read if body[:1] != b"\0"]
        assert sorted(mine) == sorted(number for number, _ in done), "a cancelled message was sent, or one was lost"

    def close(self) -> None:
        for end in (self.handle, self.reader):
            end.close()


class Answering(Sending):
    """A reply to a peer that does not read its replies."""

    def __init__(self) -> None:
        super().__init__(_asked)

    def put_filler(self) -> None:
        self.handle.reply(BODY, SETTLES)

    async def wait(self, number: int) -> Any:
        """Whether the peer is there."""
        await asyncio.to_thread(self.fill)
        return await self.handle.reply_async(b"%d " % number + BODY)

    def let(self) -> None:
        self.fill()
        self.read += [message[-1] for message in self.reader.poll(OUTSTANDING)]

    def close(self) -> None:
        self.reader.close()
        self.handle.replier.close()


class _Reply:
    """A request that can be closed, as handles can."""

    def __init__(self, request: Any) -> None:
        self.replier, self.reply, self.reply_async = request.replier, request.reply, request.reply_async
        self.close = request.replier.close


def _publication(channel: str) -> tuple[Any, Any]:
    pub = penstock.publish(channel, max_messages=1, when_full="wait", linger=0)
    sub = penstock.subscribe(channel, max_messages=1)
    pub.wait_for_readers(1, WAIT)
    return pub, sub


def _pushed(channel: str) -> tuple[Any, Any]:
    pull = penstock.join(channel, role="pull", max_messages=1)
    return penstock.join(channel, role="push", max_messages=1, linger=0), pull


def _routed(channel: str) -> tuple[Any, Any]:
    router = penstock.join(channel, role="router", max_messages=1, linger=0)
    dealer = penstock.join(channel, role="dealer", name="d", max_messages=1, linger=0)
    dealer.send(b"here")
    assert router.recv(WAIT).sender == "d"
    return router, dealer


def _asked(channel: str) -> tuple[Any, Any]:
    replier = penstock.join(channel, role="reply", max_messages=1, linger=0)
    dealer = penstock.join(channel, role="dealer", max_messages=1, linger=0)
    dealer.send([b"", b"?"])
    return _Reply(replier.recv(WAIT)), dealer


class Awaiting(Scene):
    """A wait for a reader."""

    local = True

    def __init__(self, first: Callable[[str], Any], second: Callable[[str], Any]) -> None:
        self.channel = name_of("zmq+ipc:")
        self.handle, self.second, self.reader = first(self.channel), second, None

    async def wait(self, number: int) -> None:
        """Until there is one."""
        await self.handle.wait_for_readers_async(1)

    def let(self) -> None:
        if self.reader is None:
            self.reader = self.second(self.channel)

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert self.handle.readers == 1

    def close(self) -> None:
        for end in (self.handle, self.reader):
            if end is not None:
                end.close()


class Borrowing(Receiving):
    """A message read in place."""

    local = True

    async def wait(self, number: int) -> int:
        """The number of the message received."""
        with await self.handle.borrow_async() as view:
            return self._number(bytes(view))


class Submitting(Asking):
    """A request that no server has room for: none is connected."""

    local = True

    def __init__(self) -> None:
        self.handle = penstock.join(name_of("zmq+ipc:"), role="request", bind=True, linger=0)
        self.channel, self.server = self.handle.channel, None

    def _serve(self) -> None:
        self.server = penstock.join(self.channel, role="reply", bind=False)

    async def wait(self, number: int) -> Any:
        """The request."""
        return await self.handle.submit_async(b"%d" % number)

    def settled(self, done: list[tuple[int, Any]]) -> None:
        self.let()
        for number, pending in done:
            while not pending.done:
                self.let()
                try:
                    pending.result(0.01)
                except penstock.TimedOut:
                    break  # it was forgotten: nothing was lost, since it was sent
            else:
                assert pending.result(0) == b"re %d" % number


class Resulting(Asking):
    """A request that was sent, and has no reply yet."""

    local = True

    async def wait(self, number: int) -> Any:
        """The reply."""
        return await self.handle.submit(b"%d" % number).result_async()


class Serving(Scene):
    """A server that serves one request."""

    local = True

    def __init__(self) -> None:
        channel = name_of("zmq+ipc:")
        self.handle = penstock.join(channel, role="reply")
        self.asking = penstock.join(channel, role="request")
        self.sent = self.served = 0

    async def wait(self, number: int) -> None:
        """Until a request was answered."""

        async def answer(body: bytes) -> bytes:
            self.served += 1
            return body

        await self.handle.serve_async(answer, 1)
        if self.handle.closed:
            raise penstock.Closed("the server has ended")

    def let(self) -> None:
        if self.sent - self.served < OUTSTANDING:
            self.asking.submit(b"?", WAIT)
            self.sent += 1

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert self.served == len(done)

    def close(self) -> None:
        for end in (self.handle, self.asking):
            end.close()


def made(subscribed: Receives) -> dict[str, tuple[set[tuple[type, str]], Callable[[], Scene]]]:
    """By name: what is covered, and how it is opened. subscribed: how a subscription is received from."""
    from penstock.kinds.zmq import requests as zmq_requests
    from penstock.kinds.zmq.peers import ZmqRouter, ZmqSender
    from penstock.kinds.zmq.publication import ZmqPublication
    from penstock.kinds.zmq.subscription import ZmqSubscription

    join = lambda role, **more: lambda channel: penstock.join(channel, role=role, linger=0, **more)  # noqa: E731
    return {
        "zmq send_async": ({(ZmqPublication, "send_async")}, lambda: Sending(_publication)),
        "zmq push send_async": ({(ZmqSender, "send_async")}, lambda: Sending(_pushed)),
        "zmq router send_async": ({(ZmqRouter, "send_async")}, lambda: Sending(_routed, to="d")),
        "zmq reply_async": ({(zmq_requests.ZmqRequest, "reply_async")}, Answering),
        "zmq wait_for_readers_async": (
            {(ZmqPublication, "wait_for_readers_async")},
            lambda: Awaiting(penstock.publish, penstock.subscribe),
        ),
        "zmq push wait_for_readers_async": (
            {(ZmqSender, "wait_for_readers_async")},
            lambda: Awaiting(join("push"), join("pull")),
        ),
        "zmq borrow_async": (
            {(ZmqSubscription, "borrow_async")},
            lambda: Borrowing(subscribed, "borrow_async", name_of("zmq+ipc:")),
        ),
        "zmq submit_async": ({(zmq_requests.ZmqRequester, "submit_async")}, Submitting),
        "zmq result_async": ({(zmq_requests.ZmqPending, "result_async")}, lambda: Resulting(name_of("zmq+ipc:"), True)),
        "zmq serve_async": ({(zmq_requests.ZmqReplier, "serve_async")}, Serving),
    }


def never_wait() -> set[tuple[type, str]]:
    """Coroutine methods that never wait: `claim_async` has its memory at once or is refused, and others refuse `borrow_async`."""
    from penstock.kinds.pipe import sockets
    from penstock.kinds.udp.history.subscription import HistorySubscription
    from penstock.kinds.zmq.peers import ZmqRouter, ZmqSender
    from penstock.kinds.zmq.publication import ZmqPublication
    from penstock.kinds.zmq.requests import ZmqReplier

    claims = (ZmqPublication, ZmqSender, ZmqRouter, sockets.PipeRouter)
    return {
        *((cls, "claim_async") for cls in claims),
        (ZmqReplier, "borrow_async"),
        (HistorySubscription, "borrow_async"),
    }
