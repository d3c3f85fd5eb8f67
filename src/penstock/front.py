"""The front door's own rooms: publish, subscribe, wait, channels, archives. Joins workshops; does no work itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from penstock.channel import KINDS, NETWORKS, Channel
from penstock.channel import parse as _parse
from penstock.clock import Clock, ManualClock
from penstock.errors import Invalid, NotFound
from penstock.net import zeromq, zmq_sockets
from penstock.record.archive import Archive as _Archive
from penstock.record.process import ProcessRecorder
from penstock.shm import files, frames, handles, log, opening, pipe, ring, sockets, sync
from penstock.shm.handles import Publication, Subscription
from penstock.shm.sockets import Dealer, Pair, Replier, Requester, Router
from penstock.shm.sync import SyncQueue
from penstock.status import ChannelStatus

FAKE_VARIABLE = "PENSTOCK_FAKE"
_ROOMS: dict[str, Any] = {
    "log": log,
    "ring": ring,
    "frames": frames,
    "sync": sync,
    "pipe": pipe,
    "zmq+tcp": zeromq,
    "zmq+ipc": zeromq,
}


@overload
def join(channel: str, *, role: Literal["request"], **options: Any) -> Requester: ...
@overload
def join(channel: str, *, role: Literal["reply"], **options: Any) -> Replier: ...
@overload
def join(channel: str, *, role: Literal["pair"], **options: Any) -> Pair: ...
@overload
def join(channel: str, *, role: Literal["dealer"], **options: Any) -> Dealer: ...
@overload
def join(channel: str, *, role: Literal["router"], **options: Any) -> Router: ...
@overload
def join(channel: str, **options: Any) -> SyncQueue: ...
def join(channel: str, **options: Any) -> Any:
    """Joins a channel in which everybody reads and writes, and which is made now if it does not exist.

    `sync:NAME`, a queue whose members all read what all write: sender: the name in this member's messages, 1 to 64 bytes; the
    process id unless given. own: whether it reads its own messages too. start: "newest" (what comes from now on), "earliest"
    (what the queue still keeps), or a position; `last=n`: the newest n messages that it still keeps. when_slow: what writers do
    when this member is a whole queue behind: "wait" for it, "drop" it after `drop_after` seconds, or "fail". spill_limit: bytes of
    unread messages that this member may take into its own memory while it waits to write. Options of a new queue: `size`,
    `slots` (see `SyncOptions`).

    `pipe:NAME` with a role: "request" and "reply", "pair", "dealer" and "router" (see `Requester`, `Replier`, `Pair`, `Dealer`,
    `Router`). name: what this peer is called, 1 to 64 bytes; the process id unless given. when_full: "wait", "drop_newest" or
    "drop_oldest" when a pipe is full. Options of a new channel: `capacity`, `mark`, `pipes`, `peers` (see `PipeOptions`). To
    share work out, `publish` and `subscribe`.

    `zmq+tcp://HOST:PORT`, `zmq+ipc://PATH` with the same roles and "push" and "pull": peers may be any ZeroMQ programs. bind: whether
    this end binds; pull, reply and router do unless told otherwise. name: its ZeroMQ identity. hwm: messages.

    >>> with penstock.join("sync:doc", sender="a") as a, penstock.join("sync:doc", sender="b") as b:
    ...     position = a.append("hello", "greeting")
    ...     message = b.pop(timeout=1)
    ...     message.sender, message.type, message.text
    ('a', 'greeting', 'hello')
    """
    parsed = parse(channel)
    if parsed.kind == "pipe":
        return _take(sockets.open_socket, parsed, **{"role": None, **options})
    if parsed.kind in NETWORKS:
        return _take(zmq_sockets.open_socket, parsed, **{"role": None, **options})
    if parsed.kind != "sync":
        raise Invalid(f"{channel} is nothing to join: write 'sync:NAME', or 'pipe:NAME' with a role")
    return _take(sync.join, parsed, **options)


def parse(uri: str) -> Channel:
    """The channel that a URI names. `PENSTOCK_FAKE` (1, or kinds such as `ring,log`) keeps them all within this process."""
    parsed = _parse(uri)
    asked = os.environ.get(FAKE_VARIABLE, "")
    if parsed.fake or not asked:
        return parsed
    kinds = KINDS if asked in ("1", "all") else tuple(asked.split(","))
    return replace(parsed, fake=True) if parsed.kind in kinds else parsed


def publish(channel: str, *, codec: Any = None, clock: ManualClock | None = None, **options: Any) -> Publication:
    """A publication on a channel, which is made now if it does not exist.

    channel: `log:NAME`, `ring:NAME`, `frames:NAME`, `frames:NAME/STREAM`, `pipe:NAME`, `zmq+tcp://HOST:PORT`, `zmq+ipc://PATH`, or
    `fake:NAME` within this process. codec: "bytes" (default), "json", "msgpack", a NumPy structured dtype or
    `penstock.array(dtype, shape)`; kept in the channel, so nobody else has to name it. clock: a `ManualClock` stamps
    messages in tests. options are for the one who makes the channel; `Mismatch` if it exists with others.

    log: `term_length`, `window`, `slots` (see `LogOptions`); `exclusive=True` to be the only writer (cheaper; `Busy` if there
    is another). ring: `capacity`, `slots` (see `RingOptions`); it has one publication, and `Busy` refuses a second. frames:
    `shape`, `dtype`, `buffers`, `slots`, `attributes` (see `FrameOptions` and `acquire`). pipe: each message goes to one of those who
    subscribe; `capacity`, `mark`, `pipes`, `peers` (see `PipeOptions`), and `when_full`: "wait", "drop_newest", "drop_oldest". zmq:
    `hwm`, messages.

    A channel's memory is allocated when it is made. prefault=True (also for `subscribe`) brings all of it into this process now,
    so that no send or receive is the first to touch a page.

    >>> with penstock.publish("log:doc", codec="json") as pub, penstock.subscribe("log:doc") as sub:
    ...     position = pub.send({"speed": 3.5})
    ...     sub.recv(timeout=1)
    {'speed': 3.5}
    """
    parsed = parse(channel)
    opened: Publication = _take(_ROOMS[parsed.kind].open_publication, parsed, codec=codec, clock=clock, **options)
    return opened


def subscribe(
    channel: str, *, start: str | int = "newest", spin: float = 20e-6, codec: Any = None, **options: Any
) -> Subscription:
    """A subscription to a channel, which is made now if it does not exist.

    start: "newest" (what comes from now on), "earliest" (log: what the channel still keeps), or a position, such as `send`
    returned. spin: seconds to look busily for a message before sleeping; `math.inf` for the lowest latency at the price of
    a core.

    log: drop_after: None makes writers wait for this subscription; a number of seconds lets it go when writers had to wait
    that long, and the next call here raises `Dropped` and goes on at the oldest position kept. ring: nobody waits; who is
    lapped goes on at the newest end, and `lost` and `lost_messages` count what it missed. conflate=True reads only the newest.
    frames: the same; conflate=True is the default, and `connect_timeout` seconds are waited for the channel to be made. pipe: each
    message is taken by one subscription; what it had not done when it died goes to another. acknowledge="manual": only
    `acknowledge()` says what is done.
    """
    parsed = parse(channel)
    opened: Subscription = _take(
        _ROOMS[parsed.kind].open_subscription, parsed, start=start, spin=spin, codec=codec, **options
    )
    return opened


def _local(channel: str) -> Channel:
    """The channel in shared memory that a URI names."""
    parsed = parse(channel)
    if parsed.kind not in KINDS:
        raise Invalid(f"{channel} is not in shared memory: there is nothing to look at, to remove or to record here")
    return parsed


def _take(opener: Callable[..., Any], parsed: Channel, **options: Any) -> Any:
    """Opens; an option that this kind does not have is named."""
    try:
        return opener(parsed, **options)
    except TypeError as error:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found is None or found[1] not in options:
            raise
        raise TypeError(f"{parsed}: channels of kind {parsed.kind!r} have no option {found[1]!r}") from None


def wait(subscriptions: Sequence[Any], timeout: float | None = None) -> list[Any]:
    """Waits until at least one subscription, sync queue or pipe socket has something to read, and returns those that have.

    An empty list after `timeout` seconds; None waits for ever, 0 only looks. Costs one system call for all of them, of
    whatever kinds.
    """
    given = list(subscriptions)
    inner = [getattr(handle, "_sub", handle) for handle in given]  # queues and sockets read by one, too
    if any(isinstance(subscription, zeromq.ZmqSubscription) for subscription in inner):
        ready = zeromq.wait(inner, timeout)
    else:
        ready = handles.wait(inner, timeout)
    found = {id(subscription) for subscription in ready}
    return [handle for handle, subscription in zip(given, inner, strict=True) if id(subscription) in found]


def channels(prefix: str = "") -> list[ChannelStatus]:
    """Every channel of this user with its counters, read without disturbing anyone.

    prefix: only those whose name begins so: "frames:cam/" gives the streams of `frames:cam`.
    """
    found = [Channel(kind, name) for name, kind in files.list_names() if kind in KINDS]
    return [opening.inspect(_ROOMS[channel.kind].KIND, channel) for channel in found if str(channel).startswith(prefix)]


def inspect(channel: str) -> ChannelStatus:
    """One channel's sizes, totals and members. `NotFound` if there is none."""
    parsed = _local(channel)
    return opening.inspect(_ROOMS[parsed.kind].KIND, parsed)


