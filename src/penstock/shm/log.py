"""Handles on `log:` channels: opening or making them, codecs, asyncio, pickling.

Knows files and the compiled handles; the moving of bytes is theirs.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock import codecs
from penstock._native import core as _native
from penstock.channel import Channel, parse
from penstock.codecs import Codec
from penstock.errors import Closed, Invalid, Mismatch, NotFound
from penstock.options import LogOptions, seconds
from penstock.shm import files
from penstock.status import ChannelStatus, Member, Totals

if TYPE_CHECKING:
    import pyarrow as pa


class Received(NamedTuple):
    """Where and when the message received last was sent. position: of its first frame; time_ns since the epoch."""

    position: int
    time_ns: int
    session: int


def _open(channel: Channel, options: dict[str, Any], codec: Any) -> tuple[int, Codec]:
    """A descriptor of its own for one handle, and the channel's codec. Makes the channel if there is none."""
    wanted = LogOptions(**options)
    while True:
        try:
            fd = files.open_existing(channel)
        except NotFound:
            chosen = codecs.resolve(codec)
            files.create(channel, wanted.file_size, functools.partial(_format, wanted, chosen))
            continue
        try:
            return fd, _agree(channel, fd, options, codec)
        except BaseException:
            os.close(fd)
            raise


def _format(options: LogOptions, codec: Codec, fd: int) -> None:
    _native.format_log(
        fd=fd,
        term_length=options.term_length,
        window=options.effective_window,
        slots=options.slots,
        initial_term_id=options.initial_term_id,
        stream_id=options.stream_id,
        start_position=options.start_position,
        epoch=secrets.randbits(63),
        metadata=codecs.metadata(codec),
        boot_id=files.boot_id(),
    )


def _agree(channel: Channel, fd: int, asked: dict[str, Any], codec: Any) -> Codec:
    """The channel's codec, or `Mismatch` if what was asked for is not what the channel is."""
    where = f"{channel} ({files.folder() / files.file_name(channel)})"
    about = _native.inspect_log(fd, where)
    for name, value in asked.items():
        if value is not None and about[name] != value:
            raise Mismatch(
                f"{where} exists with {name}={about[name]}, not {value}. Ask for that, or remove the channel first"
            )
    found = codecs.from_metadata(about["metadata"], where)
    if codec is not None and codecs.resolve(codec).spec != found.spec:
        raise Mismatch(f"{where} exists with codec {found.spec}, not {codecs.resolve(codec).spec}")
    return found


def _reopen_publication(uri: str, exclusive: bool) -> Publication:
    return open_publication(parse(uri), exclusive=exclusive)


def _reopen_subscription(uri: str, arguments: dict[str, Any]) -> Subscription:
    return open_subscription(parse(uri), **arguments)


