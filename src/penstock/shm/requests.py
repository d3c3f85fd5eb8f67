"""Request and reply over a pipe channel: requests carry a number, which their replies carry back."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from penstock import loops
from penstock._native import core as _native
from penstock.errors import Closed, DecodeError, Disconnected, Invalid, PenstockError, TimedOut, Unsupported
from penstock.options import deadline_of, limit_of
from penstock.patterns import Body, decoded
from penstock.shm.socket_base import Found, ReceivingSocket, Socket

SLICE = 0.02  # seconds between two looks for dead servers
TURN_MAX = 256  # replies taken before others in the event loop get their turn

_forks = 0  # how often this process is a child of one that loaded this module: a look at it costs less than the process' number


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Pending:
    """A request on its way. Made by `Requester.submit`. Thread-safe."""

    def __init__(self, requester: Requester, body: Body, retries: int) -> None:
        self._requester, self._body, self._retries = requester, body, retries
        self._reply: Any = None
        self._error: Exception | None = None
        self._wake: Callable[[], None] | None = None  # the task that awaits it
        self.done = False

    def _answer(self, found: Found) -> None:
        try:
            self._finish(self._requester._unpack(found[3], found[2]))
        except (DecodeError, Invalid) as error:
            self._finish(None, error)

    def _finish(self, reply: Any, error: Exception | None = None) -> None:
        self._reply, self._error, self.done = reply, error, True
        if self._wake is not None:
            self._wake()

    def result(self, timeout: float | None = None) -> Any:
        """The reply. Waits for it. `TimedOut` after `timeout` seconds. `Disconnected` if the server died and no retry is left."""
        self._requester._wait(self, timeout)
        return self._ended()

    async def aresult(self, timeout: float | None = None) -> Any:
        """The reply as `result` gives it, awaited in the running event loop. Cancelling it leaves the request under way."""
        requester = self._requester
        limit = limit_of(timeout, requester)
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
        """Forgets the request. A reply that still arrives is ignored, and counted in `Requester.late`."""
        self._requester._forget(self)


class Requester(Socket):
    """Sends requests to the servers in turn, and gets their replies. Many requests may be under way at once."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pending: dict[int, tuple[Pending, int] | None] = {}  # None: the thread that sent it waits for it itself
        self._answers: dict[int, Found] = {}  # replies that another thread received for such a request
        self._number, self._forks = 0, _forks
        self._looked = 0.0
        self._pumps = loops.Pumps()
        self.late = 0  # replies that arrived after their request was given up

    def request(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and returns its reply. `TimedOut` after `timeout` seconds in all.

        `Disconnected` if the server dies with the request. With `retries`, another server is asked so many times instead: then the
        request may be done twice.
        """
        deadline = deadline_of(timeout, self)
        if self._pending or self._forks != _forks or (self._gate is not None and self._gate.held):
            pending = self._submit(body, retries, timeout)
        else:  # the fast path while no other request is under way: one call sends, and waits a little for the reply
            data, kind = self._pack(body)  # before it is entered: a body that cannot be packed leaves nothing behind
            self._number = number = self._number + 1
            self._pending[number] = None
            patience = SLICE if timeout is None else min(SLICE, timeout)
            try:
                found = _native.pipe_ask(self._pub, self._sub, number, kind, data, timeout, patience)
            except BaseException:
                self._pending.pop(number, None)
                raise
            if type(found) is tuple and found[1] == number:
                self._pending.pop(number, None)
                return self._unpack(found[3], found[2])
            pending = self._wait_on(number, found, body, retries)
        try:
            return pending.result(None if deadline is None else max(deadline - time.monotonic(), 0))
        except BaseException:
            self._forget(pending)
            raise

    def _wait_on(self, number: int, found: Found | int | None, body: Body, retries: int) -> Pending:
        """Turns a request that was sent on the fast path, and got no reply at once, into an ordinary one."""
        if found is None:
            self._pending.pop(number, None)
            raise TimedOut(self._full())
        pending = Pending(self, body, retries)
        if number in self._pending:
            self._pending[number] = pending, found if isinstance(found, int) else found[4]
        if isinstance(found, tuple):
            self._note(found)
        self._hand_over(number, pending)
        return pending

    def _hand_over(self, number: int, pending: Pending) -> None:
        """Gives a request its reply, if another thread received that before the request was known."""
        answer = self._answers.pop(number, None)
        if answer is not None:
            self._pending.pop(number, None)
            pending._answer(answer)

    def submit(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Pending:
        """Sends a request and does not wait for its reply. `TimedOut` if no server had room within `timeout` seconds."""
        return self._submit(body, retries, timeout)

    async def asubmit(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Pending:
        """Sends a request as `submit` does, and waits for room in the running event loop. A cancelled task has sent nothing."""
        pending = self._pended(body, retries)
        await self._room(lambda: self._dispatch(pending, 0) or None, timeout)
        return pending

    async def arequest(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and awaits its reply in the running event loop. Cancelling it forgets the request."""
        pending = self._pended(body, retries)
        limit = limit_of(timeout, self)
        try:
            await loops.patiently(self._answered(pending), limit, f"{self.channel}: no reply within the timeout")
        except BaseException:
            self._forget(pending)
            raise
        return pending.result(0)

    async def _answered(self, pending: Pending) -> None:
        """Sends a request as soon as there is room, and waits until it is done."""
        await self._room(lambda: self._dispatch(pending, 0) or None, None)
        if pending.done:
            return
        await self._pumps.answered(pending, self.fileno, self._turned)

    def _turned(self) -> None:
        """One turn of an event loop: takes the replies that are there, looks for dead servers now and then. Never blocks."""
        for _ in range(TURN_MAX):
            if not self._receive(0):
                return

    def _submit(self, body: Body, retries: int, timeout: float | None) -> Pending:
        pending = self._pended(body, retries)
        if not self._dispatch(pending, timeout):
            raise TimedOut(self._full())
        return pending

    def _pended(self, body: Body, retries: int) -> Pending:
        self._leave_to_parent()
        return Pending(self, body, retries)

    def _leave_to_parent(self) -> None:
        """In a forked child: the parent's requests are the parent's."""
        if self._forks == _forks:
            return
        self._forks = _forks
        entries = list(self._pending.values())
        self._pending.clear()
        self._answers.clear()
        self._pumps.clear()
        for entry in entries:
            if entry is not None:
                entry[0]._wake = None  # a task of the parent's
                why = "the request was sent before this process was forked: its parent gets the reply"
                entry[0]._finish(None, Disconnected(f"{self.channel}: {why}"))

    def _dispatch(self, pending: Pending, timeout: float | None) -> bool:
        """Sends a request to a server; False if there was none with room before the timeout."""
        self._number += 1
        number = self._number
        data, kind = self._pack(pending._body)
        # Known before it is sent: another thread may receive the reply first.
        self._pending[number] = pending, 0
        try:
            went = _native.pipe_submit(self._pub, number, kind, data, timeout)
        except BaseException:
            self._pending.pop(number, None)
            raise
        if went is None:
            self._pending.pop(number, None)
        elif number in self._pending:
            self._pending[number] = pending, went
        return went is not None

    def _stepped(self) -> bool:
        """Whether a test holds the channel: then the test ends a wait, and not the clock."""
        return self._gate is not None and self._gate.held

    def _wait(self, pending: Pending, timeout: float | None) -> None:
        self._leave_to_parent()
        deadline = deadline_of(timeout, self)
        while not pending.done:
            left = SLICE if deadline is None else min(deadline - time.monotonic(), SLICE)
            if not self._receive(max(left, 0)) and (left <= 0 or self._stepped()) and not pending.done:
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
        if (
            waiting is None
        ):  # a request sent on the fast path: its thread enters it as pending and only then looks there
            self._answers[number] = found
            waiting = self._pending.pop(number, None)
            if waiting is not None:
                self._hand_over(number, waiting[0])
        else:
            waiting[0]._answer(found)

    def _look_for_the_dead(self) -> None:
        """Requests whose server has died are sent to another one, or end. Never blocks: it is called again soon."""
        there = set(_native.pipe_others(self._pub))
        for number, entry in list(self._pending.items()):
            if entry is None:
                continue
            pending, went = entry
            if went in there or went == 0 or self._pending.pop(number, None) is None or pending.done:
                continue
            if pending._retries <= 0:
                pending._finish(None, Disconnected(f"{self.channel}: the server died before it replied"))
                continue
            try:
                again = self._dispatch(pending, 0)
            except PenstockError as error:
                pending._finish(None, error)
                continue
            if again:
                pending._retries -= 1
            else:  # no server is there now: look again
                self._pending[number] = pending, went

    def _forget(self, pending: Pending) -> None:
        for number, entry in list(self._pending.items()):
            if entry is not None and entry[0] is pending:
                self._pending.pop(number, None)
        pending.done = True


class Request(NamedTuple):
    """A request received. `reply` answers it."""

    body: Any
    sender: str
    replier: Replier
    peer: int
    number: int

    def reply(self, body: Body, timeout: float | None = None) -> bool:
        """Sends the reply. Returns False if the requester is gone. `TimedOut` if it does not read its replies."""
        return self.replier._reply(self.peer, self.number, body, timeout)

    async def areply(self, body: Body, timeout: float | None = None) -> bool:
        """Sends the reply as `reply` does, and waits in the running event loop. A cancelled task has sent nothing."""
        try:
            await self.replier._asend(self.peer, self.number, body, timeout)
        except Disconnected:
            return False
        return True


class Replier(ReceivingSocket[Request]):
    """A server: takes requests from all requesters in turn, and answers them in any order."""

    def serve(self, answer: Callable[[Any], Body], count: int | None = None) -> None:
        """Answers each request with `answer(body)`, until the handle closes, or `count` requests are answered."""
        found: Found | None = None
        pack, unpack, answer_and_take = self._pack, self._unpack, _native.pipe_answer
        pub, sub, self._last_sender = self._pub, self._sub, b""
        try:
            while count is None or count > 0:
                peer, number, kind, data, _, _ = found or self._expect(None)
                found = None
                body = answer(unpack(data, kind))
                count = None if count is None else count - 1
                if count == 0:
                    self._reply(peer, number, body, None)
                else:  # one call sends, and waits for the next request
                    reply, parts = pack(body)
                    found = answer_and_take(pub, sub, peer, number, parts, reply)
        except Closed:
            if not self.closed:
                raise

    async def aserve(self, answer: Callable[[Any], Awaitable[Body]], count: int | None = None) -> None:
        """Answers each request with the result of the coroutine `answer(body)`, in the running event loop, as `serve` does."""
        left = count
        while left is None or left > 0:
            try:
                request = await self.arecv()
            except Closed:
                return
            await request.areply(await answer(request.body))
            left = None if left is None else left - 1

    def _refuse(self, what: str) -> None:
        raise Unsupported(
            f"{self.channel}: a request must be answered, and {what} would lose whose it is: use recv or poll"
        )

    def _reply(self, peer: int, number: int, body: Body, timeout: float | None) -> bool:
        try:
            self._send(peer, number, body, timeout)
        except Disconnected:
            return False
        return True

    def _made(self, raw: Found) -> Request:
        peer, number, kind, data, _, name = raw
        return Request(self._unpack(data, kind), decoded(name), self, peer, number)
