"""Waiting for the first of several handles that has something to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock._native import core as _native
from penstock.channels.checks import limit_of
from penstock.channels.waiting import loops
from penstock.errors import Invalid


def wait(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """The subscriptions that have a message or whose stream has ended; see `penstock.wait`."""
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
