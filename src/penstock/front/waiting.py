"""Waiting for one of several handles of any kind, in threads and in event loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.channels.checks import limit_of
from penstock.channels.handles import NativeSubscription
from penstock.channels.uri.opener import parse as parse
from penstock.channels.waiting import loops, readiness
from penstock.errors import Invalid


def wait(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """Waits until at least one subscription, member or socket has something to read, and returns those that do.

    An empty list after `timeout` seconds; None waits for ever, 0 only looks. Without a handle there must be a timeout. Costs one system call for all of them, of
    any kinds, ZeroMQ's included. `Invalid` for a handle that does not receive.
    """
    given = _check_subscriptions(subscriptions, timeout)
    ends = [_receiving(handle) for handle in given]
    native = [end for end in ends if isinstance(end, NativeSubscription)]
    if len(native) == len(ends):
        ready: list[Any] = readiness.wait(native, timeout)
    else:
        limit = limit_of(timeout)
        ready = loops.wait(ends, lambda: _ready(ends), limit)
    return _select_ready(given, ends, ready)


async def wait_async(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """`wait` in the running event loop."""
    given = _check_subscriptions(subscriptions, timeout)
    ends = [_receiving(handle) for handle in given]
    limit = limit_of(timeout)
    return _select_ready(given, ends, await loops.wait_async(ends, lambda: _ready(ends), limit))


def _ready(ends: list[Any]) -> list[Any]:
    """Those that have something to read now."""
    native = [end for end in ends if isinstance(end, NativeSubscription)]
    return [
        *readiness.wait(native, 0),
        *(end for end in ends if not isinstance(end, NativeSubscription) and end.ready()),
    ]


def _select_ready(given: list[Any], ends: list[Any], ready: list[Any]) -> list[Any]:
    """The handles that were given, of the ends that are ready."""
    found = {id(end) for end in ready}
    return [handle for handle, end in zip(given, ends, strict=True) if id(end) in found]


def _check_subscriptions(subscriptions: Sequence[Any], timeout: float | None) -> list[Any]:
    """The handles that were given. `Invalid` for what is no list, also for a single one: to iterate over it would wait for its messages and take them. The same
    for none without a timeout: nothing would end the wait."""
    if hasattr(subscriptions, "channel") or not isinstance(subscriptions, Iterable):
        raise Invalid(f"wait takes a list of handles: write [handle] for one, here {subscriptions!r}")
    given = list(subscriptions)
    if not given and timeout is None:
        raise Invalid("wait has no handle to wait for: give at least one, or a timeout")
    return given


def _receiving(handle: Any) -> Any:
    """The end to wait on for a handle: a compiled one, or the handle itself."""
    end = getattr(handle, "_sub", handle)
    if isinstance(end, NativeSubscription):
        return end
    if getattr(end, "receives", False):  # one that has no compiled end, and says itself whether it is ready
        return end
    raise Invalid(f"there is nothing to wait for on {handle!r}: give subscriptions, members and sockets that receive")


__all__ = ["wait", "wait_async"]
