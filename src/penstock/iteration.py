"""Iterating over what arrives: every message, waiting for it, until the handle closes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

from penstock.errors import Closed

T = TypeVar("T")


def until_closed(take: Callable[[], T]) -> Iterator[T]:
    """What `take` returns, again and again, until it raises `Closed`."""
    while True:
        try:
            message = take()
        except Closed:
            return
        yield message


async def until_closed_async(take: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
    """The same of what `take` gives when it is awaited."""
    while True:
        try:
            message = await take()
        except Closed:
            return
        yield message
