"""Requests and replies over ZeroMQ, with REQ, REP, DEALER and ROUTER peers.

A request travels with a number in front of ZeroMQ's empty delimiter. REP and ROUTER peers carry the number back. REQ peers are
answered as they expect. A `reply` peer without an answer reports that under a changed number, which no other peer sends.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import struct
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock.channels.checks import deadline_of, limit_of
from penstock.channels.interfaces import roles
from penstock.channels.interfaces.patterns import (
    Body,
    awaitable_of,
    check_retries,
    check_serve,
    failed,
    refusal,
    wrong_result,
)
from penstock.channels.waiting import loops
from penstock.channels.waiting.long_waits import LongWait, untold
from penstock.errors import (
    Closed,
    DecodeError,
    Disconnected,
    PenstockError,
    ServerError,
    TimedOut,
    Unsupported,
    text_of,
)
from penstock.kinds.zmq.peers import ZmqSocket
from penstock.kinds.zmq.receiving import Taken, ZmqReceiving, ZmqTaking
from penstock.util.strict import Strict

if TYPE_CHECKING:
    import zmq

    from penstock.channels.interfaces.roles import Replier as _Replier
    from penstock.channels.interfaces.roles import Requester as _Requester
else:  # a compiled class can have no abstract base: the roles are registered below
    _Replier = _Requester = object

SLICE = 0.02
ASKED, REFUSED = b"pstk", b"pst!"  # in front of the number of a request and its reply, and of a refusal
TURN_MAX = 256  # replies taken before other tasks of the event loop get their turn
logger = logging.getLogger("penstock")


class ZmqPending(Strict):
    """A request on its way. Made by `ZmqRequester.submit`."""

    number: int
    done: bool

    def __init__(self, requester: ZmqRequester, number: int) -> None:
        self._requester, self.number = requester, number
        self._reply: list[bytes] = []
        self._refused = False  # whether the reply is an error
        self._wake: Callable[[], None] | None = None  # the task that awaits it
        self.done = False

    def _answer(self, frames: list[bytes], refused: bool) -> None:
        self._reply, self._refused, self.done = frames, refused, True
        if self._wake is not None:
            self._wake()

    def result(self, timeout: float | None = None) -> Any:
        """The reply, decoded. `TimedOut` after `timeout` seconds."""
        self._requester._wait(self, timeout)
        return self._requester._reply_of(self)

    async def result_async(self, timeout: float | None = None) -> Any:
        """`result` in the running event loop. Cancelling it leaves the request under way."""
        await self._requester._await(self, timeout)
        return self._requester._reply_of(self)

    def cancel(self) -> None:
        """Forgets the request. A reply that arrives later is counted in `late`."""
        self._requester._forget(self)


class ZmqRequester(ZmqSocket, ZmqTaking, _Requester):
    """Sends requests to REP, ROUTER or `reply` peers in turn. Many requests may be open.

    ZeroMQ does not report that a server died: give a timeout.
    """

    late: int  # replies to abandoned requests

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._number = itertools.count(1)
        self._pending: dict[int, ZmqPending] = {}
        self._pumps = loops.Pumps()
        self.late = 0
        super().__init__(*arguments, **options)

    def _inherit(self) -> None:
        super()._inherit()
        self._pending.clear()  # the parent's requests
        self._pumps.clear()

    def request(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and waits for its reply. `TimedOut` after `timeout` seconds, for each of `retries` more attempts."""
        retries = check_retries(self, "request", retries)
        for _ in range(retries):
            try:
                return self.submit(body, timeout).result(timeout)
            except TimeoutError:
                continue
        return self.submit(body, timeout).result(timeout)

    async def request_async(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """`request` in the running event loop. Cancelling it forgets the request."""
        retries = check_retries(self, "request_async", retries)
        limit = limit_of(timeout, self)
        while True:
            pending, frames = self._create_request(body)
            try:
                await loops.patiently(self._sent_and_answered(pending, frames), limit, self._no_reply, self._tell_reply)
                return self._reply_of(pending)
            except TimedOut:
                if retries <= 0:
                    raise
                retries -= 1
            finally:
                self._forget(pending)

    def submit(self, body: Body, timeout: float | None = None) -> ZmqPending:
        """Sends a request and does not wait for its reply. Waits up to `timeout` seconds for a server with room."""
        pending, frames = self._create_request(body)
        try:
            self._send_blocking(frames, timeout)
        except BaseException:
            self._forget(pending)
            raise
        return pending

    async def submit_async(self, body: Body, timeout: float | None = None) -> ZmqPending:
        """`submit` in the running event loop. Cancelled, it has sent nothing, or a request whose reply will be ignored."""
        pending, frames = self._create_request(body)
        try:
            await self._send_blocking_async(frames, timeout)
        except BaseException:
            self._forget(pending)
            raise
        return pending

    def _take_reply(self) -> list[bytes] | None:
        taken = self._take()
        return None if taken is None else taken[0]

    async def _sent_and_answered(self, pending: ZmqPending, frames: list[Any]) -> None:
        await self._send_blocking_async(frames, None)
        await self._pumps.answered(pending, self.fileno, self._run_turn)

    async def _await(self, pending: ZmqPending, timeout: float | None) -> None:
        limit = limit_of(timeout, self)
        if not pending.done:
            try:
                await loops.patiently(
                    self._pumps.answered(pending, self.fileno, self._run_turn), limit, self._no_reply, self._tell_reply
                )
            except TimedOut:
                self._forget(pending)
                raise

    def _tell_reply(self, seconds: float) -> None:
        self._tell_wait("a reply", seconds)

    def _no_reply(self) -> str:
        return f"{self.channel}: no reply within the timeout{self._explain_wait()}"

    def _run_turn(self) -> None:
        """One turn of an event loop: takes the available messages. Never blocks."""
        for _ in range(TURN_MAX):
            frames = self._take_reply()
            if frames is None:
                return
            self._note(frames)

    def _create_request(self, body: Body) -> tuple[ZmqPending, list[Any]]:
        encoded = self._body(body)
        with self._lock:
            self._open()  # a forked child forgets its parent's requests before it has any
            pending = ZmqPending(self, next(self._number))
            self._pending[pending.number] = pending
        return pending, [ASKED + struct.pack("<Q", pending.number), b"", *encoded]

    def _reply_of(self, pending: ZmqPending) -> Any:
        if pending._refused:
            raise ServerError(b" ".join(pending._reply).decode("utf-8", "replace"))
        return self._decode_message(pending._reply, self._read)

    def _forget(self, pending: ZmqPending) -> None:
        self._pending.pop(pending.number, None)

    def _wait(self, pending: ZmqPending, timeout: float | None) -> None:
        deadline, long = deadline_of(timeout, self), LongWait(self._tell_reply)
        while not pending.done:
            long.look()
            left = SLICE if deadline is None else min(deadline - time.monotonic(), SLICE)
            frames = self._until(self._take_reply, self._zmq.POLLIN, max(left, 0), untold)
            if frames is not None:
                self._note(frames)
            elif left <= 0 and not pending.done:
                self._forget(pending)
                raise TimedOut(self._no_reply())

    def _note(self, frames: list[bytes]) -> None:
        ours = len(frames) > 2 and len(frames[0]) == 12 and not frames[1] and frames[0][:4] in (ASKED, REFUSED)
        pending = self._pending.pop(struct.unpack("<Q", frames[0][4:])[0], None) if ours else None
        if pending is None:
            self.late += 1
        else:
            pending._answer(frames[2:], frames[0][:4] == REFUSED)


class ZmqRequest(NamedTuple):
    """A request received. `reply` answers it. sender: the name of the requester."""

    body: Any
    sender: str
    replier: ZmqReplier
    envelope: list[bytes]

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Answers the request. Returns False if the requester has disconnected. `TimedOut` if it had no room for `timeout` seconds."""
        try:
            self.replier._send_blocking(self._frames(body), timeout)
        except Disconnected:
            return False
        return True

    async def reply_async(self, body: Body, timeout: float | None = None) -> bool:
        """`reply` in the running event loop."""
        try:
            await self.replier._send_blocking_async(self._frames(body), timeout)
        except Disconnected:
            return False
        return True

    def _frames(self, body: Body) -> list[Any]:
        return [*self.envelope, b"", *self.replier._body(body)]


class ZmqReplier(ZmqSocket, ZmqReceiving, _Replier):
    """A server for REQ, DEALER or `request` peers. It takes requests, and answers them in any order."""

    _front: Literal["", "topic", "sender"] = "sender"

    def _parts(self, socket: zmq.Socket[bytes]) -> list[bytes]:
        """The next request. One without ZeroMQ's empty part in front of its body is dropped and counted, as REP does."""
        while True:
            parts = super()._parts(socket)
            if b"" in parts[1:-1]:
                return parts
            self._malformed += 1

    def serve(self, answer: Callable[[Any], Body], count: int | None = None) -> None:
        """Answers requests with `answer(body)`, until the handle closes or `count` are answered.

        A request that does not fit the codec is skipped and logged: any ZeroMQ peer may have sent it. If `answer` raises, or returns
        what is no message, `serve` raises the error: `TypeError` or `Invalid`, which names `answer`, for a wrong result. The peer gets a
        `ServerError` if it is a requester of this library. Other requesters wait for their timeout, as ZeroMQ cannot notify them.
        """
        left = check_serve(self, "serve", answer, count)
        while left is None or left > 0:
            try:
                request = self.recv()
            except Closed:
                return
            except DecodeError as error:
                logger.warning("%s", error)
                continue
            try:
                body = answer(request.body)
            except BaseException as error:
                self._refuse_to_answer(request.envelope, failed(answer, error), error)
                raise
            try:
                request.reply(body)
            except BaseException as error:
                wrong = wrong_result(self.channel, "serve", answer, body, self.codec, error)
                self._refuse_to_answer(request.envelope, text_of(wrong), error)
                raise wrong from None
            left = None if left is None else left - 1

    async def serve_async(self, answer: Callable[[Any], Awaitable[Body]], count: int | None = None) -> None:
        """Answers requests with the result of the coroutine `answer(body)`, in the running event loop, as `serve` does."""
        left = check_serve(self, "serve_async", answer, count)
        while left is None or left > 0:
            try:
                request = await self.recv_async()
            except Closed:
                return
            except DecodeError as error:
                logger.warning("%s", error)
                continue
            try:
                body = await awaitable_of(self.channel, answer, answer(request.body))
            except BaseException as error:
                await self._refuse_async(request.envelope, failed(answer, error), error)
                raise
            try:
                await request.reply_async(body)
            except BaseException as error:
                wrong = wrong_result(self.channel, "serve_async", answer, body, self.codec, error)
                await self._refuse_async(request.envelope, text_of(wrong), error)
                raise wrong from None
            left = None if left is None else left - 1

    def _refuse_to_answer(self, envelope: list[bytes], why: str, error: BaseException | None = None) -> None:
        """Tells a requester of this library that there will be no answer. Raises none of the library's errors.

        It waits for room as a reply does, except where `error` ends the program, as an interrupt does, and for no `error`.
        """
        if envelope[-1].startswith(ASKED):
            with contextlib.suppress(PenstockError):
                self._send_blocking(self._refusal(envelope, why), None if isinstance(error, Exception) else 0)

    async def _refuse_async(self, envelope: list[bytes], why: str, error: BaseException) -> None:
        """The same in the running event loop. A task that is cancelled does not wait."""
        if not isinstance(error, Exception):
            self._refuse_to_answer(envelope, why)
        elif envelope[-1].startswith(ASKED):
            with contextlib.suppress(PenstockError):
                await self._send_blocking_async(self._refusal(envelope, why), None)

    def _refusal(self, envelope: list[bytes], why: str) -> list[Any]:
        return [*envelope[:-1], REFUSED + envelope[-1][len(ASKED) :], b"", refusal(self.channel, why)]

    def _refuse(self, what: str) -> None:
        raise Unsupported(
            f"{self.channel}: a request must be answered, and {what} would lose its sender: use recv or poll"
        )

    def _convert(self, taken: Taken) -> ZmqRequest:
        parts, received = taken
        end = parts.index(b"", 1)
        envelope = parts[:end]
        try:
            body = self._decode_message(parts[end + 1 :], received[0])
        except Exception as error:  # it was taken, so it is answered
            self._refuse_to_answer(envelope, text_of(error))
            raise
        return ZmqRequest(body, received[3], self, envelope)


roles.Requester.register(ZmqRequester)
roles.Replier.register(ZmqReplier)
