"""Shared by the sockets of all messaging patterns, on pipes and on ZeroMQ: bodies, receiving, names.

Knows codecs and event loops. It must never know a pipe or a ZeroMQ socket.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from penstock import codecs
from penstock.channels.checks import HasChannel, counted, limit_of
from penstock.channels.waiting import loops
from penstock.channels.waiting.iteration import until_closed, until_closed_async
from penstock.codecs import Codec
from penstock.errors import DecodeError, EndOfStream, Invalid, TimedOut, TooLarge, text_of

# On a channel of bytes: bytes, any buffer, or a list of those, the parts of one message. With another codec: its objects.
Body = Any
Raw = TypeVar("Raw")  # as received
Made = TypeVar("Made")  # as returned


class Routed(NamedTuple):
    """A message and the name of the dealer that sent it."""

    sender: str
    body: Any


class Receiving(ABC, Generic[Raw, Made]):
    """A socket that receives. Thread-safe if the handle below is."""

    _late_error: Exception | None = None  # the error after a poll's messages: the next call raises it

    @property
    @abstractmethod
    def channel(self) -> str:
        """The channel's URI."""

    @abstractmethod
    def _take(self, timeout: float | None) -> Raw | None:
        """The next message, or None when `timeout` seconds have passed (None: for ever, 0: now or never)."""

    @abstractmethod
    def _convert(self, raw: Raw) -> Made:
        """The message as the user gets it."""

    @abstractmethod
    async def _wait_for_event(self) -> None:
        """Until there may be something, in the running event loop."""

    def _reason_of_wait(self) -> str:
        """The end of the text of a wait that was in vain; empty if nothing is known."""
        return ""

    async def _in_time(self, awaited: Awaitable[Raw], limit: float | None) -> Raw:
        """The awaited message, in the running event loop, or `TimedOut`."""
        late = lambda: f"{self.channel}: no message within the timeout{self._reason_of_wait()}"  # noqa: E731
        return await loops.patiently(awaited, limit, late)

    def _expect(self, timeout: float | None) -> Raw:
        raw = self._take(timeout)
        if raw is None:
            raise TimedOut(f"{self.channel}: no message within the timeout{self._reason_of_wait()}")
        return raw

    def _raise_late(self) -> None:
        error, self._late_error = self._late_error, None
        if error is not None:
            raise error

    def recv(self, timeout: float | None = None) -> Made:
        """The next message. Waits for it. `TimedOut` after `timeout` seconds (None: waits for ever, 0: never waits)."""
        if self._late_error is not None:
            self._raise_late()
        raw = self._take(timeout)
        if raw is None:
            raise TimedOut(f"{self.channel}: no message within the timeout{self._reason_of_wait()}")
        return self._convert(raw)

    def try_recv(self) -> Made | None:
        """The next message, or None if there is none yet. Never blocks."""
        if self._late_error is not None:
            self._raise_late()
        raw = self._take(0)
        return None if raw is None else self._convert(raw)

    def poll(self, limit: int = 1000) -> list[Made]:
        """The messages that are there now, at most `limit` of them. Never blocks.

        An error after the first message is raised by the next call, so that no message is lost.
        """
        limit = counted(limit, "poll", "limit", self)
        self._raise_late()
        found: list[Made] = []
        try:
            while len(found) < limit and (raw := self._take(0)) is not None:
                found.append(self._convert(raw))
        except EndOfStream:  # the next call raises it again, unless a new peer has joined
            if not found:
                raise
        except (DecodeError, Invalid) as error:
            if not found:
                raise
            self._late_error = error.with_traceback(None)  # its frames would keep this handle alive
        return found

    async def recv_async(self, timeout: float | None = None) -> Made:
        """The next message as `recv` gives it, awaited in the running event loop. Cancelling it loses no message."""
        limit = limit_of(timeout, self)
        self._raise_late()
        raw = self._take(0)
        if raw is None:
            raw = await self._in_time(self._take_async(), limit)
        return self._convert(raw)

    async def _take_async(self) -> Raw:
        while (raw := self._take(0)) is None:
            await self._wait_for_event()
        return raw

    def __iter__(self) -> Iterator[Made]:
        """Every message, waiting for it. Ends when the handle closes, or the stream ends."""
        return until_closed(self.recv)

    def __aiter__(self) -> AsyncIterator[Made]:
        """Every message, awaited in the running event loop. Ends when the handle closes, or the stream ends."""
        return until_closed_async(self.recv_async)