def remove(channel: str) -> None:
    """Removes a channel's name and, once nobody has it open, its memory. `NotFound` if there is none."""
    files.unlink(_local(channel))


class _Channels:
    """How archives reach channels."""

    def subscribe(self, channel: str, **options: Any) -> Subscription:
        parsed = _local(channel)
        if parsed.kind == "pipe":
            tap: Subscription = _take(pipe.open_tap, parsed, **options)
            return tap
        return subscribe(channel, **options)

    def publish(self, channel: str, **options: Any) -> Publication:
        return publish(channel, **options)

    def describe(self, channel: str, *, pixels: bool = False) -> dict[str, Any]:
        parsed = _local(channel)
        if parsed.kind == "pipe":
            return pipe.describe(parsed)
        return opening.describe(_ROOMS[parsed.kind].KIND, parsed, pixels=pixels)

    def record_in_process(self, archive: Path, names: Sequence[str], options: dict[str, Any]) -> Any:
        return ProcessRecorder(archive, names, options)


class Archive(_Archive):
    """A folder of recordings: record, list, scan, replay, follow, verify, repair.

    Made if it does not exist, unless `create=False`: then `NotFound`. Safe to open from several processes at once.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True, clock: Clock | None = None) -> None:
        super().__init__(path, connector=_Channels(), create=create, clock=clock)


__all__ = ["Archive", "NotFound", "channels", "inspect", "join", "publish", "remove", "subscribe", "wait"]
