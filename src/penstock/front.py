"""The front door's own rooms: publish, subscribe, wait, channels, archives. Joins workshops; does no work itself."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock._native import core as _native
from penstock.channel import Channel, parse
from penstock.clock import Clock, ManualClock
from penstock.errors import NotFound
from penstock.record.archive import Archive as _Archive
from penstock.record.process import ProcessRecorder
from penstock.shm import files, log
from penstock.shm.log import Publication, Subscription
from penstock.status import ChannelStatus


def publish(
    channel: str,
    *,
    exclusive: bool = False,
    codec: Any = None,
    clock: ManualClock | None = None,
    **options: Any,
) -> Publication:
    """A publication on a channel, which is made now if it does not exist.

    channel: `log:NAME`. exclusive: be the only writer (cheaper; `Busy` if there is another). codec: "bytes" (default),
    "json", "msgpack", a NumPy structured dtype or `penstock.array(dtype, shape)`; kept in the channel, so nobody else
    has to name it. options: `term_length`, `window`, `slots` and the others of `LogOptions`, for the one who makes
    the channel; `Mismatch` if it exists with others. clock: a `ManualClock` stamps messages in tests.

    >>> with penstock.publish("log:doc", codec="json") as pub, penstock.subscribe("log:doc") as sub:
    ...     position = pub.send({"speed": 3.5})
    ...     sub.recv(timeout=1)
    {'speed': 3.5}
    """
    return log.open_publication(parse(channel), exclusive=exclusive, codec=codec, clock=clock, **options)


def subscribe(
    channel: str,
    *,
    start: str | int = "newest",
    drop_after: float | None = None,
    spin: float = 20e-6,
    codec: Any = None,
    **options: Any,
) -> Subscription:
    """A subscription to a channel, which is made now if it does not exist.

    start: "newest" (what comes from now on), "earliest" (what the channel still keeps), or a position, such as `send`
    returned. drop_after: None makes writers wait for this subscription; a number of seconds lets it go when writers
    had to wait that long, and the next call here raises `Dropped` and goes on at the oldest position kept. spin:
    seconds to look busily for a message before sleeping; `math.inf` for the lowest latency at the price of a core.
    """
    return log.open_subscription(parse(channel), start=start, drop_after=drop_after, spin=spin, codec=codec, **options)


def wait(subscriptions: Sequence[Subscription], timeout: float | None = None) -> list[Subscription]:
    """Waits until at least one subscription has something to read, and returns those that have.

    An empty list after `timeout` seconds; None waits for ever, 0 only looks. Costs one system call for all of them.
    """
    return log.wait(subscriptions, timeout)


def channels() -> list[ChannelStatus]:
    """Every channel of this user with its counters, read without disturbing anyone."""
    found = []
    for name, kind in files.list_names():
        if kind == "log":
            found.append(log.inspect(Channel(kind, name)))
    return found


def inspect(channel: str) -> ChannelStatus:
    """One channel's sizes, totals and members. `NotFound` if there is none."""
    return log.inspect(parse(channel))


def remove(channel: str) -> None:
    """Removes a channel's name and, once nobody has it open, its memory. `NotFound` if there is none."""
    files.unlink(parse(channel))


class _Channels:
    """How archives reach channels."""

    def subscribe(self, channel: str, **options: Any) -> Subscription:
        return subscribe(channel, **options)

    def publish(self, channel: str, **options: Any) -> Publication:
        return publish(channel, **options)

    def describe(self, channel: str) -> dict[str, Any]:
        parsed = parse(channel)
        fd = files.open_existing(parsed)
        try:
            about = _native.inspect_log(fd, channel)
        finally:
            os.close(fd)
        codec = json.loads(about["metadata"])["codec"]
        return {
            **{name: about[name] for name in ("epoch", "term_length", "initial_term_id", "stream_id")},
            "codec": codec,
        }

    def record_in_process(self, archive: Path, names: Sequence[str], options: dict[str, Any]) -> Any:
        return ProcessRecorder(archive, names, options)


class Archive(_Archive):
    """A folder of recordings: record, list, scan, replay, follow, verify, repair.

    Made if it does not exist, unless `create=False`: then `NotFound`. Safe to open from several processes at once.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, clock: Clock | None = None) -> None:
        super().__init__(path, connector=_Channels(), create=create, clock=clock)


__all__ = ["Archive", "NotFound", "channels", "inspect", "publish", "remove", "subscribe", "wait"]
