"""The role that answers requests: `PipeReplier`, and the requests it gets."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._native import core as _native
from penstock.channels.interfaces import roles
from penstock.channels.interfaces.patterns import (
    Body,
    awaitable_of,
    check_serve,
    decoded,
    failed,
    refusal,
    wrong_result,
)
from penstock.codecs import buffers, multipart
from penstock.errors import (
    Closed,
    Disconnected,
    PenstockError,
    TooLarge,
    Unsupported,
    text_of,
)
from penstock.kinds.pipe.socket_base import Found, ReceivingSocket

if TYPE_CHECKING:
    from penstock.channels.interfaces.roles import Replier as _Replier
else:  # a compiled class can have no abstract base: the roles are registered below
    _Replier = object


class PipeRequest(NamedTuple):
    """A request received. `reply` answers it."""

    body: Any
    sender: str
    replier: PipeReplier
    peer: int
    number: int

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Sends the reply. Returns False if the requester has left. `TimedOut` if it does not read its replies."""
        return self.replier._reply(self.peer, self.number, body, timeout)

    async def reply_async(self, body: Body, timeout: float | None = None) -> bool:
        """Sends the reply as `reply` does, and waits in the running event loop. A cancelled task has sent nothing."""
        try:
            await self.replier._send_async(self.peer, self.number, body, timeout)
        except Disconnected:
            return False
        return True


class PipeReplier(ReceivingSocket[PipeRequest], _Replier):
    """A server: takes requests from all requesters in turn, and answers them in any order."""

    def serve(self, answer: Callable[[Any], Body], count: int | None = None) -> None:
        """Answers each request with `answer(body)`, until the handle closes, or `count` requests are answered.

        If `answer` raises, or returns a value that cannot be sent, the requester gets a `ServerError`, and `serve` raises the error: `TypeError` or
        `Invalid`, which names `answer`, for anything that is not a message, `TooLarge` for a message that is too large. `serve` can be called again.
        """
        count = check_serve(self, "serve", answer, count)
        found: Found | None = None
        reply: Any
        pack, unpack, answer_and_take = self._pack, self._unpack, _native.pipe_answer
        pub, sub, plain, self._last_sender = self._pub, self._sub, self._plain, b""
        try:
            while count is None or count > 0:
                peer, number, kind, data, _ = found or self._expect(None)
                found = None
                try:
                    body = answer(data if plain and not kind else unpack(data, kind))
                except BaseException as error:
                    self._refuse_to_answer(peer, number, failed(answer, error), error)
                    raise
                try:
                    if plain and type(body) is bytes:
                        reply, parts = body, 0
                    else:
                        reply, parts = pack(body)
                        if type(reply) is not bytes:
                            reply = buffers.buffer_of(self.channel, reply)
                except BaseException as error:
                    raise self._refuse_result(peer, number, "serve", answer, body, error) from None
                count = None if count is None else count - 1
                try:
                    if count == 0:
                        self._reply_packed(peer, number, reply, parts)
                    else:  # one call sends, and waits for the next request
                        found = answer_and_take(pub, sub, peer, number, parts, reply)
                except TooLarge as error:  # the reply
                    raise self._refuse_result(peer, number, "serve", answer, body, error) from None
        except Closed:
            if not self.closed:
                raise

    async def serve_async(self, answer: Callable[[Any], Awaitable[Body]], count: int | None = None) -> None:
        """Answers each request with the result of the coroutine `answer(body)`, in the running event loop, as `serve` does."""
        left = check_serve(self, "serve_async", answer, count)
        while left is None or left > 0:
            try:
                request = await self.recv_async()
            except Closed:
                return
            try:
                body = await awaitable_of(self.channel, answer, answer(request.body))
            except BaseException as error:
                await self._refuse_async(request, failed(answer, error), error)
                raise
            try:
                await request.reply_async(body)
            except BaseException as error:
                wrong = wrong_result(self.channel, "serve_async", answer, body, self.codec, error)
                await self._refuse_async(request, text_of(wrong), error)
                raise wrong from None
            left = None if left is None else left - 1

    def _refuse(self, what: str) -> None:
        raise Unsupported(
            f"{self.channel}: a request must be answered, and {what} would lose its requester: use recv or poll"
        )

    def _reply_packed(self, peer: int, number: int, reply: Any, parts: int) -> None:
        with contextlib.suppress(Disconnected):
            _native.pipe_send(self._pub, peer, number, parts, reply, None)

    def _refuse_result(
        self, peer: int, number: int, method: str, answer: Any, body: Any, error: BaseException
    ) -> BaseException:
        """Tells the requester that the result of `answer` cannot be sent. Returns the error for the server's program."""
        wrong = wrong_result(self.channel, method, answer, body, self.codec, error)
        self._refuse_to_answer(peer, number, text_of(wrong), error)
        return wrong

    def _refuse_to_answer(self, peer: int, number: int, why: str, error: BaseException | None = None) -> None:
        """Tells the requester that there will be no answer, so that it does not wait for one. Raises none of the library's errors.

        It waits for room as a reply does, except where `error` ends the program, as an interrupt does, and for no `error`: then it does
        not wait.
        """
        patience = None if isinstance(error, Exception) else 0
        with contextlib.suppress(PenstockError):
            _native.pipe_send(
                self._pub, peer, number, multipart.PARTS | multipart.REFUSED, self._refusal(why), patience
            )

    async def _refuse_async(self, request: PipeRequest, why: str, error: BaseException) -> None:
        """The same in the running event loop. A task that is cancelled does not wait."""
        if not isinstance(error, Exception):
            self._refuse_to_answer(request.peer, request.number, why)
            return
        with contextlib.suppress(PenstockError):
            data, kind = self._refusal(why), multipart.PARTS | multipart.REFUSED
            send = lambda: _native.pipe_send(self._pub, request.peer, request.number, kind, data, 0)  # noqa: E731
            await self._room(send, None)

    def _refusal(self, why: str) -> bytes:
        text = refusal(self.channel, why)
        return multipart.join_parts([text[: max(self._pub.max_payload - len(multipart.join_parts([b""])), 0)]])

    def _reply(self, peer: int, number: int, body: Body, timeout: float | None) -> bool:
        try:
            self._send(peer, number, body, timeout)
        except Disconnected:
            return False
        return True

    def _convert(self, raw: Found) -> PipeRequest:
        peer, number, kind, data, name = raw
        try:
            body = self._unpack(data, kind)
        except Exception as error:  # it was taken, so it is answered
            self._refuse_to_answer(peer, number, text_of(error))
            raise
        return PipeRequest(body, decoded(name), self, peer, number)


roles.Replier.register(PipeReplier)
