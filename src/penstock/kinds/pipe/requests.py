"""PipeRequest and reply over a pipe channel: requests carry a number, which their replies carry back."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import codecs
from penstock._native import core as _native
from penstock.channels import loops, roles
from penstock.channels.checks import deadline_of, limit_of
from penstock.channels.patterns import Body, awaitable_of, decoded, failed, refusal, wrong_result
from penstock.errors import (
    Closed,
    DecodeError,
    Disconnected,
    Invalid,
    PenstockError,
    ServerError,
    TimedOut,
    TooLarge,
    Unsupported,
    text_of,
)
from penstock.kinds.pipe.request_table import NO_SERVER, NOT_SENT, Entry, Reply, RequestTable
from penstock.kinds.pipe.socket_base import Found, ReceivingSocket, Socket
from penstock.util.strict import Strict

SLICE = 0.02  # seconds between two looks for dead servers
TURN_MAX = 256  # replies taken before others in the event loop get their turn

_forks = 0  # how often this process is a child of one that loaded this module: a look at it costs less than the process' number


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


if TYPE_CHECKING:
    from penstock.channels.roles import Replier as _Replier
    from penstock.channels.roles import Requester as _Requester
else:  # a compiled class can have no abstract base: the roles are registered below
    _Replier = _Requester = object


class PipePending(Strict):
    """A request on its way. Made by `PipeRequester.submit`. Thread-safe."""

    done: bool

    def __init__(self, requester: PipeRequester, body: Body, retries: int) -> None:
        self._requester, self._body, self._retries = requester, body, retries
        self._reply: Any = None
        self._error: Exception | None = None
        self._wake: Callable[[], None] | None = None  # the task that awaits it
        self._patient = False  # whether the wait for it has a deadline, so that it may wait for the next server
        self.done = False

    def _answer(self, reply: Reply) -> None:
        try:
            self._finish(self._requester._unpack(reply.data, reply.kind))
        except (DecodeError, Invalid, ServerError) as error:
            self._finish(None, error)

    def _finish(self, reply: Any, error: Exception | None = None) -> None:
        self._reply, self._error, self.done = reply, error, True
        if self._wake is not None:
            self._wake()

    def result(self, timeout: float | None = None) -> Any:
        """The reply. Waits for it. `TimedOut` after `timeout` seconds. `Disconnected` if the server died and no retry is left.

        With a retry left and no server to ask, it waits for the next server until the timeout; without a timeout it is `Disconnected`.
        """
        self._patient = timeout is not None
        self._requester._wait(self, timeout)
        return self._ended()

    async def result_async(self, timeout: float | None = None) -> Any:
        """The reply as `result` gives it, awaited in the running event loop. Cancelling it leaves the request under way."""
        requester = self._requester
        limit = limit_of(timeout, requester)
        self._patient = limit is not None
        requester._leave_to_parent()
        if not self.done:
            late = f"{requester.channel}: no reply within the timeout"
            await loops.patiently(requester._pumps.answered(self, requester.fileno, requester._turned), limit, late)
        return self._ended()

    def _ended(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._reply

    def cancel(self) -> None:
        """Forgets the request. A reply that still arrives is ignored, and counted in `late`."""
        self._requester._forget(self)


class PipeRequester(Socket, _Requester):
    """Sends requests to the servers in turn, and gets their replies. Many requests may be under way at once."""

    late: int  # replies that arrived after their request was given up

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._requests: RequestTable[PipePending] = RequestTable()
        self._forks = _forks
        self._looked = 0.0
        self._pumps = loops.Pumps()
        self.late = 0

    def request(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and returns its reply. `TimedOut` after `timeout` seconds in all.

        `Disconnected` if the server dies with the request, or if every server has left. With `retries`, another server is asked so many
        times instead: then the request may be done twice. With `retries` and a timeout it waits for the next server.
        """
        deadline = deadline_of(timeout, self)
        requests = self._requests
        if requests.entries or self._forks != _forks or (self._gate is not None and self._gate.held):
            pending = self._submit(body, retries, timeout)
        else:  # the fast path while no other request is under way: this thread waits a little for the reply itself
            data, kind = self._pack(body)  # before it is entered: a body that cannot be packed leaves nothing behind
            number = requests.begin()
            try:
                server = _native.pipe_submit(self._pub, number, kind, data, timeout)
                if server is None:
                    raise TimedOut(self._full())
                found = _native.pipe_take(self._sub, SLICE if timeout is None else min(SLICE, timeout))
            except BaseException as error:
                requests.remove(number)
                if isinstance(error, Disconnected) and retries > 0 and timeout is not None:
                    return self._strand(PipePending(self, body, retries)).result(timeout)
                raise
            if found is not None:
                _, answered, kind, reply, _ = found
                if answered == number:
                    requests.entries.pop(number, None)
                    return self._unpack(reply, kind)
                self._answer(Reply(answered, kind, reply))
            pending = PipePending(self, body, retries)
            requests.pend(number, pending, server)
        try:
            return pending.result(None if deadline is None else max(deadline - time.monotonic(), 0))
        except BaseException:
            self._forget(pending)
            raise

    def submit(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> PipePending:
        """Sends a request and does not wait for its reply. `TimedOut` if no server had room within `timeout` seconds."""
        return self._submit(body, retries, timeout)

    async def submit_async(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> PipePending:
        """Sends a request as `submit` does, and waits for room in the running event loop. A cancelled task has sent nothing."""
        pending = self._pended(body, retries)
        await self._dispatch_async(pending, timeout, patient=timeout is not None)
        return pending

    async def _dispatch_async(self, pending: PipePending, timeout: float | None, *, patient: bool) -> None:
        try:
            await self._room(lambda: self._dispatch(pending, 0) or None, timeout)
        except Disconnected:
            if pending._retries <= 0 or not patient:
                raise
            self._strand(pending)

    async def request_async(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and awaits its reply in the running event loop. Cancelling it forgets the request."""
        pending = self._pended(body, retries)
        limit = limit_of(timeout, self)
        try:
            pending._patient = limit is not None
            await loops.patiently(self._answered(pending), limit, f"{self.channel}: no reply within the timeout")
        except BaseException:
            self._forget(pending)
            raise
        return pending.result(0)

    async def _answered(self, pending: PipePending) -> None:
        """Sends a request as soon as there is room, and waits until it is done."""
        await self._dispatch_async(pending, None, patient=pending._patient)
        if pending.done:
            return
        await self._pumps.answered(pending, self.fileno, self._turned)

    def _turned(self) -> None:
        """One turn of an event loop: takes the replies that are there, looks for dead servers now and then. Never blocks."""
        for _ in range(TURN_MAX):
            if not self._receive(0):
                return

    def _submit(self, body: Body, retries: int, timeout: float | None) -> PipePending:
        pending = self._pended(body, retries)
        try:
            sent = self._dispatch(pending, timeout)
        except Disconnected:
            if retries <= 0 or timeout is None:
                raise
            return self._strand(pending)
        if not sent:
            raise TimedOut(self._full())
        return pending

    def _strand(self, pending: PipePending) -> PipePending:
        """Keeps a request for the next server, as every one has left."""
        self._requests.enter(pending, NO_SERVER)
        return pending

    def _pended(self, body: Body, retries: int) -> PipePending:
        self._leave_to_parent()
        return PipePending(self, body, retries)

    def _leave_to_parent(self) -> None:
        """In a forked child: the parent's requests are the parent's."""
        if self._forks == _forks:
            return
        self._forks = _forks
        self._pumps.clear()
        why = "the request was sent before this process was forked: its parent gets the reply"
        for pending in self._requests.clear():
            pending._wake = None  # a task of the parent's
            pending._finish(None, Disconnected(f"{self.channel}: {why}"))

    def _dispatch(self, pending: PipePending, timeout: float | None) -> bool:
        """Sends a request to a server; False if there was none with room before the timeout."""
        data, kind = self._pack(pending._body)
        number = self._requests.enter(pending)
        try:
            server = _native.pipe_submit(self._pub, number, kind, data, timeout)
        except BaseException:
            self._requests.remove(number)
            raise
        if server is None:
            self._requests.remove(number)
        else:
            self._requests.sent(number, server)
        return server is not None

    def _stepped(self) -> bool:
        """Whether a test holds the channel: then the test ends a wait, and not the clock."""
        return self._gate is not None and self._gate.held

    def _wait(self, pending: PipePending, timeout: float | None) -> None:
        self._leave_to_parent()
        deadline = deadline_of(timeout, self)
        while not pending.done:
            left = SLICE if deadline is None else min(deadline - time.monotonic(), SLICE)
            if not self._receive(max(left, 0)) and (left <= 0 or self._stepped()) and not pending.done:
                raise TimedOut(f"{self.channel}: no reply within the timeout")

    def _receive(self, timeout: float) -> bool:
        found = self._take(timeout)
        if found is not None:
            _, number, kind, data, _ = found
            self._answer(Reply(number, kind, data))
            return True
        now = time.monotonic()
        if now - self._looked > SLICE / 2:
            self._looked = now
            self._look_for_the_dead()
        return False

    def _answer(self, reply: Reply) -> None:
        self.late += not self._requests.answer(reply)

    def _look_for_the_dead(self) -> None:
        """Requests whose server has died are sent to another one, or end. Never blocks: it is called again soon."""
        there = set(_native.pipe_others(self._pub))
        for number, entry in list(self._requests.entries.items()):
            if entry is None or entry.server in there or entry.server == NOT_SENT:
                continue
            if self._requests.remove(number) and not entry.pending.done:
                self._send_again(number, entry)

    def _send_again(self, number: int, entry: Entry[PipePending]) -> None:
        """Sends a request to another server, as its own is gone; or ends it."""
        pending, stranded = entry.pending, entry.server == NO_SERVER
        if not stranded and pending._retries <= 0:
            pending._finish(None, Disconnected(f"{self.channel}: the server died before it replied"))
            return
        try:
            again = self._dispatch(pending, 0)
        except Disconnected as error:
            if not pending._patient:
                pending._finish(None, error)
                return
            again = False
        except PenstockError as error:
            pending._finish(None, error)
            return
        if not again:  # no server is there now, or none has room: look again
            self._requests.restore(number, entry)
        elif not stranded:
            pending._retries -= 1

    def _forget(self, pending: PipePending) -> None:
        self._requests.forget(pending)
        pending.done = True


class PipeRequest(NamedTuple):
    """A request received. `reply` answers it."""

    body: Any
    sender: str
    replier: PipeReplier
    peer: int
    number: int

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Sends the reply. Returns False if the requester is gone. `TimedOut` if it does not read its replies."""
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

        If `answer` raises, or returns what cannot be sent, the requester gets a `ServerError`, and `serve` raises the error: `TypeError` or
        `Invalid`, which names `answer`, for what is no message, `TooLarge` for a message that is too large. `serve` can be called again.
        """
        found: Found | None = None
        pack, unpack, answer_and_take = self._pack, self._unpack, _native.pipe_answer
        pub, sub, self._last_sender = self._pub, self._sub, b""
        try:
            while count is None or count > 0:
                peer, number, kind, data, _ = found or self._expect(None)
                found = None
                try:
                    body = answer(unpack(data, kind))
                except BaseException as error:
                    self._refuse_to_answer(peer, number, failed(answer, error), error)
                    raise
                try:
                    reply, parts = pack(body)
                    if type(reply) is not bytes:
                        reply = codecs.buffer_of(self.channel, reply)
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
        left = count
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
            f"{self.channel}: a request must be answered, and {what} would lose whose it is: use recv or poll"
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
            _native.pipe_send(self._pub, peer, number, codecs.PARTS | codecs.REFUSED, self._refusal(why), patience)

    async def _refuse_async(self, request: PipeRequest, why: str, error: BaseException) -> None:
        """The same in the running event loop. A task that is cancelled does not wait."""
        if not isinstance(error, Exception):
            self._refuse_to_answer(request.peer, request.number, why)
            return
        with contextlib.suppress(PenstockError):
            data, kind = self._refusal(why), codecs.PARTS | codecs.REFUSED
            send = lambda: _native.pipe_send(self._pub, request.peer, request.number, kind, data, 0)  # noqa: E731
            await self._room(send, None)

    def _refusal(self, why: str) -> bytes:
        text = refusal(self.channel, why)
        return codecs.join_parts([text[: max(self._pub.max_payload - len(codecs.join_parts([b""])), 0)]])

    def _reply(self, peer: int, number: int, body: Body, timeout: float | None) -> bool:
        try:
            self._send(peer, number, body, timeout)
        except Disconnected:
            return False
        return True

    def _made(self, raw: Found) -> PipeRequest:
        peer, number, kind, data, name = raw
        try:
            body = self._unpack(data, kind)
        except Exception as error:  # it was taken, so it is answered
            self._refuse_to_answer(peer, number, text_of(error))
            raise
        return PipeRequest(body, decoded(name), self, peer, number)


roles.Requester.register(PipeRequester)
roles.Replier.register(PipeReplier)
