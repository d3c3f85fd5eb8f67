"""Waiting for the first of several handles that has something to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock._native import core as _native
from penstock.channels import loops
from penstock.channels.checks import limit_of
from penstock.channels.loops import readable as readable
from penstock.channels.publication import Publication
from penstock.channels.subscription import Subscription
from penstock.errors import Invalid

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Message = TypeVar("Message", default=Any)

    class _WritingHandle(_native.Publication, Publication[Message]):
        def send(self, data: Message, timeout: float | None = None) -> int: ...  # type: ignore[override]
        def offer(self, data: Message) -> int | None: ...  # type: ignore[override]
        def offer_many(self, messages: Sequence[Message]) -> int: ...  # type: ignore[override]

    class _ReadingHandle(_native.Subscription, Subscription[Message]):
        def recv(self, timeout: float | None = None) -> Message: ...  # type: ignore[override]
        def try_recv(self) -> Message | None: ...  # type: ignore[override]
        def __iter__(self) -> Iterator[Message]: ...  # type: ignore[override]
else:  # a compiled class takes no parameter, and can have no second base that does
    from typing import TypeVar

    Message = TypeVar("Message")
    _WritingHandle, _ReadingHandle = {Message: _native.Publication}, {Message: _native.Subscription}


def wait(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """Those subscriptions that have something to read, or whose stream has ended; see `penstock.wait`."""
    given = _readers(subscriptions)
    return [given[i] for i in _native.wait_any(given, timeout)]


async def wait_async(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """`wait` in the running event loop."""
    given = _readers(subscriptions)
    return await loops.wait_async(given, lambda: wait(given, 0), limit_of(timeout))


def _readers(subscriptions: Sequence[Any]) -> list[Any]:
    given = list(subscriptions)
    for handle in given:
        if not isinstance(handle, _native.Subscription):
            raise Invalid(
                f"there is nothing to wait for on {handle!r}: give subscriptions, members and sockets that receive"
            )
    return given