def name_of(function: Any) -> str:
    """A user's function, for errors."""
    name = getattr(function, "__qualname__", None)
    if not name:
        return text_of(function, repr)
    return f"{function.__module__}.{name}" if getattr(function, "__module__", None) else str(name)


def check_serve(handle: HasChannel, method: str, answer: Any, count: Any) -> int | None:
    """The number of requests that a server answers, before it takes any. `Invalid` if its function is none, and as `counted`."""
    if not callable(answer):
        raise Invalid(f"{handle.channel}: {method}(): answer is {text_of(answer, repr)}: it must be a function")
    return None if count is None else counted(count, method, "count", handle)


def check_retries(handle: HasChannel, method: str, retries: Any) -> int:
    """How often a request is sent again at most. Errors as of `counted`."""
    return retries if type(retries) is int and retries >= 0 else counted(retries, method, "retries", handle)


def failed(function: Any, error: BaseException) -> str:
    """The error text for a requester, if the server's function raised."""
    return f"{name_of(function)} raised {type(error).__name__}: {text_of(error)}"


def refusal(channel: str, why: str) -> bytes:
    """The text for a requester in place of a reply."""
    return f"{channel}: the server has no answer: {why.removeprefix(f'{channel}: ')}".encode("utf-8", "replace")[:4096]


def wrong_result(
    channel: str, method: str, function: Any, result: Any, codec: Codec, error: BaseException
) -> BaseException:
    """The error of a server whose function returned a result that cannot be sent. error: the reason; an error about something else is returned unchanged."""
    if inspect.iscoroutine(result):
        result.close()  # else Python warns that it was never awaited
    if not isinstance(error, TypeError | Invalid | TooLarge):
        return error
    if inspect.isawaitable(result):
        return TypeError(
            f"{channel}: {name_of(function)} is a coroutine function: {method} takes a function; use {method}_async"
        )
    shown = f"{type(result).__name__} ({text_of(result, repr):.60})" if result is not None else "None"
    message = f"{channel}: {name_of(function)} returned {shown}, and {method} takes its result as the reply"
    if codec.kind == "bytes" and isinstance(error, TypeError):
        return TypeError(f"{message}: bytes, another buffer, or a list of those")
    return (TooLarge if isinstance(error, TooLarge) else Invalid)(
        f"{message}: {text_of(error).removeprefix(f'{channel}: ')}"
    )


def awaitable_of(channel: str, function: Any, result: Any) -> Awaitable[Any]:
    """The awaitable that a user's coroutine function returned. `TypeError` for any other result."""
    if not inspect.isawaitable(result):
        raise TypeError(
            f"{channel}: {name_of(function)} returned {type(result).__name__}: serve_async takes a coroutine function; use serve"
        )
    return result


def decode(codec: Codec, channel: str, position: int, data: bytes) -> Any:
    """Decodes a body. `DecodeError` if the codec cannot read it; position: the message's, for the error."""
    try:
        return codec.parse(data)
    except Exception as error:
        raise codecs.undecodable(codec, channel, position, data, error) from error


def encoded(part: Any) -> Any:
    """Text as bytes, anything else as it is."""
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


def decoded(name: bytes) -> str:
    """A name as text. Bytes that are not UTF-8 become surrogate escapes, so that nothing of the name is lost."""
    return name.decode("utf-8", "surrogateescape")
