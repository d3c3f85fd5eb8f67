"""Requests and replies over ZeroMQ, with REQ, REP, DEALER and ROUTER peers.

A request travels with a number in front of ZeroMQ's empty delimiter. REP and ROUTER peers carry the number back. REQ peers are
answered as they expect.
"""

from __future__ import annotations

import itertools
import logging
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from penstock import loops
from penstock.errors import Closed, DecodeError, Disconnected, TimedOut, Unsupported
from penstock.net.zmq_peers import ZmqSocket
from penstock.net.zmq_receiving import Taken, ZmqReceiving, ZmqTaking
from penstock.options import deadline_of, limit_of
from penstock.patterns import Body

SLICE = 0.02
TURN_MAX = 256  # replies taken before other tasks of the event loop get their turn
logger = logging.getLogger("penstock")


class ZmqPending:
    """A request on its way. Made by `ZmqRequester.submit`."""

    def __init__(self, requester: ZmqRequester, number: int) -> None:
        self._requester, self.number = requester, number
        self._reply: list[bytes] = []
        self._wake: Callable[[], None] | None = None  # the task that awaits it
        self.done = False

    def _answer(self, frames: list[bytes]) -> None:
        self._reply, self.done = frames, True
        if self._wake is not None:
            self._wake()

    def result(self, timeout: float | None = None) -> Any:
        """The reply, decoded. `TimedOut` after `timeout` seconds."""
        self._requester._wait(self, timeout)
        return self._requester._reply_of(self)

    async def aresult(self, timeout: float | None = None) -> Any:
        """`result` in the running event loop. Cancelling it leaves the request under way."""
        await self._requester._await(self, timeout)
        return self._requester._reply_of(self)

    def cancel(self) -> None:
        """Forgets the request. A reply that still comes is counted in `late`."""
        self._requester._forget(self)


