"""The front door's own rooms: waiting for handles of any kind, and looking at channels. Joins workshops; does no work itself."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import Any

from penstock import appearing, loops
from penstock.channel import Channel
from penstock.channels import files, handles, opening
from penstock.channels.handles import NativeSubscription
from penstock.errors import Invalid, NotFound, PenstockError, Unsupported
from penstock.opener import parse as parse
from penstock.options import limit_of
from penstock.status import Channels, ChannelStatus

_logger = logging.getLogger("penstock")

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # the process's trouble, and no file's
_warned: set[files.Stranger] = set()


def local(channel: str) -> Channel:
    """The channel in shared memory that a URI names. `Unsupported` if it is not in shared memory."""
    parsed = parse(channel)
    if parsed.kind.memory is None:
        raise Unsupported(
            f"{channel} is not in shared memory: there is nothing to inspect, to remove or to record here"
        )
    return parsed


def wait(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """Waits until at least one subscription, member or socket has something to read, and returns those that do.

    An empty list after `timeout` seconds; None waits for ever, 0 only looks. Costs one system call for all of them, of
    any kinds, ZeroMQ's included. `Invalid` for a handle that does not receive.
    """
    given = _listed(subscriptions)
    ends = [_receiving(handle) for handle in given]
    native = [end for end in ends if isinstance(end, NativeSubscription)]
    if len(native) == len(ends):
        ready: list[Any] = handles.wait(native, timeout)
    else:
        limit = limit_of(timeout)
        ready = loops.wait(ends, lambda: _ready(ends), limit)
    return _those(given, ends, ready)


async def wait_async(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """`wait` in the running event loop."""
    given = _listed(subscriptions)
    ends = [_receiving(handle) for handle in given]
    limit = limit_of(timeout)
    return _those(given, ends, await loops.wait_async(ends, lambda: _ready(ends), limit))


def _ready(ends: list[Any]) -> list[Any]:
    """Those that have something to read now."""
    native = [end for end in ends if isinstance(end, NativeSubscription)]
    return [*handles.wait(native, 0), *(end for end in ends if not isinstance(end, NativeSubscription) and end.ready())]


def _those(given: list[Any], ends: list[Any], ready: list[Any]) -> list[Any]:
    """The handles that were given, of the ends that are ready."""
    found = {id(end) for end in ready}
    return [handle for handle, end in zip(given, ends, strict=True) if id(end) in found]


def _listed(subscriptions: Sequence[Any]) -> list[Any]:
    """The handles that were given. `Invalid` for a single one: to iterate over it would wait for its messages and take them."""
    if hasattr(subscriptions, "channel"):
        raise Invalid(f"wait takes a list of handles: write [handle] for one, here {subscriptions!r}")
    return list(subscriptions)


def _receiving(handle: Any) -> Any:
    """The end to wait on for a handle: a compiled one, or the handle itself."""
    end = getattr(handle, "_sub", handle)
    if isinstance(end, NativeSubscription):
        return end
    if getattr(end, "receives", False):  # one that has no compiled end, and says itself whether it is ready
        return end
    raise Invalid(f"there is nothing to wait for on {handle!r}: give subscriptions, members and sockets that receive")


def channels(patterns: str | Sequence[str] = "*") -> Channels:
    """Every channel of this user with its counters, read without disturbing anyone.

    patterns: only those that one of them stands for: ``log:*`` of a kind, ``robot/*`` of any kind; ``*`` is any text, slashes included. A
    file in the channel folder that is no channel is left out, and a warning on the logger `penstock` names it once.
    """
    found, strange = survey(patterns)
    for stranger in strange:
        if stranger not in _warned:
            _warned.add(stranger)
            _logger.warning("%s is left out: %s", stranger.path, stranger.why)
    return Channels(found)


def survey(patterns: str | Sequence[str] = "*") -> tuple[list[ChannelStatus], list[files.Stranger]]:
    """Every channel of this user, and every file in the channel folder that looks like a channel and is none.

    A channel that is removed meanwhile is in neither list.
    """
    there, strange = appearing.listing([patterns] if isinstance(patterns, str) else patterns)
    found = []
    for channel in there:
        try:
            found.append(opening.inspect(channel.kind, channel))
        except NotFound:
            continue
        except (PenstockError, OSError, ValueError, RecursionError) as error:  # this file's trouble, and no other's
            if isinstance(error, OSError) and error.errno in _EXHAUSTED:
                raise
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            strange.append(files.Stranger(opening.where(channel), str(why)))
    return found, sorted(strange, key=lambda stranger: stranger.path)


def inspect(channel: str) -> ChannelStatus:
    """One channel's sizes, totals and members. `NotFound` if there is none."""
    parsed = local(channel)
    return opening.inspect(parsed.kind, parsed)


def remove(channel: str) -> None:
    """Removes a channel's name and, once no process has it open, its memory. `NotFound` if there is none."""
    files.unlink(local(channel))


__all__ = ["channels", "inspect", "local", "parse", "remove", "survey", "wait", "wait_async"]
