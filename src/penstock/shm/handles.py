"""Publications and subscriptions: what Python adds to the compiled handles, whatever the channel's kind.

Codecs, asyncio, pickling, Arrow. Kinds differ in the ends that they hand in (`log.py`, `ring.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock._native import core as _native
from penstock.channel import Channel
from penstock.codecs import Codec
from penstock.iteration import until_closed_async
from penstock.shm.opening import Kind, inspect
from penstock.status import ChannelStatus

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Origin:
    """Where a handle comes from: enough to open it again in another process, and to ask for the channel's counters."""

    kind: Kind
    channel: Channel
    codec: Codec
    opener: Callable[..., Any]
    arguments: dict[str, Any]


def _reopen(opener: Callable[..., Any], channel: Channel, arguments: dict[str, Any]) -> Any:
    """What a pickled handle becomes."""
    return opener(channel, **arguments)


class Received(NamedTuple):
    """Where and when the message received last was sent. position: of its first frame; time_ns since the epoch."""

    position: int
    time_ns: int
    session: int


class Publication(_native.Publication):
    """A handle that writes to a channel. Thread-safe; a context manager; pickles to a child process as a new publication.

    `send(data, timeout=None)`, `offer(data)`, `offer_many(messages)` and `claim(length, timeout=None)` take bytes or any
    contiguous buffer and copy it once, into shared memory. Positions count bytes of the stream. A ring is never full: there
    all of these succeed at once.
    """

    def __init__(self, sender: _native.Sender, origin: Origin) -> None:
        super().__init__(sender)
        self._origin = origin

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._origin.channel)

    @property
    def codec(self) -> Codec:
        """How messages are encoded; fixed when the channel was made."""
        return self._origin.codec

    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment."""
        return inspect(self._origin.kind, self._origin.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._origin.opener, self._origin.channel, self._origin.arguments)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"


class EncodingPublication(Publication):
    """A publication on a channel with a codec: takes objects."""

    def send(self, data: Any, timeout: float | None = None) -> int:
        """Encodes and sends one object; see `Publication.send`."""
        return super().send(self._origin.codec.encode(data), timeout)

    def offer(self, data: Any) -> int | None:
        """Encodes and offers one object; see `Publication.offer`."""
        return super().offer(self._origin.codec.encode(data))

    def offer_many(self, messages: Any) -> int:
        """Encodes and offers objects; see `Publication.offer_many`."""
        return super().offer_many([bytes(self._origin.codec.encode(message)) for message in messages])


class Subscription(_native.Subscription):
    """A handle that reads a channel from a position of its own. Thread-safe: each message goes to one caller.

    `recv(timeout=None)`, `try_recv()`, `poll(limit=1000)`, iteration, `async for`, `poll_arrow`, `borrow`, `fileno`. A
    context manager; pickles to a child process as a new subscription that goes on at the same position.
    """

    def __init__(self, receiver: _native.Receiver, origin: Origin, spin: float) -> None:
        super().__init__(receiver, spin)
        self._origin = origin

    @property
    def channel(self) -> str:
        """The channel's URI."""
        return str(self._origin.channel)

    @property
    def codec(self) -> Codec:
        """How messages are decoded; fixed when the channel was made."""
        return self._origin.codec

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
        while True:
            message = _native.Subscription.try_recv(self)
            if message is not None:
                return self._origin.codec.decode(message)
            await readable(self.fileno())

    def __aiter__(self) -> AsyncIterator[Any]:
        return until_closed_async(self.arecv)

    def statistics(self) -> ChannelStatus:
        """The channel's counters at this moment."""
        return inspect(self._origin.kind, self._origin.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = {**self._origin.arguments, "start": self.position}
        return _reopen, (self._origin.opener, self._origin.channel, arguments)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.channel}{' closed' if self.closed else ''}>"


class DecodingSubscription(Subscription):
    """A subscription to a channel with a codec: gives objects."""

    def recv(self, timeout: float | None = None) -> Any:
        """The next message, decoded; see `Subscription.recv`."""
        return self._origin.codec.decode(super().recv(timeout))

    def try_recv(self) -> Any:
        """The next message, decoded, or None; see `Subscription.try_recv`."""
        message = super().try_recv()
        return None if message is None else self._origin.codec.decode(message)

    def poll(self, limit: int = 1000) -> list[Any]:
        """What is there now, decoded; see `Subscription.poll`."""
        return [self._origin.codec.decode(message) for message in super().poll(limit)]

    def __next__(self) -> Any:
        return self._origin.codec.decode(super().__next__())


def to_batch(capsules: tuple[Any, Any]) -> pa.RecordBatch:
    """A pyarrow batch from the two capsules of the Arrow C data interface."""
    import pyarrow as pa

    return pa.RecordBatch._import_from_c_capsule(*capsules)


_waiting: dict[tuple[int, int], list[asyncio.Future[None]]] = {}


async def readable(fd: int) -> None:
    """Until `fd` is readable, in the running event loop. Several tasks may wait on the same one: a loop keeps one reader per descriptor."""
    loop = asyncio.get_running_loop()
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


def wait(subscriptions: Sequence[Subscription], timeout: float | None = None) -> list[Subscription]:
    """Those subscriptions that have something to read; see `penstock.wait`."""
    given = list(subscriptions)
    return [given[i] for i in _native.wait_any(given, timeout)]


def publication(sender: _native.Sender, origin: Origin) -> Publication:
    """A publication that encodes if the channel has a codec."""
    return (Publication if origin.codec.kind == "bytes" else EncodingPublication)(sender, origin)


def subscription(receiver: _native.Receiver, origin: Origin, spin: float) -> Subscription:
    """A subscription that decodes if the channel has a codec."""
    return (Subscription if origin.codec.kind == "bytes" else DecodingSubscription)(receiver, origin, spin)
