"""Iterates over all messages, and waits for each, until the handle closes or the stream ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

from penstock.errors import Closed, EndOfStream

T = TypeVar("T")


def until_closed(take: Callable[[], T]) -> Iterator[T]:
    """The results of `take`, called again and again until it raises `Closed` or `EndOfStream`."""
    while True:
        try:
            message = take()
        except (Closed, EndOfStream):
            return
        yield message


async def until_closed_async(take: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
    """The same for a `take` that is awaited."""
    while True:
        try:
            message = await take()
        except (Closed, EndOfStream):
            return
        yield message