class Publication(_native.LogPublication):
    """A handle that writes to a log. Thread-safe; a context manager; pickles to a child process as a new publication.

    `send(data, timeout=None)`, `offer(data)`, `offer_many(messages)` and `claim(length, timeout=None)` take bytes or any
    contiguous buffer and copy it once, into shared memory. Positions count bytes of the log.
    """

    def __init__(
        self, channel: Channel, fd: int, codec: Codec, *, exclusive: bool, clock: _native.ManualClock | None
    ) -> None:
        try:
            super().__init__(fd, str(files.folder() / files.file_name(channel)), exclusive, clock)
        finally:
            os.close(fd)
        self._channel, self._codec, self._exclusive = channel, codec, exclusive

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    @property
    def codec(self) -> Codec:
        """How messages are encoded; fixed when the channel was made."""
        return self._codec

    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment."""
        return inspect(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_publication, (self.channel, self._exclusive)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"


class EncodingPublication(Publication):
    """A publication on a channel with a codec: takes objects."""

    def send(self, data: Any, timeout: float | None = None) -> int:
        """Encodes and sends one object; see `Publication.send`."""
        return super().send(self._codec.encode(data), timeout)

    def offer(self, data: Any) -> int | None:
        """Encodes and offers one object; see `Publication.offer`."""
        return super().offer(self._codec.encode(data))

    def offer_many(self, messages: Any) -> int:
        """Encodes and offers objects; see `Publication.offer_many`."""
        return super().offer_many([bytes(self._codec.encode(message)) for message in messages])


class Subscription(_native.LogSubscription):
    """A handle that reads a log from a position of its own. Thread-safe: each message goes to one caller.

    `recv(timeout=None)`, `try_recv()`, `poll(limit=1000)`, iteration, `async for`, `poll_arrow`, `borrow`, `fileno`. A
    context manager; pickles to a child process as a new subscription that goes on at the same position.
    """

    def __init__(self, channel: Channel, fd: int, codec: Codec, arguments: dict[str, Any]) -> None:
        start = arguments["start"]
        name, position = (start, 0) if isinstance(start, str) else ("position", start)
        drop_after, spin = arguments["drop_after"], arguments["spin"]
        try:
            super().__init__(fd, str(files.folder() / files.file_name(channel)), name, position, drop_after, spin)
        finally:
            os.close(fd)
        self._channel, self._codec, self._arguments = channel, codec, arguments

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._channel)

    @property
    def codec(self) -> Codec:
        """How messages are decoded; fixed when the channel was made."""
        return self._codec

    @property
    def last(self) -> Received:
        """Where and when the message received last was sent."""
        return Received(*super().last)

    def poll_arrow(self, limit: int = 100_000, max_bytes: int = 64 << 20) -> pa.RecordBatch:
        """What is there now as one Arrow batch: position, session, payload, time. Never blocks.

        At most `limit` rows, and about `max_bytes` of payload unless a single message is longer.
        """
        return to_batch(self.poll_arrow_capsules(limit, max_bytes))

    async def arecv(self) -> Any:
        """The next message; waits in the running event loop. Cancelling it loses nothing."""
        loop = asyncio.get_running_loop()
        while True:
            message = _native.LogSubscription.try_recv(self)
            if message is not None:
                return self._codec.decode(message)
            await _readable(loop, self.fileno())

    async def __aiter__(self) -> AsyncIterator[Any]:
        while not self.closed:
            try:
                message = await self.arecv()
            except Closed:
                return
            yield message

    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment."""
        return inspect(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_subscription, (self.channel, {**self._arguments, "start": self.position})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"


class DecodingSubscription(Subscription):
    """A subscription to a channel with a codec: gives objects."""

    def recv(self, timeout: float | None = None) -> Any:
        """The next message, decoded; see `Subscription.recv`."""
        return self._codec.decode(super().recv(timeout))

    def try_recv(self) -> Any:
        """The next message, decoded, or None; see `Subscription.try_recv`."""
        message = super().try_recv()
        return None if message is None else self._codec.decode(message)

    def poll(self, limit: int = 1000) -> list[Any]:
        """What is there now, decoded; see `Subscription.poll`."""
        return [self._codec.decode(message) for message in super().poll(limit)]

    def __next__(self) -> Any:
        return self._codec.decode(super().__next__())


def to_batch(capsules: tuple[Any, Any]) -> pa.RecordBatch:
    """A pyarrow batch from the two capsules of the Arrow C data interface."""
    import pyarrow as pa

    return pa.RecordBatch._import_from_c_capsule(*capsules)


_waiting: dict[tuple[int, int], list[asyncio.Future[None]]] = {}


async def _readable(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Until `fd` is readable. Several tasks may wait on the same one: a loop keeps one reader per descriptor."""
    key = (id(loop), fd)
    future: asyncio.Future[None] = loop.create_future()
    waiters = _waiting.setdefault(key, [])
    waiters.append(future)

    def wake() -> None:
        loop.remove_reader(fd)
        for waiter in _waiting.pop(key, []):
            if not waiter.done():
                waiter.set_result(None)

    if len(waiters) == 1:
        loop.add_reader(fd, wake)
    try:
        await future
    finally:
        left = _waiting.get(key)
        if left is not None and future in left:
            left.remove(future)
            if not left:
                loop.remove_reader(fd)
                del _waiting[key]


def open_publication(
    channel: Channel,
    *,
    exclusive: bool = False,
    codec: Any = None,
    clock: _native.ManualClock | None = None,
    **options: Any,
) -> Publication:
    """A publication, on a channel made now if there is none."""
    fd, found = _open(channel, options, codec)
    kind = Publication if found.kind == "bytes" else EncodingPublication
    return kind(channel, fd, found, exclusive=exclusive, clock=clock)


def open_subscription(
    channel: Channel,
    *,
    start: str | int = "newest",
    drop_after: float | None = None,
    spin: float = 20e-6,
    codec: Any = None,
    **options: Any,
) -> Subscription:
    """A subscription, on a channel made now if there is none."""
    if isinstance(start, bool) or not isinstance(start, str | int):
        raise Invalid(f"start is {start!r}: it must be 'newest', 'earliest' or a position")
    if isinstance(start, str) and start not in ("newest", "earliest"):
        raise Invalid(f"start is {start!r}: it must be 'newest', 'earliest' or a position")
    if isinstance(start, int) and not 0 <= start < 1 << 63:
        raise Invalid(f"start is {start}: positions are from 0 to below 2**63")
    arguments = {"start": start, "drop_after": seconds(drop_after, "drop_after"), "spin": seconds(spin, "spin")}
    if drop_after is not None and arguments["drop_after"] == 0:
        arguments["drop_after"] = 1e-9
    fd, found = _open(channel, options, codec)
    kind = Subscription if found.kind == "bytes" else DecodingSubscription
    return kind(channel, fd, found, arguments)


def wait(subscriptions: Sequence[Subscription], timeout: float | None = None) -> list[Subscription]:
    """Those subscriptions that have something to read; see `penstock.wait`."""
    given = list(subscriptions)
    return [given[i] for i in _native.wait_any(given, timeout)]


def inspect(channel: Channel) -> ChannelStatus:
    """A channel's sizes, totals and members, read without disturbing anyone. `NotFound` if there is none."""
    path = files.folder() / files.file_name(channel)
    fd = files.open_existing(channel)
    try:
        about = _native.inspect_log(fd, str(path))
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    return ChannelStatus(
        channel=str(channel),
        path=str(path),
        size=size,
        codec=codecs.from_metadata(about["metadata"], str(path)).kind,
        totals=Totals(**about["totals"]),
        members=tuple(Member(**member) for member in about["members"]),
        **{name: about[name] for name in ("term_length", "window", "slots", "created_ns", "tail", "limit")},
    )
