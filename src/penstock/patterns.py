"""What peers of the messaging patterns have in common, whatever carries their messages: ways to receive, names, routed messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.errors import TimedOut
from penstock.iteration import until_closed, until_closed_async

Body = Any  # bytes, any buffer, text, or a list of those: the parts of one message
Raw = TypeVar("Raw")  # as it was carried
Made = TypeVar("Made")  # as it is given out


class Routed(NamedTuple):
    """A message and the name of the dealer that sent it."""

    sender: str
    body: bytes | list[bytes]


class Receiving(ABC, Generic[Raw, Made]):
    """A peer that receives. Thread-safe if what it is built on is."""

    @property
    @abstractmethod
    def channel(self) -> str:
        """The channel's URI."""

    @abstractmethod
    def _take(self, timeout: float | None) -> Raw | None:
        """What comes next, or None when `timeout` seconds have passed (None: for ever, 0: now or never)."""

    @abstractmethod
    def _made(self, raw: Raw) -> Made:
        """What a user gets of it."""

    @abstractmethod
    async def _stirred(self) -> None:
        """Until there may be something, in the running event loop."""

    def _expect(self, timeout: float | None) -> Raw:
        raw = self._take(timeout)
        if raw is None:
            raise TimedOut(f"{self.channel}: no message within the timeout")
        return raw

    def recv(self, timeout: float | None = None) -> Made:
        """The next message. TimeoutError after `timeout` seconds (None: for ever, 0: now or never)."""
        return self._made(self._expect(timeout))

    def try_recv(self) -> Made | None:
        """The next message, or None if there is none yet. Never blocks."""
        raw = self._take(0)
        return None if raw is None else self._made(raw)

    async def arecv(self) -> Made:
        """The next message; waits in the running event loop. Cancelling it loses nothing."""
        while (raw := self._take(0)) is None:
            await self._stirred()
        return self._made(raw)

    def __iter__(self) -> Iterator[Made]:
        """Every message, waiting for it; ends when the handle closes."""
        return until_closed(self.recv)

    def __aiter__(self) -> AsyncIterator[Made]:
        return until_closed_async(self.arecv)


def encoded(part: Any) -> Any:
    """Text as bytes, anything else as it is."""
    return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part


def decoded(name: bytes) -> str:
    """A name as text; bytes that are no UTF-8 are no accident."""
    return name.decode("utf-8", "surrogateescape")
