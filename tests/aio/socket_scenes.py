"""The waiting calls of a pipe channel's sockets as scenes: sending, claiming, asking, answering, waiting for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock
from penstock.kinds.pipe import replies, requests, socket_base, sockets

WAIT = 15.0
SMALL = {"capacity": 1 << 16, "max_pipes": 8}
FULL = {"max_messages": 2, **SMALL}


class Filled:
    """A call that sends into a pipe that is full, because its reader does not read."""

    after_kill = "waits"

    def __init__(self, channel: str, role: str, reader: str, call: Callable[[Any, int], Any]) -> None:
        self.handle = penstock.join(channel, role=role, **FULL)
        self.reader: Any = penstock.join(channel, role=reader, name="r")
        self.call, self.got = call, []  # type: ignore[var-annotated]
        to = {"to": "r"} if role == "router" else {}
        for _ in range(2):
            self.handle.submit(b"filler") if role == "request" else self.handle.send(b"filler", **to)

    async def wait(self, number: int) -> int:
        await self.call(self.handle, number)
        return number

    def let(self) -> None:
        while (message := self.reader.try_recv()) is not None:
            self.got.append(message.body if isinstance(message, replies.PipeRequest) else message)

    def settled(self, done: list[tuple[int, Any]]) -> None:
        self.let()
        arrived = sorted(int(body) for body in self.got if body != b"filler")
        assert arrived == sorted(number for number, _ in done), "a cancelled call sent, or a message was lost"

    def close(self) -> None:
        self.handle.close()
        self.reader.close()


class Awaited:
    """A call that waits until somebody is there."""

    after_kill = "waits"

    def __init__(self, channel: str) -> None:
        self.channel, self.handle, self.other = channel, penstock.join(channel, role="pair", **SMALL), None

    async def wait(self, number: int) -> int:
        await self.handle.wait_for_readers_async(1)
        return number

    def let(self) -> None:
        if self.other is None:
            self.other = penstock.join(self.channel, role="pair")  # type: ignore[assignment]

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert all(number == result for number, result in done)

    def close(self) -> None:
        self.handle.close()
        if self.other is not None:
            self.other.close()


class Asked:
    """A reply that is awaited by itself, after its request was sent. `let` answers."""

    after_kill = "waits"

    def __init__(self, channel: str) -> None:
        self.handle = penstock.join(channel, role="request", **SMALL)
        self.server = penstock.join(channel, role="reply")

    async def wait(self, number: int) -> Any:
        return await self.handle.submit(b"%d" % number, WAIT).result_async()

    def let(self) -> None:
        for request in self.server.poll():
            request.reply(b"re " + request.body)

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert all(result == b"re %d" % number for number, result in done), "a reply went to another request"

    def close(self) -> None:
        self.handle.close()
        self.server.close()


class Answered:
    """A reply that waits for room, because its requester does not read. `let` reads."""

    after_kill = "waits"

    def __init__(self, channel: str) -> None:
        self.handle = penstock.join(channel, role="reply", **FULL)
        self.asks = penstock.join(channel, role="request")
        self.pending: dict[int, Any] = {}
        for _ in range(2):
            self.asks.submit(b"filler", WAIT)
            assert self.handle.recv(WAIT).reply(b"filler", WAIT)

    async def wait(self, number: int) -> int:
        _ = self.handle.position  # `Closed` if it is
        self.pending[number] = self.asks.submit(b"%d" % number, WAIT)
        request = self.handle.recv(WAIT)
        assert request.body == b"%d" % number
        assert await request.reply_async(b"re %d" % number)
        return number

    def let(self) -> None:
        self.asks._run_turn()

    def settled(self, done: list[tuple[int, Any]]) -> None:
        self.let()
        replied = {number for number, pending in self.pending.items() if pending.done}
        assert replied == {number for number, _ in done}, "a cancelled reply was sent, or one was lost"
        assert all(self.pending[number].result(0) == b"re %d" % number for number in replied)

    def close(self) -> None:
        self.handle.close()
        self.asks.close()


class Served:
    """A server that answers one request in the event loop. `let` sends one."""

    after_kill = "waits"

    def __init__(self, channel: str) -> None:
        self.handle = penstock.join(channel, role="reply", **SMALL)
        self.asks = penstock.join(channel, role="request")

    async def wait(self, number: int) -> int:
        async def answer(body: bytes) -> bytes:
            return b"re " + body

        await self.handle.serve_async(answer, 1)
        if self.handle.closed:
            raise penstock.Closed("serving has ended")
        return number

    def let(self) -> None:
        self.asks.submit(b"x", WAIT)

    def settled(self, done: list[tuple[int, Any]]) -> None:
        assert all(number == result for number, result in done)

    def close(self) -> None:
        self.handle.close()
        self.asks.close()


async def _claimed(handle: Any, number: int) -> None:
    with await handle.claim_async(6) as view:
        view[:] = b"%06d" % number


def made(name_of: Callable[[str], str]) -> dict[str, tuple[set[tuple[type, str]], Callable[[], Any]]]:
    """By name: the calls that a scene covers, and what opens it. name_of: makes a channel that nobody has used."""
    send = lambda handle, number: handle.send_async(b"%d" % number)  # noqa: E731
    route = lambda handle, number: handle.send_async(b"%d" % number, to="r")  # noqa: E731
    submit = lambda handle, number: handle.submit_async(b"%d" % number)  # noqa: E731
    new = lambda: name_of("pipe:a")  # noqa: E731
    talkers = (sockets.PipeTalker, sockets.PipePair, sockets.PipeDealer)
    every = (*talkers, sockets.PipeRouter, socket_base.Socket, requests.PipeRequester, replies.PipeReplier)
    return {
        "socket send_async": ({(cls, "send_async") for cls in talkers}, lambda: Filled(new(), "pair", "pair", send)),
        "socket claim_async": (
            {(cls, "claim_async") for cls in talkers},
            lambda: Filled(new(), "pair", "pair", _claimed),
        ),
        "socket router send_async": (
            {(sockets.PipeRouter, "send_async")},
            lambda: Filled(new(), "router", "dealer", route),
        ),
        "socket submit_async": (
            {(requests.PipeRequester, "submit_async")},
            lambda: Filled(new(), "request", "reply", submit),
        ),
        "socket result_async": ({(requests.PipePending, "result_async")}, lambda: Asked(new())),
        "socket reply_async": ({(replies.PipeRequest, "reply_async")}, lambda: Answered(new())),
        "socket serve_async": ({(replies.PipeReplier, "serve_async")}, lambda: Served(new())),
        "socket wait_for_readers_async": ({(cls, "wait_for_readers_async") for cls in every}, lambda: Awaited(new())),
    }