class ZmqRequester(ZmqSocket, ZmqTaking):
    """Asks REP, ROUTER or `reply` peers in turn. Many requests may be under way.

    ZeroMQ does not say that a server died: give a timeout.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._number = itertools.count(1)
        self._pending: dict[int, ZmqPending] = {}
        self._pumps = loops.Pumps()
        self.late = 0  # replies whose request was given up
        super().__init__(*arguments, **options)

    def _inherit(self) -> None:
        super()._inherit()
        self._pending.clear()  # the parent's requests
        self._pumps.clear()

    def request(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and waits for its reply. `TimedOut` after `timeout` seconds, for each of `retries` more attempts."""
        for _ in range(retries):
            try:
                return self.submit(body, timeout).result(timeout)
            except TimeoutError:
                continue
        return self.submit(body, timeout).result(timeout)

    async def arequest(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """`request` in the running event loop. Cancelling it forgets the request."""
        limit = limit_of(timeout, self)
        while True:
            pending, frames = self._asked(body)
            try:
                message = f"{self.channel}: no reply within the timeout{self._why()}"
                await loops.patiently(self._sent_and_answered(pending, frames), limit, message)
                return self._reply_of(pending)
            except TimedOut:
                if retries <= 0:
                    raise
                retries -= 1
            finally:
                self._forget(pending)

    def submit(self, body: Body, timeout: float | None = None) -> ZmqPending:
        """Sends a request and does not wait for its reply. Waits up to `timeout` seconds for a server with room."""
        pending, frames = self._asked(body)
        try:
            self._patiently(frames, timeout)
        except BaseException:
            self._forget(pending)
            raise
        return pending

    async def asubmit(self, body: Body, timeout: float | None = None) -> ZmqPending:
        """`submit` in the running event loop. Cancelled, it has sent nothing, or a request whose reply will be ignored."""
        pending, frames = self._asked(body)
        try:
            await self._apatiently(frames, timeout)
        except BaseException:
            self._forget(pending)
            raise
        return pending

    def _take_reply(self) -> list[bytes] | None:
        taken = self._take()
        return None if taken is None else taken[0]

    async def _sent_and_answered(self, pending: ZmqPending, frames: list[Any]) -> None:
        await self._apatiently(frames, None)
        await self._pumps.answered(pending, self.fileno, self._turned)

    async def _await(self, pending: ZmqPending, timeout: float | None) -> None:
        limit = limit_of(timeout, self)
        if not pending.done:
            message = f"{self.channel}: no reply within the timeout{self._why()}"
            try:
                await loops.patiently(self._pumps.answered(pending, self.fileno, self._turned), limit, message)
            except TimedOut:
                self._forget(pending)
                raise

    def _turned(self) -> None:
        """One turn of an event loop: takes the messages that are there. Never blocks."""
        for _ in range(TURN_MAX):
            frames = self._take_reply()
            if frames is None:
                return
            self._note(frames)

    def _asked(self, body: Body) -> tuple[ZmqPending, list[Any]]:
        encoded = self._body(body)
        with self._lock:
            self._open()  # a forked child forgets its parent's requests before it has any
            pending = ZmqPending(self, next(self._number))
            self._pending[pending.number] = pending
        return pending, [struct.pack("<Q", pending.number), b"", *encoded]

    def _reply_of(self, pending: ZmqPending) -> Any:
        return self._decoded(pending._reply, self._read)

    def _forget(self, pending: ZmqPending) -> None:
        self._pending.pop(pending.number, None)

    def _wait(self, pending: ZmqPending, timeout: float | None) -> None:
        deadline = deadline_of(timeout, self)
        while not pending.done:
            left = SLICE if deadline is None else min(deadline - time.monotonic(), SLICE)
            frames = self._until(self._take_reply, self._zmq.POLLIN, max(left, 0))
            if frames is not None:
                self._note(frames)
            elif left <= 0 and not pending.done:
                self._forget(pending)
                raise TimedOut(f"{self.channel}: no reply within the timeout{self._why()}")

    def _note(self, frames: list[bytes]) -> None:
        number = struct.unpack("<Q", frames[0])[0] if len(frames) > 2 and len(frames[0]) == 8 and not frames[1] else 0
        pending = self._pending.pop(number, None)
        if pending is None:
            self.late += 1
        else:
            pending._answer(frames[2:])


class ZmqRequest(NamedTuple):
    """A request received. `reply` answers it. sender: the name of the peer that asked."""

    body: Any
    sender: str
    replier: ZmqReplier
    envelope: list[bytes]

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Answers the request. Returns False if the peer that asked is gone. `TimedOut` if it had no room for `timeout` seconds."""
        try:
            self.replier._patiently(self._frames(body), timeout)
        except Disconnected:
            return False
        return True

    async def areply(self, body: Body, timeout: float | None = None) -> bool:
        """`reply` in the running event loop."""
        try:
            await self.replier._apatiently(self._frames(body), timeout)
        except Disconnected:
            return False
        return True

    def _frames(self, body: Body) -> list[Any]:
        return [*self.envelope, b"", *self.replier._body(body)]


class ZmqReplier(ZmqSocket, ZmqReceiving):
    """A server for REQ, DEALER or `request` peers. It takes requests, and answers them in any order."""

    _front: Literal["", "topic", "sender"] = "sender"

    def serve(self, answer: Callable[[Any], Body], count: int | None = None) -> None:
        """Answers requests with `answer(body)`, until the handle closes or `count` are answered.

        A request that does not fit the codec is skipped and logged: any ZeroMQ peer may have sent it.
        """
        left = count
        while left is None or left > 0:
            try:
                request = self.recv()
            except Closed:
                return
            except DecodeError as error:
                logger.warning("%s", error)
                continue
            request.reply(answer(request.body))
            left = None if left is None else left - 1

    async def aserve(self, answer: Callable[[Any], Awaitable[Body]], count: int | None = None) -> None:
        """Answers requests with the result of the coroutine `answer(body)`, in the running event loop, as `serve` does."""
        left = count
        while left is None or left > 0:
            try:
                request = await self.arecv()
            except Closed:
                return
            except DecodeError as error:
                logger.warning("%s", error)
                continue
            await request.areply(await answer(request.body))
            left = None if left is None else left - 1

    def _refuse(self, what: str) -> None:
        raise Unsupported(
            f"{self.channel}: a request must be answered, and {what} would lose its sender: use recv or poll"
        )

    def _made(self, taken: Taken) -> ZmqRequest:
        parts, received = taken
        end = parts.index(b"", 1) if b"" in parts[1:] else 0
        body = self._decoded(parts[end + 1 :], received[0])
        return ZmqRequest(body, received[3], self, parts[: end or 1])
