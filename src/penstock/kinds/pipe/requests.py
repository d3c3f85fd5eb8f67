"""Requests and replies over a pipe channel: requests carry a number, which their replies carry back."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from penstock._native import core as _native
from penstock.channels.checks import deadline_of, limit_of
from penstock.channels.interfaces import roles
from penstock.channels.interfaces.patterns import Body, check_retries
from penstock.channels.waiting import awaiting, loops
from penstock.channels.waiting.long_waits import LongWait
from penstock.errors import (
    DecodeError,
    Disconnected,
    Invalid,
    PenstockError,
    ServerError,
    TimedOut,
)
from penstock.kinds.pipe.request_table import NO_SERVER, NOT_SENT, Entry, Reply, RequestTable
from penstock.kinds.pipe.socket_base import Socket
from penstock.util.strict import Strict

SLICE = 0.02  # seconds between two checks for dead servers
TINY = 1e-9  # seconds that are left at least of a wait that has a timeout
TURN_MAX = 256  # replies taken before others in the event loop get their turn

_forks = 0  # forks between the process that loaded this module and this one; cheaper to read than the process id


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


if TYPE_CHECKING:
    from penstock.channels.interfaces.roles import Requester as _Requester
else:  # a compiled class can have no abstract base: the roles are registered below
    _Requester = object


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
            self._complete(self._requester._unpack(reply.data, reply.kind))
        except (DecodeError, Invalid, ServerError) as error:
            self._complete(None, error)

    def _complete(self, reply: Any, error: Exception | None = None) -> None:
        self._reply, self._error, self.done = reply, error, True
        if self._wake is not None:
            self._wake()

    def result(self, timeout: float | None = None) -> Any:
        """The reply. Waits for it. `TimedOut` after `timeout` seconds. `Disconnected` if the server died and no retry is left.

        With a retry left and no server to ask, it waits for the next server until the timeout; without a timeout it is `Disconnected`.
        """
        self._patient = timeout is not None
        self._requester._wait(self, timeout)
        return self._outcome()

    async def result_async(self, timeout: float | None = None) -> Any:
        """The reply as `result` gives it, awaited in the running event loop. Cancelling it leaves the request under way."""
        requester = self._requester
        limit = limit_of(timeout, requester)
        self._patient = limit is not None
        requester._leave_to_parent()
        if not self.done:
            await requester._patiently(requester._answered(self), limit)
        return self._outcome()

    def _outcome(self) -> Any:
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
        retries = check_retries(self, "request", retries)
        deadline = None if timeout is None else deadline_of(timeout, self)
        requests = self._requests
        if requests.entries or self._forks != _forks or (self._gate is not None and self._gate.held):
            pending = self._submit(body, retries, timeout)
        else:  # the fast path while no other request is under way: this thread waits a little for the reply itself
            # Packed before it is entered: a body that cannot be packed must leave no entry.
            data, kind = (body, 0) if self._plain and type(body) is bytes else self._pack(body)
            number = requests.begin()
            try:
                came = _native.pipe_ask(self._pub, self._sub, number, kind, data, timeout)
                if came is None:
                    raise TimedOut(self._full())
            except BaseException as error:
                requests.remove(number)
                if isinstance(error, Disconnected) and retries > 0 and timeout is not None:
                    return self._queue_for_next_server(PipePending(self, body, retries)).result(timeout)
                raise
            if isinstance(came, bytes):
                requests.entries.pop(number, None)
                return came if self._plain else self._unpack(came, 0)
            server, found = came
            if found is not None:
                _, answered, kind, reply, _ = found
                if answered == number:
                    requests.entries.pop(number, None)
                    return self._unpack(reply, kind)
                self._answer(Reply(answered, kind, reply))
            pending = PipePending(self, body, retries)
            requests.pend(number, pending, server)
        try:
            return pending.result(
                None if deadline is None else max(deadline - time.monotonic(), min(timeout or 0, TINY))
            )
        except BaseException:
            self._forget(pending)
            raise

    def submit(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> PipePending:
        """Sends a request and does not wait for its reply. `TimedOut` if no server had room within `timeout` seconds."""
        retries = check_retries(self, "submit", retries)
        return self._submit(body, retries, timeout)

    async def submit_async(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> PipePending:
        """Sends a request as `submit` does, and waits for room in the running event loop. A cancelled task has sent nothing."""
        retries = check_retries(self, "submit_async", retries)
        pending = self._create_pending(body, retries)
        await self._dispatch_async(pending, timeout, patient=timeout is not None)
        return pending

    async def _dispatch_async(self, pending: PipePending, timeout: float | None, *, patient: bool) -> None:
        try:
            await self._room(lambda: self._dispatch(pending, 0) or None, timeout)
        except Disconnected:
            if pending._retries <= 0 or not patient:
                raise
            self._queue_for_next_server(pending)

    async def request_async(self, body: Body, timeout: float | None = None, *, retries: int = 0) -> Any:
        """Sends a request and awaits its reply in the running event loop. Cancelling it forgets the request."""
        retries = check_retries(self, "request_async", retries)
        pending = self._create_pending(body, retries)
        limit = limit_of(timeout, self)
        try:
            pending._patient = limit is not None
            await self._patiently(self._wait_answered(pending), limit)
        except BaseException:
            self._forget(pending)
            raise
        return pending.result(0)

    async def _wait_answered(self, pending: PipePending) -> None:
        """Sends a request as soon as there is room, and waits until it is done."""
        await self._dispatch_async(pending, None, patient=pending._patient)
        if pending.done:
            return
        await self._answered(pending)

    async def _patiently(self, awaited: Awaitable[None], limit: float | None) -> None:
        """A wait for a reply in the running event loop."""
        wait = self._noted_wait()
        with awaiting.noted(self._sub, timed=limit is not None) as note:
            note.begin()
            await awaiting.in_time(awaited, limit, wait)

    def _noted_wait(self) -> awaiting.NotedWait:
        return awaiting.NotedWait(self._sub, f"{self.channel}: no reply within the timeout", "a reply")

    async def _answered(self, pending: PipePending) -> None:
        await self._pumps.answered(pending, self.fileno, self._run_turn)

    def _run_turn(self) -> None:
        """One turn of an event loop: takes the replies that have arrived, and checks for dead servers from time to time. Never blocks."""
        for _ in range(TURN_MAX):
            if not self._receive(0):
                return

    def _submit(self, body: Body, retries: int, timeout: float | None) -> PipePending:
        pending = self._create_pending(body, retries)
        try:
            sent = self._dispatch(pending, timeout)
        except Disconnected:
            if retries <= 0 or timeout is None:
                raise
            return self._queue_for_next_server(pending)
        if not sent:
            raise TimedOut(self._full())
        return pending

    def _queue_for_next_server(self, pending: PipePending) -> PipePending:
        """Keeps a request for the next server, as every one has left."""
        self._requests.enter(pending, NO_SERVER)
        return pending

    def _create_pending(self, body: Body, retries: int) -> PipePending:
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
            pending._complete(None, Disconnected(f"{self.channel}: {why}"))

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

    def _is_stepped(self) -> bool:
        """Whether a test holds the channel: then the test ends a wait, and not the clock."""
        return self._gate is not None and self._gate.held

    def _wait(self, pending: PipePending, timeout: float | None) -> None:
        self._leave_to_parent()
        if pending.done:
            return
        deadline = deadline_of(timeout, self)
        long = LongWait(lambda seconds: self._noted_wait().tell(seconds))
        with awaiting.noted(self._sub, timed=deadline is not None, blocks=True) as note:
            note.begin()
            while not pending.done:
                long.look()
                left = SLICE if deadline is None else min(deadline - time.monotonic(), SLICE)
                if not self._receive(max(left, 0)) and (left <= 0 or self._is_stepped()) and not pending.done:
                    raise TimedOut(
                        self._noted_wait().error() if timeout else f"{self.channel}: no reply within the timeout"
                    )

    def _receive(self, timeout: float) -> bool:
        found = self._take(timeout)
        if found is not None:
            _, number, kind, data, _ = found
            self._answer(Reply(number, kind, data))
            return True
        now = time.monotonic()
        if now - self._looked > SLICE / 2:
            self._looked = now
            self._check_for_dead_servers()
        return False

    def _answer(self, reply: Reply) -> None:
        self.late += not self._requests.answer(reply)

    def _check_for_dead_servers(self) -> None:
        """Sends the requests of dead servers to another server, or fails them. Never blocks: it is called again soon."""
        there = set(_native.pipe_others(self._pub))
        for number, entry in list(self._requests.entries.items()):
            if entry is None or entry.server in there or entry.server == NOT_SENT:
                continue
            if self._requests.remove(number) and not entry.pending.done:
                self._send_again(number, entry)

    def _send_again(self, number: int, entry: Entry[PipePending]) -> None:
        """Sends a request to another server after its own has died, or fails it."""
        pending, stranded = entry.pending, entry.server == NO_SERVER
        if not stranded and pending._retries <= 0:
            pending._complete(None, Disconnected(f"{self.channel}: the server died before it replied"))
            return
        try:
            again = self._dispatch(pending, 0)
        except Disconnected as error:
            if not pending._patient:
                pending._complete(None, error)
                return
            again = False
        except PenstockError as error:
            pending._complete(None, error)
            return
        if not again:  # there is no server, or none has room: try again later
            self._requests.restore(number, entry)
        elif not stranded:
            pending._retries -= 1

    def _forget(self, pending: PipePending) -> None:
        self._requests.forget(pending)
        pending.done = True


roles.Requester.register(PipeRequester)
