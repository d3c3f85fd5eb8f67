"""Iterates over all messages, and waits for each, until the handle closes or the stream ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

from penstock.errors import Closed, EndOfStream

T = TypeVar("T")


class until_closed(Iterator[T]):  # noqa: N801  (used as a function is)
    """The results of `take`, called again and again until it raises `Closed` or `EndOfStream`. As thread-safe as `take`."""

    def __init__(self, take: Callable[[], T]) -> None:
        self._take = take

    def __next__(self) -> T:
        try:
            return self._take()
        except (Closed, EndOfStream):
            raise StopIteration from None


class until_closed_async(AsyncIterator[T]):  # noqa: N801
    """The same for a `take` that is awaited."""

    def __init__(self, take: Callable[[], Awaitable[T]]) -> None:
        self._take = take

    async def __anext__(self) -> T:
        try:
            return await self._take()
        except (Closed, EndOfStream):
            raise StopAsyncIteration from None
